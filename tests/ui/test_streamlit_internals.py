"""Undocumented parts of Streamlit that the app uses: they still exist, and still do what the app uses them for.

The selectors are tested in a browser: tests/browser/test_internals.py.
"""

import inspect
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import streamlit as st
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.runtime.app_session import AppSession, AppSessionState
from streamlit.runtime.media_file_storage import MediaFileKind
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage
from streamlit.runtime.scriptrunner import RerunData, StopException, script_runner
from streamlit.runtime.scriptrunner_utils.script_requests import ScriptRequests, ScriptRequestType
from streamlit.runtime.state.common import WidgetMetadata
from streamlit.runtime.state.safe_session_state import SafeSessionState
from streamlit.runtime.state.session_state import SessionState, WStates
from streamlit.testing.v1 import AppTest

from ui import page as page_set_up
from ui.streamlit_internals import files, messages, selectors, session

VALUES: dict[str, Any] = {
    "bool_value": True,
    "string_value": "zzz",
    "int_value": -3,
    "double_value": float("nan"),
    "double_array_value": [1.0],
    "int_array_value": [7, -7],
    "string_array_value": ["zzz"],
    "json_value": "[1",
    "bytes_value": b"\x00",
    "none": None,
}


def page() -> None:
    import streamlit as st

    from ui.streamlit_internals import session

    session.check_widget_values()

    st.text_area("Text", "a text", key="text").strip()
    st.slider("Part", 0, 9, (2, 5), key="part")
    st.toggle("On", True, key="on")
    st.segmented_control("One", ["a", "b"], default="b", key="one", required=True)
    st.session_state.setdefault("bound", "b")  # as in ui/widgets.py: with nothing sent, the widget's own value is None
    st.segmented_control("Bound", ["a", "b"], key="bound", required=True)
    st.selectbox("Number", [1, 2], key="number")
    st.multiselect("Some", ["a", "b"], ["b"], key="some")
    st.number_input("Seed", 0, 9, 7, key="seed")


@pytest.mark.parametrize("field", VALUES)
@pytest.mark.parametrize("again", [False, True], ids=["first run", "later"])
def test_a_value_of_another_type_counts_as_not_sent(field: str, again: bool) -> None:
    def opened() -> AppTest:
        return AppTest.from_function(page)

    app = opened().run()
    widgets = {key: next(one for one in app if getattr(one, "key", None) == key) for key in KEPT}
    states = WidgetStates()
    for key, widget in widgets.items():
        if field not in OWN[key]:
            state = states.widgets.add(id=widget.id)
            if field == "none":
                continue
            if field.endswith("array_value"):
                getattr(state, field).data.extend(VALUES[field])
            else:
                setattr(state, field, VALUES[field])
    app = (app if again else opened())._run(states)
    assert not app.exception, broken("WStates.set_widget_from_proto and WStates.__getitem__")
    assert {key: app.session_state[key] for key in KEPT if field not in OWN[key]} == {
        key: value for key, value in KEPT.items() if field not in OWN[key]
    }


@pytest.mark.parametrize(
    ("field", "sent", "shown"), [("int_value", 4, 4), ("double_value", 4.0, 4), ("int_value", 10, 7)]
)
def test_a_number_field_takes_both_types_of_number_within_its_bounds(field: str, sent: float, shown: int) -> None:
    app = AppTest.from_function(page).run()
    states = WidgetStates()
    setattr(states.widgets.add(id=app.number_input(key="seed").id), field, sent)
    app = app._run(states)
    assert not app.exception
    assert app.session_state["seed"] == shown


@pytest.mark.parametrize("again", [False, True], ids=["first run", "later"])
@pytest.mark.parametrize("sent", [[], ["a", "b"]])
@pytest.mark.parametrize("row", ["one", "bound"])
def test_of_a_row_of_which_one_is_chosen_one_always_is(sent: list[str], row: str, again: bool) -> None:
    app = AppTest.from_function(page).run()
    states = WidgetStates()
    states.widgets.add(id=app.button_group(key=row).id).string_array_value.data.extend(sent)
    app = (app if again else AppTest.from_function(page))._run(states)
    assert not app.exception
    assert app.session_state[row] == "b"


def test_a_value_that_is_nested_too_deep_to_be_read_counts_as_not_sent() -> None:
    session.check_widget_values()
    states, read = WStates(), lambda sent: json.loads(sent or "[]")
    states.set_widget_metadata(WidgetMetadata("graph", read, json.dumps, "json_value"))
    states.set_widget_from_proto(WidgetState(id="graph", json_value="[" * 10_000))
    assert states["graph"] == []


