"""Hostile or damaged model folders and repositories: each is refused with a sentence, in bounded time and memory, and
the next model loads.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import pytest
import torch
from safetensors.torch import load_file, save_file
from streamlit.testing.v1 import AppTest
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

import unmask
from i18n import set_language_source
from model import catalog, files
from model.errors import CheckpointError, TooLarge
from serving import backends
from serving.job import Job, ModelRef, RunRef
from serving.result_cache import Engine
from serving.scheduler import LostTwice, Scheduler, TooSlow
from serving.settings import Settings
from tests.model.huggingface import families
from tests.serving import jobs
from ui.sidebar import models, speech

pytestmark = pytest.mark.slow  # loads dozens of broken models

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


def width(folder: Path) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    sizes = {"vocab_size": 1_000_000, "hidden_size": 96_000, "n_embd": 96_000}
    path.write_text(json.dumps(config | sizes))


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
    """Make the tokenizer replace "z" by 10^12 of them."""
    changed.normalizer = normalizers.Sequence([normalizers.Replace("z", "z" * 100)] * 6)


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "config nested": (nested("config.json"), r"config\.json cannot be read \(maximum recursion depth"),
    "config a FIFO": (fifo("config.json"), r"config\.json is not a regular file"),
    "extras a FIFO": (fifo("generation_config.json"), r"generation_config\.json is not a regular file"),
    "layers": (layers, r"config\.json has 100,000 layers|expected n_layer as GPT-2 writes it"),
    "regular expression": (tokenizer(backtracks), r"its tokenizer fails on some texts \(Onig: .*retry-limit"),
    "normalizer": (tokenizer(expands), r"its tokenizer turns one character into 1,000,000,000,000"),
    "width": (width, r"needs [\d.]+ GB of memory for its weights|expected transformer\.wte\.weight"),
    "NaN": (nan, r"its weights contain numbers that are not finite"),
}


def grows(folder: Path) -> None:
    """Scale the weights so that they are finite, but activations are not."""
    path = folder / "model.safetensors"
    weights = {name: weight * 1e30 for name, weight in load_file(path).items()}
    save_file(weights, path, metadata={"format": "pt"})


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> dict[str, Path]:
    """Return an intact folder for each of the two loaders: the app's own and Hugging Face's."""
    return {"gpt2": tiny_folder, "llama": families.save("llama", tmp_path_factory.mktemp("llama"))}


@pytest.fixture(params=["gpt2", "llama"])
def folder(request: pytest.FixtureRequest, sound: dict[str, Path], tmp_path: Path) -> Path:
    return shutil.copytree(sound[request.param], tmp_path / request.param)


def inspect_and_load(folder: Path) -> None:
    catalog.inspect(str(folder), SETTINGS)
    catalog.load(str(folder), settings=SETTINGS)


@pytest.mark.parametrize(("make", "sentence"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_folder_is_a_sentence(make: Callable[[Path], object], sentence: str, folder: Path) -> None:
    catalog.inspect(str(folder), SETTINGS)
    make(folder)
    with pytest.raises(CheckpointError, match=sentence):
        inspect_and_load(folder)
    if sentence.startswith("config"):
        with pytest.raises(CheckpointError, match=sentence):
            unmask.load(folder)


def test_numbers_that_grow_beyond_their_type_are_a_sentence(tmp_path: Path, sound: dict[str, Path]) -> None:
    folder = shutil.copytree(sound["gpt2"], tmp_path / "gpt2")
    grows(folder)
    engine = Engine(1, 10**6)
    model = engine.models.load(str(folder), SETTINGS)
    run = RunRef(ModelRef.of(model), model.encode(["the cat"]), model.standard)
    with pytest.raises(ValueError, match="gives NaN on this text"):
        engine.trace(run)


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "vocab.json"]
)
def test_no_json_of_a_folder_is_nested_too_deep_to_refuse(name: str, sound: dict[str, Path], tmp_path: Path) -> None:
    """Whichever library reads the file; a file that is not read does no harm."""
    folder = shutil.copytree(sound["llama"], tmp_path / "llama")
    nested(name)(folder)
    with suppress(CheckpointError):
        inspect_and_load(folder)


def test_a_large_tokenizer_is_not_read(sound: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, folder in sound.items():
        copy = shutil.copytree(folder, tmp_path / name)
        with (copy / "tokenizer.json").open("ab") as file:
            file.truncate(604_000_000)
        monkeypatch.setattr(Tokenizer, "from_file", lambda path: pytest.fail(f"{path} was read"))
        with pytest.raises(TooLarge, match="its configuration and tokenizer take 604 MB, and at most 50 MB"):
            catalog.load(str(copy), settings=SETTINGS)


def test_a_text_on_which_a_tokenizer_panics_is_a_sentence(tmp_path: Path, sound: dict[str, Path]) -> None:
    folder = shutil.copytree(sound["gpt2"], tmp_path / "gpt2")
    tokenizer(backtracks)(folder)
    model = catalog.load(str(folder), settings=SETTINGS)
    assert model.encode(["the cat"]).ids.shape[1] > 2
    with pytest.raises(ValueError, match=r"one that it refuses \(Onig: .*retry-limit-in-match over"):
        model.encode(["a" * 60 + "b"])


def test_while_a_tokenizer_is_slow_other_threads_go_on(tmp_path: Path, sound: dict[str, Path]) -> None:
    """The tokenizer's own encode holds the GIL, which would stop every session of the server."""
    folder = shutil.copytree(sound["gpt2"], tmp_path / "gpt2")
    tokenizer(backtracks)(folder)
    model = catalog.load(str(folder), settings=SETTINGS)
    ticks, over = [0], Event()

    def tick() -> None:
        while not over.wait(0.001):
            ticks[0] += 1

    thread = Thread(target=tick)
    thread.start()
    try:
        model.encode([("a" * 20 + "b ") * 40])
    finally:
        over.set()
        thread.join()
    assert ticks[0] > 20


