"""Model folders and repositories that somebody made to do harm, or by accident: each is a sentence, in bounded time and
memory, and the next model loads.

python -m pytest tests/faults/test_models.py
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

from model import catalog, files
from model.errors import CheckpointError
from model.settings import Settings
from tests.model.huggingface import families

DEEP = 500_000
SETTINGS = Settings()


def nested(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text("[" * DEEP + "]" * DEEP)


def fifo(name: str) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return make


def layers(folder: Path) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"num_hidden_layers": 100_000, "n_layer": 100_000}))


def nan(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = {name: torch.full_like(weight, torch.nan) for name, weight in load_file(path).items()}
    save_file(weights, path, metadata={"format": "pt"})


def tokenizer(change: Callable[[Tokenizer], None]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        path = str(folder / "tokenizer.json")
        changed = Tokenizer.from_file(path)
        change(changed)
        changed.save(path)

    return make


def backtracks(changed: Tokenizer) -> None:
    changed.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")


def expands(changed: Tokenizer) -> None:
    """"z" becomes 10^12 of them."""
    changed.normalizer = normalizers.Sequence([normalizers.Replace("z", "z" * 100)] * 6)


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "config nested": (nested("config.json"), r"config\.json cannot be read \(maximum recursion depth"),
    "config a FIFO": (fifo("config.json"), r"config\.json is not a regular file"),
    "extras a FIFO": (fifo("generation_config.json"), r"generation_config\.json is not a regular file"),
    "layers": (layers, r"config\.json asks for 100,000 layers|expected n_layer as GPT-2 writes it"),
    "regular expression": (tokenizer(backtracks), r"its tokenizer fails on some texts \(Onig: .*retry-limit"),
    "normalizer": (tokenizer(expands), r"its tokenizer makes 1,000,000,000,000 characters of one"),
    "NaN": (nan, r"its weights hold numbers that are not finite"),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> dict[str, Path]:
    """A folder of each of our two readers."""
    return {"gpt2": tiny_folder, "llama": families.save("llama", tmp_path_factory.mktemp("llama"))}


@pytest.fixture(params=["gpt2", "llama"])
def folder(request: pytest.FixtureRequest, sound: dict[str, Path], tmp_path: Path) -> Path:
    return shutil.copytree(sound[request.param], tmp_path / request.param)


@pytest.mark.parametrize(("make", "sentence"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_folder_is_a_sentence(make: Callable[[Path], object], sentence: str, folder: Path) -> None:
    catalog.inspect(str(folder), SETTINGS)
    make(folder)
    with pytest.raises(CheckpointError, match=sentence):
        catalog.inspect(str(folder), SETTINGS)
        catalog.load(str(folder), settings=SETTINGS)