def test_a_widget_without_a_choice_keeps_its_type_in_runs_of_fragments() -> None:
    """Runs of fragments do not register the widgets elsewhere on the page again."""
    session.check_widget_values()
    states = WStates()
    states.set_widget_metadata(
        WidgetMetadata("box", lambda sent: sent, str, "string_value", formatted_options=["a", "b"])
    )
    states.set_widget_from_proto(WidgetState(id="box"))
    assert states["box"] is None
    for sent, read in (("b", "b"), ("zzz", "b"), ("a", "a")):
        states.set_widget_from_proto(WidgetState(id="box", string_value=sent))
        assert states["box"] == read


KEPT = {"text": "a text", "part": (2, 5), "on": True, "one": "b", "bound": "b", "number": 1, "some": ["b"], "seed": 7}
OWN = {
    "text": ("string_value",),
    "part": ("double_array_value",),
    "on": ("bool_value",),
    "one": ("string_array_value",),
    "bound": ("string_array_value",),
    "number": (),  # none of VALUES is the name of an option
    "some": (),
    "seed": (),  # none of VALUES is a number from 0 to 9
}


def broken(part: str) -> str:
    return f"streamlit {st.__version__} has changed a part that ui/streamlit_internals relies on: {part}"


def test_every_page_checks_what_a_browser_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(session, "check_widget_values", lambda: calls.append(True))
    AppTest.from_file(Path(page_set_up.__file__).parents[1] / "pages" / "lessons.py").run(timeout=60)
    assert calls


def test_a_click_in_a_fragment_that_cannot_run_at_once_runs_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    fragments: list[str] = []
    monkeypatch.setattr(AppSession, "request_rerun", lambda _, state: fragments.append(state and state.fragment_id))
    messages.rerun_page_for_late_clicks.__wrapped__()
    idle, busy = AppSessionState.APP_NOT_RUNNING, AppSessionState.APP_IS_RUNNING
    for running, state in (
        (idle, ClientState(fragment_id="known")),
        (busy, ClientState(fragment_id="known")),
        (idle, ClientState(fragment_id="lost")),
        (busy, ClientState(fragment_id="lost", is_auto_rerun=True)),
        (busy, None),
    ):
        idle_or_busy: Any = SimpleNamespace(has_fragment=lambda name: name == "known", _state=running)
        AppSession.request_rerun(idle_or_busy, state)
    assert fragments == ["known", "", "", "lost", None]
    parameters = inspect.signature(AppSession.has_fragment).parameters
    assert list(parameters) == ["self", "fragment_id"], broken("AppSession.has_fragment")
    assert "self._state = AppSessionState.APP_IS_RUNNING" in inspect.getsource(AppSession), broken("AppSession._state")


def test_a_text_of_a_run_that_another_page_ends_comes_with_that_page(monkeypatch: pytest.MonkeyPatch) -> None:
    values: list[dict[str, str]] = []
    take = lambda _, state: values.append({one.id: one.string_value for one in state.widget_states.widgets})  # noqa: E731
    monkeypatch.setattr(AppSession, "request_rerun", take)
    messages.preserve_text_on_page_change.__wrapped__()

    class Session:
        _scriptrunner: object | None = None

    def send(one: Any, page: str, busy: bool, **texts: str) -> dict[str, str]:
        one._scriptrunner = one if busy else None
        states = [WidgetState(id=name, string_value=text) for name, text in texts.items()]
        state = ClientState(page_script_hash=page, widget_states=WidgetStates(widgets=states))
        AppSession.request_rerun(one, state)
        return values[-1]

    one, other = Session(), Session()
    assert send(one, "first", False, text="old", target="kept") == {"text": "old", "target": "kept"}
    assert send(one, "first", False, text="new", target="kept") == {"text": "new", "target": "kept"}
    assert send(other, "second", True) == {}
    assert send(one, "second", True) == {"text": "new"}
    assert send(one, "third", True) == {"text": "new"}, "the second was not run either"
    assert send(one, "first", False) == {}, "it was read"
    send(one, "first", False, text="older")
    send(one, "second", True, second_text="newer")
    assert list(send(one, "third", True).items()) == [("second_text", "newer"), ("text", "older")], "the last one first"
    send(one, "first", False, text="newer")
    assert send(one, "second", True, text="its own") == {"text": "its own"}
    AppSession.request_rerun(one, ClientState(is_auto_rerun=True))  # type: ignore[arg-type]
    assert values[-1] == {}
    assert "self._scriptrunner = None" in inspect.getsource(AppSession), broken("AppSession._scriptrunner")


