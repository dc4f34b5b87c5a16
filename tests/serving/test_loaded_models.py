"""Tests of models being loaded: one load for all who wait for it, its progress messages, and when it is stopped."""

import os
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import LlamaConfig

from model import catalog
from model.base import tokenize
from model.errors import CheckpointError, Stopped
from model.sampling import predictions
from model.spec import MaskSpec
from serving.job import Job, ModelRef, RunRef
from serving.loaded_models import PAGE_MODELS, LoadedModels, Loads
from serving.result_cache import Engine
from serving.settings import Settings
from tests.model.huggingface import families

LONG = 20  # seconds, more than any step of these tests takes


class Making:
    """A load that ends when `may_end` is set; it sets `stopped` if it was stopped."""

    def __init__(self) -> None:
        self.may_end, self.stopped, self.made = Event(), Event(), 0

    def __call__(self, report: Callable[[str], None]) -> Any:
        self.made += 1
        try:
            while not self.may_end.wait(0.01):
                report("reading 3 MB of weights")
        except Stopped:
            self.stopped.set()
            raise
        return f"model {self.made}"


class Left(BaseException):
    """Stand-in for the exception by which Streamlit ends a script."""


def until(event: Event) -> Callable[[str], None]:
    def show(_: str) -> None:
        if event.is_set():
            raise Left

    return show


def test_a_page_s_own_model_waits_for_no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the page Pixels would freeze for minutes, without a message, while another user's model is loaded."""
    begun, may_end = Event(), Event()
    monkeypatch.setattr(catalog, "load", lambda *_, **__: begun.set() or may_end.wait(LONG) or 1 / 0)
    monkeypatch.setitem(PAGE_MODELS, "digits", lambda: "its own")
    models = LoadedModels(1)
    with ThreadPoolExecutor(2) as readers:
        readers.submit(models.load, "x", Settings())
        assert begun.wait(LONG)
        try:
            assert readers.submit(models.own, "digits").result(LONG / 4) == "its own"
        finally:
            may_end.set()


def test_a_look_at_the_last_used_model_uses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a server with frequent health checks would keep a model that no user has open and drop those in use."""
    monkeypatch.setattr("serving.loaded_models.stamp", lambda _: "same")
    made = {name: SimpleNamespace(key=name) for name in "abc"}
    monkeypatch.setattr(catalog, "load", lambda name, **_: made[name])
    models = LoadedModels(2)
    assert models.last_used("ab") is None
    for name in "ab":
        models.load(name, Settings())
    assert models.last_used("abc") is made["b"]
    assert models.last_used("a") is made["a"]
    models.load("c", Settings())
    assert [models.find(name) for name in "abc"] == [None, made["b"], made["c"]]


def test_a_second_reader_waits_for_the_same_load_and_is_told_the_same() -> None:
    loads, making, reports = Loads(), Making(), [set[str](), set[str]()]
    with ThreadPoolExecutor(2) as readers:
        waiting = [readers.submit(loads.get, "x", making, words.add) for words in reports]
        while not all(reports):
            pass
        making.may_end.set()
        assert [one.result(LONG) for one in waiting] == ["model 1", "model 1"]
    assert reports == [{"reading 3 MB of weights"}] * 2


def test_it_is_stopped_when_the_last_who_waits_has_left_and_not_before() -> None:
    loads, making = Loads(), Making()
    first, second = Event(), Event()
    with ThreadPoolExecutor(2) as readers:
        waiting = [readers.submit(loads.get, "x", making, until(event)) for event in (first, second)]
        first.set()
        assert isinstance(waiting[0].exception(LONG), Left)
        assert not making.stopped.wait(0.2)
        second.set()
        assert isinstance(waiting[1].exception(LONG), Left)
        assert making.stopped.wait(LONG)
        making.may_end.set()
        assert loads.get("x", making, lambda _: None) == "model 2"


def test_what_it_ends_in_is_for_everybody_and_the_next_tries_again() -> None:
    loads = Loads()

    def fails(_: object) -> Any:
        raise CheckpointError("damaged")

    for _ in range(2):
        with pytest.raises(CheckpointError, match="damaged"):
            loads.get("x", fails, lambda _: None)


def test_what_is_over_is_not_kept_by_who_made_it() -> None:
    class Model:
        pass

    loads = Loads()
    made: Any = loads.get("x", lambda _: Model(), lambda _: None)  # type: ignore[arg-type,return-value]
    left, deadline = weakref.ref(made), monotonic() + LONG
    del made
    while left() is not None and monotonic() < deadline:
        sleep(0.01)
    assert left() is None


def test_a_load_says_its_bytes_and_steps_and_stops_at_any_of_them(tmp_path: Path) -> None:
    folder = str(families.save("llama", tmp_path, LlamaConfig(**families.WIDE)))
    size = (tmp_path / "model.safetensors").stat().st_size / 1e6
    reports: list[str] = []
    catalog.load(folder, settings=Settings(), report=reports.append)
    reading = [words for words in reports if words.startswith(f"reading {size:,.0f} MB of weights, tensor 1 of ")]
    assert reading
    assert reports[-3:] == [
        "running it as transformers does",
        "looking for its attentions",
        "comparing logits with its own",
    ]
    for step in (reading[0], *reports[-3:]):

        def stop(words: str, step: str = step) -> None:
            if words == step:
                raise Stopped

        with pytest.raises(Stopped):
            catalog.load(folder, settings=Settings(), report=stop)


def test_results_of_a_model_that_is_saved_anew_while_it_loads_have_the_old_files_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise results of the old weights would be shown as those of the new ones, under the new files' key."""
    folder, read = str(families.save("llama", tmp_path, LlamaConfig(**families.WIDE))), catalog._from_folder

    def then_saved(*given: Any) -> Any:
        model = read(*given)
        monkeypatch.undo()
        os.utime(tmp_path / "model.safetensors", ns=(1, 1))
        return model

    monkeypatch.setattr(catalog, "_from_folder", then_saved)
    models = LoadedModels(2)
    before, after = (models.load(folder, Settings()) for _ in range(2))
    assert before is not after
    assert before.key != after.key


@pytest.mark.parametrize("cached", [False, True], ids=["a model", "a kept trace"])
def test_nothing_is_computed_with_weights_that_were_overwritten_in_place(tmp_path: Path, cached: bool) -> None:
    """Otherwise they would be the new weights under the old files' key, or a bus error if the new file is shorter."""
    folder = str(families.save("llama", tmp_path, LlamaConfig(**families.WIDE)))
    engine = Engine(1, 10**7)
    model = engine.models.load(folder, Settings())
    run = RunRef(ModelRef.of(model), model.encode(["the cat"]), MaskSpec())
    job = Job(predictions, (run, 0, None, 3)) if cached else Job(tokenize, (run.model, "the cat", "right"))
    engine.do(job)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes())  # as cp does
    with pytest.raises(ValueError, match="have changed since this page was loaded"):
        engine.do(job)


def test_a_checkpoint_is_loaded_anew_where_the_tokenizer_above_it_is_saved_anew(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-100"
    folder.mkdir()
    families.save("llama", folder, LlamaConfig(**families.WIDE))
    for file in folder.glob("*token*"):
        file.rename(tmp_path / file.name)
    models = LoadedModels(2)
    before = models.load(str(folder), Settings())
    (tmp_path / "trainer_state.json").touch()
    assert models.load(str(folder), Settings()) is before, "none of its files"
    os.utime(tmp_path / "tokenizer.json", ns=(1, 1))
    assert models.load(str(folder), Settings()).key != before.key
