"""Fixtures that several test files share: the recorded data, a tiny random model with its tokenizer, the story model.

The data is read from ../shared/data or the folder in UNMASK_TEST_DATA; without it, the tests that need it are skipped
with this reason. Modules that are slow to import are imported where they are used: when several processes run the
tests, the one that distributes them needs none of these, and the others start only after it.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from i18n import spoken
from tests.apptest import done_once

if TYPE_CHECKING:
    from model.base import Model

ROOT = Path(__file__).parents[1]

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for threads created later, such as a page's, and for child processes
os.environ.setdefault("UNMASK_MODELS_IN_MEMORY", "6")  # an evicted model has to be loaded again
gc.set_threshold(20_000, 20, 20)  # each full collection visits torch and Streamlit: a third of a second


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow files first: with several processes, a slow file that starts last keeps the other processes waiting."""
    long = {item.path for item in items if item.get_closest_marker("slow") or "browser" in item.path.parts}
    items.sort(key=lambda item: item.path not in long)


def pytest_collection_finish() -> None:
    """Freeze what was imported, so that collections, which loading a model causes, visit only objects made by tests."""
    import torch

    torch.set_num_threads(1)  # on tensors this small, more threads only wait for each other
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def pages_quickly() -> Iterator[None]:
    """Apply `done_once` if any test opens pages by AppTest; other tests run without Streamlit."""
    with done_once() if "streamlit.testing" in sys.modules else nullcontext():
        yield


@pytest.fixture(scope="session")
def data() -> Path:
    """Return the folder of recorded values and texts, which is not part of the project."""
    folder = Path(os.environ.get("UNMASK_TEST_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"needs the recorded data at {folder} (set UNMASK_TEST_DATA to another place)")
    return folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a checkpoint in GPT-2's layout (tests/tiny.py)."""
    from tests.tiny import save_tiny

    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder)
    return folder


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> Model:
    """Return the tiny model, loaded as a user's folder is. Read-only."""
    from model import catalog

    return catalog.load(str(tiny_folder))


@pytest.fixture(scope="session")
def story() -> Model:
    """Return the story model that ships. Read-only."""
    from model import catalog

    return catalog.load("story")


@pytest.fixture
def checked_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the page Mask check run its check in this process: a separate process takes seconds to start."""
    from tests.pages.page import Here
    from ui import mask_check

    monkeypatch.setattr(mask_check, "Background", Here)


@pytest.fixture
def checked_soon(checked_here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the page Mask check check a text's first 8 tokens only, in this process: a whole check takes seconds."""
    from ui import mask_check

    monkeypatch.setattr(mask_check, "MAX_TOKENS", 8)


@pytest.fixture
def in_chinese() -> Iterator[None]:
    """Set the test's language to Chinese, in which AppTest looks up a select box's value among its options."""
    with spoken("zh"):
        yield