def test_a_click_whose_callback_has_not_begun_comes_with_the_next_message(monkeypatch: pytest.MonkeyPatch) -> None:
    ids: list[list[str]] = []
    take = lambda _, state: ids.append([one.id for one in state.widget_states.widgets])  # noqa: E731
    monkeypatch.setattr(AppSession, "request_rerun", take)
    done: list[str] = []

    def call(state: Any, sent: WidgetStates, *, within: Any = None) -> None:
        if within:
            within()
        state["asked"] = True  # where Streamlit would end a callback
        done.extend(one.id for one in sent.widgets if one.trigger_value)

    monkeypatch.setattr(SafeSessionState, "on_script_will_rerun", call)
    messages.preserve_interrupted_clicks.__wrapped__()

    class Runner:
        def __init__(self, *clicks: str) -> None:
            states = [WidgetState(id="text", string_value="a"), WidgetState(id="unclicked", trigger_value=False)]
            states += [WidgetState(id=name, trigger_value=True) for name in clicks]
            self._requests, self.states = ScriptRequests(), WidgetStates(widgets=states)
            self._requests.request_rerun(RerunData(widget_states=self.states))
            self.request_stop = self._requests.request_stop
            self.safe = SafeSessionState(SessionState(), self.may_end)

        def may_end(self) -> None:
            if self._requests._state is ScriptRequestType.STOP:
                raise StopException

        def run(self, **others: Any) -> None:
            context = SimpleNamespace(script_requests=self._requests, session_id="of both")
            monkeypatch.setattr(messages, "get_script_run_ctx", lambda: context)
            assert self._requests.on_scriptrunner_ready().type is ScriptRequestType.RERUN
            self.safe.on_script_will_rerun(self.states, **others)

    def sent_while(runner: Any, **fields: Any) -> list[str]:
        states = WidgetStates(widgets=[WidgetState(id="other", trigger_value=True)])
        AppSession.request_rerun(
            SimpleNamespace(_scriptrunner=runner),  # type: ignore[arg-type]
            ClientState(widget_states=states, **fields),
        )
        return ids[-1]

    late = Runner("dismissed")
    assert sent_while(late, fragment_id="a clock's", is_auto_rerun=True) == ["other"]
    late._requests.on_scriptrunner_ready()
    assert sent_while(late) == ["other", "dismissed"]
    with pytest.raises(StopException):
        late.safe.on_script_will_rerun(late.states)
    assert sent_while(Runner("other")) == ["other"]
    assert sent_while(Runner("in a fragment"), fragment_id="known") == ["other", "in a fragment"]
    assert sent_while(None) == ["other"]
    assert done == []
    values = ['[{"event": "query", "value": 5}]', '[{"event": "pins", "value": 7}]', "[", "7"]
    for later in values[1:]:
        first, second = (
            WidgetStates(widgets=[WidgetState(id="part", json_trigger_value=one)]) for one in (values[0], later)
        )
        waiting = Runner()
        waiting._requests.request_rerun(RerunData(widget_states=first))
        sent = ClientState(widget_states=second)
        AppSession.request_rerun(SimpleNamespace(_scriptrunner=waiting), sent)  # type: ignore[arg-type]
        (both,) = sent.widget_states.widgets
        assert both.json_trigger_value == (f"{values[0][:-1]}, {later[1:]}" if later == values[1] else later)
    begun = Runner("next")
    begun.run(within=lambda: sent_while(begun))
    assert ids[-1] == ["other"], "it would be clicked twice"
    assert done == ["next"], "the callback goes on to its end"
    with pytest.raises(StopException):
        begun.safe["asked"] = True
    parts = {AppSession: "self._scriptrunner.request_stop()", ScriptRequests: "self._rerun_data"}
    for one, part in {**parts, SafeSessionState: "self._yield_callback()"}.items():
        assert part in inspect.getsource(one), broken(f"{one.__name__}: {part}")
    assert "self._requests" in inspect.getsource(script_runner.ScriptRunner), broken("ScriptRunner._requests")


def test_the_methods_that_are_replaced_take_what_ours_take() -> None:
    from streamlit.runtime.state.session_state import WStates

    part = broken("WStates.set_widget_from_proto and WStates.__getitem__")
    assert len(inspect.signature(WStates.set_widget_from_proto).parameters) == 2, part
    assert len(inspect.signature(WStates.__getitem__).parameters) == 2, part


def test_the_order_of_the_pages_is_read_from_a_name_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_runner, "page_sort_key", inspect.unwrap(script_runner.page_sort_key))
    messages.cache_page_order.__wrapped__()
    key = script_runner.page_sort_key(Path("pages/2_padding.py"))
    assert key == (2.0, "padding"), broken("script_runner.page_sort_key")
    assert script_runner.page_sort_key(Path("pages/2_padding.py")) is key


