"""Getting a model: a loaded one is never refused, a download needs the user's consent, a public server offers less."""

import gc
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from weakref import ref

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from i18n import set_language_source
from model import catalog
from model.huggingface import hub
from serving import loaded_models, machine
from serving.job import ModelRef, RunRef
from serving.result_cache import Engine, once
from serving.settings import Settings
from ui import results
from ui.sidebar import models, speech

MEGABYTES = 548


@pytest.fixture(autouse=True)
def new_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start with no loaded models and empty caches; users' languages are known."""
    set_language_source(speech.of_user)
    for made in (results.engine, results.scheduler, results.result_cache):
        monkeypatch.setattr(results, made.__name__, once(made.__wrapped__))
    st.cache_resource.clear()
    yield
    results.scheduler().close()


def page() -> None:
    import streamlit as st

    from ui.sidebar import models

    st.session_state.setdefault("wanted", "story")
    st.write(models.get_or_keep(st.session_state.wanted).name)


def opened(wanted: str) -> AppTest:
    app = AppTest.from_function(page, default_timeout=30)
    app.session_state["wanted"] = wanted
    return app.run()


def test_a_loaded_model_is_not_refused(tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = opened(str(tiny_folder))
    monkeypatch.setattr(machine, "free_bytes", lambda: 1000)
    app.run()
    assert not app.error
    assert app.markdown[-1].value == str(tiny_folder)
    other = shutil.copytree(tiny_folder, tmp_path / "other")
    assert "of memory for its weights" in opened(str(other)).error[0].value


def test_what_went_wrong_is_said_anew_to_who_changes_the_language(tmp_path: Path) -> None:
    app = opened(str(tmp_path / "none"))
    assert "is not a folder on this machine. Check the path. Until then this page shows" in app.error[0].value
    app.session_state["lang"] = "zh"
    assert "不是本机上的文件夹。请检查路径。在此之前，本页显示 story 模型。" in app.run().error[0].value
    assert [button.label for button in app.button] == ["重试"]


def test_a_model_that_left_and_came_back_is_the_same_to_every_cache(tmp_path: Path, tiny_folder: Path) -> None:
    engine, settings = Engine(1, 10**6), Settings()
    loaded = engine.models
    first = loaded.load(str(tiny_folder), settings)
    engine.trace(RunRef(ModelRef.of(first), first.encode(["the cat"]), first.standard))
    assert engine.traces.nbytes() > 0
    other = loaded.load(str(shutil.copytree(tiny_folder, tmp_path / "other")), settings)
    assert loaded.find(str(tiny_folder)) is None
    assert engine.traces.nbytes() == 0, "a trace that is kept would keep the model in memory"
    again = loaded.load(str(tiny_folder), settings)
    assert again is not first
    assert again.key == first.key != other.key


@pytest.fixture
def all_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a load collect garbage, as on a server (see tests/apptest.py)."""
    monkeypatch.setattr(loaded_models, "gc", gc)


@pytest.mark.usefixtures("all_garbage")
@pytest.mark.parametrize("circle", [False, True])
def test_the_weights_of_a_model_that_leaves_leave_too(tiny_folder: Path, circle: bool) -> None:
    loaded = models.LoadedModels(1)
    network = loaded.load(str(tiny_folder), Settings()).network
    weight = ref(network.token_embedding.weight)
    if circle:
        network.register_forward_hook(lambda *_, network=network: None)
    del network
    loaded.load("story", Settings())
    assert weight() is None


@pytest.mark.usefixtures("all_garbage")
def test_a_session_that_is_there_while_a_model_loads_is_freed_once_it_is_over(tiny_folder: Path) -> None:
    class Session:
        def __init__(self) -> None:
            self.itself = self  # a cycle, as in Streamlit's sessions: only garbage collection frees it

    loaded, session = models.LoadedModels(2), Session()
    loaded.load("story", Settings())
    there = ref(session)
    del session
    loaded.load(str(tiny_folder), Settings())
    assert there() is None


def test_files_that_change_make_another_model(tmp_path: Path, tiny_folder: Path) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "mine")
    loaded = models.LoadedModels(2)
    first = loaded.load(str(folder), Settings())
    (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text() + "\n")
    assert loaded.find(str(folder)) is None
    assert loaded.load(str(folder), Settings()).key != first.key


class TestDownloads:
    @pytest.fixture
    def fetches(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Return the names of models that are fetched, from a Hub that has GPT-2 to download."""
        fetched: list[str] = []
        of_others = catalog.fetch

        def fetch(name: str, progress: hub.Progress | None, settings: Settings) -> Path:
            if name != "gpt2":
                return of_others(name, progress, settings)
            fetched.append(name)
            assert progress is not None
            progress("model.safetensors", 5_000_000, 10_000_000)
            raise OSError("the test has no files")

        monkeypatch.setattr(catalog, "download_size", lambda name, *_: MEGABYTES * 10**6 if name == "gpt2" else 0)
        monkeypatch.setattr(catalog, "fetch", fetch)
        return fetched

    def test_nothing_comes_before_the_reader_agrees_to_its_size(self, fetches: list[str]) -> None:
        app = opened("gpt2").run().run()
        assert not fetches
        assert "548 MB would be downloaded" in app.info[0].value
        assert app.markdown[-1].value == "story"
        app.button(key="download").click().run()
        assert fetches == ["gpt2"]
        assert "the test has no files" in app.error[0].value
        assert "stop_download" not in {one.key for one in app.button}, "nothing is left to stop"

    def test_nor_for_a_page_that_has_no_other_model_to_show(self, fetches: list[str]) -> None:
        def another_page() -> None:
            from ui.sidebar import models

            models.get("gpt2")
            raise AssertionError("it went on without a model")

        app = AppTest.from_function(another_page, default_timeout=30).run()
        assert not fetches
        assert "548 MB would be downloaded" in app.info[0].value
        app.button(key="download_another").click().run()
        assert fetches == ["gpt2"]

    def test_a_load_that_fails_leaves_nothing_to_stop(self, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        opened("story")

        def load(_name: str, _settings: Settings, show: Callable[[str], None]) -> None:
            show("")
            raise OSError("the test has no files")

        monkeypatch.setattr(models.loaded(), "load", load)
        app = opened(str(tiny_folder))
        assert "the test has no files" in app.error[0].value
        assert not {one.key for one in app.button if one.key and one.key.startswith("stop")}
        assert not app.caption, "no other model is loading"

    def test_one_at_a_time(self, fetches: list[str]) -> None:
        app = opened("gpt2")
        with models._one_download():
            app.button(key="download").click().run()
        assert not fetches
        assert "Another download is in progress" in app.error[0].value

    def test_a_disk_too_full_is_said(self, fetches: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        usage = shutil.disk_usage("/")._replace(free=10**9 + 100)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
        (error,) = opened("gpt2").error
        assert "0.5 GB to download, and the disk has 1.0 GB free" in error.value
        assert not fetches


class TestServedToOthers:
    @pytest.mark.parametrize("address", ["0.0.0.0", None])
    def test_folders_and_hub_ids_are_off_and_all_answers_are_alike(
        self, address: str | None, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(st, "get_option", lambda _: address)
        answers = set()
        for name in (str(tiny_folder), str(tmp_path / "none"), "some/model"):
            (error,) = opened(name).error
            answers.add(error.value.replace(name, "").replace(models.escaped(name), ""))
        assert len(answers) == 1
        assert "is not available here" in answers.pop()

    @pytest.mark.parametrize(
        ("shared", "headers"),
        [
            ("true", {}),
            ("", {"Host": "unmask.example.org"}),
            *(("", {"Host": "127.0.0.1:8501", name: "203.0.113.7"}) for name in models.FORWARDED),
            ("", {"Host": "127.0.0.1:8501", "CF-Connecting-IP": "203.0.113.7"}),
        ],
    )
    def test_so_they_are_behind_a_proxy_of_the_same_machine(
        self, shared: str, headers: dict[str, str], tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(type(st.context), "headers", headers)
        monkeypatch.setenv("UNMASK_SHARED", shared)
        (error,) = opened(str(tiny_folder)).error
        assert "is not available here" in error.value

    @pytest.mark.parametrize(
        ("address", "host"), [("127.0.0.1", "localhost:80"), ("localhost", "[::1]:8501"), ("::1", "127.0.0.1:8501")]
    )
    def test_to_this_machine_alone_they_are_on(
        self, address: str, host: str, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(st, "get_option", lambda _: address)
        monkeypatch.setattr(type(st.context), "headers", {"Host": host})
        assert opened(str(tiny_folder)).markdown[-1].value == str(tiny_folder)
