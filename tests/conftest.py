"""What several test files share: the recorded data, a tiny random model with its tokenizer, and the story model.

The data is looked for at ../shared/data, or where UNMASK_TEST_DATA points; without it the tests that need it are
skipped, and say so.
"""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of threads not yet there, a page's for one, and of processes started
os.environ.setdefault("UNMASK_MODELS_IN_MEMORY", "6")  # with one that leaves, all garbage is looked for: 0.4 s

import pytest
import torch

from model import catalog
from model.base import Model
from model.gpt2 import save_transformer
from model.language import spoken
from model.training.tokenizer import train_tokenizer
from model.transformer import Transformer, TransformerConfig
from tests.apptest import done_once

ROOT = Path(__file__).parents[1]
TINY = TransformerConfig(  # sizes that are all different, so that a swapped axis cannot pass
    vocabulary=283, context=151, layers=2, heads=3, width=21, mlp_width=37
)
TINY_ENTRIES = 277  # of the tokenizer: fewer than the model's vocabulary, as in many published models

gc.set_threshold(20_000, 20, 20)  # torch and Streamlit are in every whole collection, a third of a second each
torch.set_num_threads(1)  # on tensors this small more threads only wait for each other


def pytest_collection_finish() -> None:
    """What was imported stays: collections, loading a model is one, look at what the tests make alone."""
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
    """A checkpoint in GPT-2's layout: random weights, and a byte-level tokenizer with a pad and a start token."""
    folder = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(1)
    save_transformer(Transformer(TINY), folder)
    words = ["the cat sat on the mat and the cat sat still"] * 3
    train_tokenizer(words, TINY_ENTRIES).save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> Model:
    """The tiny model, loaded as a reader's own folder would be. Read-only."""
    return catalog.load(str(tiny_folder))


@pytest.fixture(scope="session")
def story() -> Model:
    """The story model that ships. Read-only."""
    return catalog.load("story")


@pytest.fixture
def in_chinese() -> Iterator[None]:
    """AppTest looks for what a select box shows among its options: in the language of the test, not of the page."""
    with spoken("zh"):
        yield