def test_large_downloads_that_differ_in_one_byte_are_different_files() -> None:
    """Each is a mask of 1,024 tokens, the context of GPT-2, as NPY: more than 1 MiB."""
    storage, added = MemoryMediaFileStorage("/media"), list[tuple[str, bytes]]()
    for row in (0, 100, 101, 300, 700, 1023):
        mask, file = np.ones((1024, 1024), bool), io.BytesIO()
        mask[row, 5] = False
        np.save(file, mask)
        data = file.getvalue()
        added.append((storage.load_and_get_id(data, "application/x", MediaFileKind.DOWNLOADABLE, "mask.npy"), data))
    right = [storage.get_file(name).content == data for name, data in added]
    assert all(right), broken("memory_media_file_storage._PARTIAL_HASH_THRESHOLD")


@pytest.mark.parametrize("script", selectors.EARLY_SCRIPTS)
def test_each_script_that_is_fetched_early_is_one_of_streamlit_s(script: str) -> None:
    found = [name for name in selectors.script_files() if Path(name).name.startswith(f"{script}.")]
    assert len(found) == 1, broken(f"static/js/{script}.<hash>.js")
    assert (Path(st.__file__).parent / "static" / found[0]).is_file()
    assert found[0] in page_set_up._script("en")


def widgets_page() -> None:
    import streamlit as st

    from ui.streamlit_internals import session

    st.session_state.told = session.session_id()
    st.session_state.sent = [(session.key_of(one), one.string_value) for one in session.sent_widgets()]
    st.text_input("Text", key="text_0", on_change=lambda: st.session_state.update(changed=True))


def test_a_session_is_known_by_its_name_and_its_widgets_by_their_keys() -> None:
    assert session.session_id() is None, broken("get_script_run_ctx")
    app = AppTest.from_function(widgets_page).run()
    assert isinstance(app.session_state["told"], str), broken("ScriptRunContext.session_id")
    assert app.session_state["told"]
    app.text_input(key="text_0").set_value("a text").run()
    part = broken("ScriptRunContext.session_state.get_widget_states, user_key_from_element_id")
    assert app.session_state["sent"] == [("text_0", "a text")], part
    assert session.key_of(WidgetState(id="$$ID-0-None")) == "", broken("user_key_from_element_id")


def test_a_page_is_run_again_with_what_the_browser_sent() -> None:
    """The parts that a rerun uses; tests/browser/test_restart.py shows that it works."""
    from streamlit.runtime.scriptrunner import RerunData, ScriptRunner, get_script_run_ctx  # noqa: F401
    from streamlit.runtime.scriptrunner_utils.script_requests import ScriptRequests
    from streamlit.runtime.scriptrunner_utils.script_run_context import ScriptRunContext

    assert hasattr(ScriptRequests, "request_rerun"), broken("ScriptRequests.request_rerun")
    fields = {"query_string", "widget_states", "page_script_hash", "context_info"}
    assert fields <= set(RerunData.__dataclass_fields__), broken("the fields of RerunData")
    used = (fields - {"widget_states", "page_script_hash"}) | {"script_requests", "session_state"}
    assert used <= set(ScriptRunContext.__dataclass_fields__), broken("the fields of ScriptRunContext")
    assert hasattr(ScriptRunContext, "page_script_hash"), broken("ScriptRunContext.page_script_hash")


def test_uploads_need_the_cookie_that_we_look_for() -> None:
    from streamlit.web.server.starlette.starlette_server_config import XSRF_COOKIE_NAME

    assert XSRF_COOKIE_NAME == files.XSRF_COOKIE, broken("the cookie _streamlit_xsrf")


def test_a_lost_upload_is_no_file_and_a_whole_one_is() -> None:
    """ui/widgets.py tells them apart by io.BytesIO, which st.file_uploader's documentation promises."""
    from io import BytesIO

    from streamlit.runtime.uploaded_file_manager import DeletedFile, UploadedFile

    assert issubclass(UploadedFile, BytesIO), broken("UploadedFile")
    assert not issubclass(DeletedFile, BytesIO), broken("DeletedFile")


@pytest.mark.parametrize("option", ["runner.postScriptGC", "logger.enableRich"])
def test_each_option_that_is_set_and_not_documented_is_there(option: str) -> None:
    assert isinstance(st.get_option(option), bool), broken(f"the hidden option {option}")


def test_css_names_a_selector_of_the_list() -> None:
    assert selectors.css("$caption:not(:hover) { }") == '[data-testid="stCaptionContainer"]:not(:hover) { }'
    with pytest.raises(KeyError):
        selectors.css("$caption $captions { }")