def test_reading_a_file_waits_for_nobody(tmp_path: Path) -> None:
    fifo("pipe")(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "large").write_bytes(bytes(11))
    for name, message in (("pipe", "not a regular file"), ("folder", "folder"), ("large", "more than 10 bytes")):
        with pytest.raises(OSError, match=message):
            files.read_regular(tmp_path / name, 10)
    assert files.read_regular(tmp_path / "large", 11) == bytes(11)


@pytest.fixture(scope="module")
def inspector() -> Iterator[Scheduler]:
    found = backends.inspector(SETTINGS)
    yield found
    found.close()


class TestTheInspector:
    def test_it_inspects_as_we_do(self, inspector: Scheduler, sound: dict[str, Path], tmp_path: Path) -> None:
        inspector.ask(Job(catalog.inspect, (str(sound["llama"]), SETTINGS)))
        folder = shutil.copytree(sound["llama"], tmp_path / "llama")
        tokenizer(backtracks)(folder)
        with pytest.raises(CheckpointError, match="its tokenizer fails on some texts"):
            inspector.ask(Job(catalog.inspect, (str(folder), SETTINGS)))

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits another process's memory")
    def test_its_memory_is_limited(self, inspector: Scheduler) -> None:
        with pytest.raises(MemoryError):
            inspector.ask(Job(jobs.take, (backends.MAX_INSPECTED,)))
        assert inspector.ask(Job(jobs.take, (10**6,))) == 10**6

    def test_its_time_is_limited(self, inspector: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(inspector, "_seconds", 0.5)
        with pytest.raises(TooSlow):
            inspector.ask(Job(jobs.wait, (60,)))


def page() -> None:
    import streamlit as st

    from ui.sidebar import models

    st.write(models.get_or_keep(st.session_state.wanted).name)


def test_after_a_hostile_folder_the_next_one_loads(
    sound: dict[str, Path], tmp_path: Path, inspector: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "_inspector", lambda: inspector)
    set_language_source(speech.of_user)
    folder = shutil.copytree(sound["llama"], tmp_path / "llama")
    fifo("config.json")(folder)
    app = AppTest.from_function(page, default_timeout=90)
    app.session_state["wanted"] = str(folder)
    app.run()
    assert not app.exception
    assert "not a regular file" in app.error[0].value
    app.session_state["wanted"] = str(sound["gpt2"])
    del app.session_state["failure"]
    app.run()
    assert not app.error
    assert app.markdown[-1].value == str(sound["gpt2"])


@pytest.mark.parametrize("error", [TooSlow.after(60), LostTwice("ended twice")])
def test_what_the_inspector_gave_up_is_a_sentence(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    class GivesUp:
        def ask(self, *_: object) -> None:
            raise error

    monkeypatch.setattr(models, "_inspector", GivesUp)
    with pytest.raises(CheckpointError, match="take too long to read, or too much memory"):
        models.inspected(catalog.inspect, "some/model")


def test_downloading_what_is_inspected_may_take_longer_and_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asked:
        def __init__(self, seconds: float) -> None:
            self.seconds = seconds

        def ask(self, job: Job, *_: object) -> float:
            return self.seconds

    made = lambda _, seconds=backends.INSPECTION_SECONDS: Asked(seconds)  # noqa: E731
    monkeypatch.setattr(backends, "inspector", made)
    monkeypatch.setattr(models, "_inspector", models._inspector.__wrapped__)
    monkeypatch.setattr(models, "_downloader", models._downloader.__wrapped__)
    assert models.inspected(catalog.inspect, "some/model") == 60
    assert models.inspected(catalog.download_size, "some/model") == models.SMALL_FILES_SECONDS > 60
