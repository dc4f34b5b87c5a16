"""What several test files share: the recorded data, a tiny random model with its tokenizer, and the story model.

The data is looked for at ../shared/data, or where UNMASK_TEST_DATA points; without it the tests that need it are
skipped, and say so. What takes long to import is imported where it is used: of several processes, the one that hands
out the tests needs none of it, and the others begin once it is there.
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

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of threads not yet there, a page's for one, and of processes started
os.environ.setdefault("UNMASK_MODELS_IN_MEMORY", "6")  # one that leaves is loaded again
gc.set_threshold(20_000, 20, 20)  # torch and Streamlit are in every whole collection, a third of a second each


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long first: of several processes, that which begins one last is waited for by the others."""
    long = {item.path for item in items if item.get_closest_marker("slow") or "browser" in item.path.parts}
    items.sort(key=lambda item: item.path not in long)


def pytest_collection_finish() -> None:
    """What was imported stays: collections, loading a model is one, look at what the tests make alone."""
    import torch

    torch.set_num_threads(1)  # on tensors this small more threads only wait for each other
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def pages_quickly() -> Iterator[None]:
    """For all that open pages by AppTest; the others do without Streamlit."""
    with done_once() if "streamlit.testing" in sys.modules else nullcontext():
        yield


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of recorded values and texts that is no part of the project."""
    folder = Path(os.environ.get("UNMASK_TEST_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"needs the recorded data at {folder} (set UNMASK_TEST_DATA to another place)")
    return folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint in GPT-2's layout (tests/tiny.py)."""
    from tests.tiny import save_tiny

    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder)
    return folder


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> Model:
    """The tiny model, loaded as a reader's own folder would be. Read-only."""
    from model import catalog

    return catalog.load(str(tiny_folder))


@pytest.fixture(scope="session")
def story() -> Model:
    """The story model that ships. Read-only."""
    from model import catalog

    return catalog.load("story")


@pytest.fixture
def checked_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page Mask check checks in this process: for what is not about its own, which takes seconds to start."""
    from tests.pages.page import Here
    from ui import mask_check

    monkeypatch.setattr(mask_check, "Background", Here)


@pytest.fixture
def checked_soon(checked_here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """So, and of a text its first words alone: for what is not about the check, which takes seconds."""
    from ui import mask_check

    monkeypatch.setattr(mask_check, "MAX_TOKENS", 8)


@pytest.fixture
def in_chinese() -> Iterator[None]:
    """AppTest looks for what a select box shows among its options: in the language of the test, not of the page."""
    with spoken("zh"):
        yield
