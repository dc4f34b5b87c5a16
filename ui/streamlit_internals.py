"""All uses of parts of Streamlit that are not in its documented interface. No other file may use such a part.

Each is checked by tests/ui/test_streamlit_internals.py or tests/ui/test_limits_of_a_session.py, and the selectors by
tests/browser/test_internals.py; `make upgrade-check` runs them with the newest Streamlit. Checked with Streamlit
1.67.0.
"""

import asyncio
import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from string import Template
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import streamlit as st
from starlette.exceptions import HTTPException
from streamlit import runtime
from streamlit.elements.lib.utils import user_key_from_element_id
from streamlit.proto.BackMsg_pb2 import BackendOperationRequest
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import BackendOperationResponse
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.runtime.app_session import AppSession, AppSessionState
from streamlit.runtime.backend_operation_handler import DeferredFileHandler
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.scriptrunner import RerunData, get_script_run_ctx, script_runner
from streamlit.runtime.scriptrunner_utils.script_requests import ScriptRequests
from streamlit.runtime.state.safe_session_state import SafeSessionState
from streamlit.runtime.state.session_state import Serialized, Value, WStates
from streamlit.runtime.uploaded_file_manager import UploadedFileRec

# Relies on: the data-testid attributes and class names of Streamlit's and Plotly's elements, for which neither has a
# documented selector. A `key=` gives a documented one, st-key-…, wherever it reaches.
SELECTORS = {
    "block_container": ".block-container",
    "button_group": '[data-testid="stButtonGroup"]',
    "caption": '[data-testid="stCaptionContainer"]',
    "checkbox": '[data-testid="stCheckbox"]',
    "code": '[data-testid="stCode"]',
    "column": '[data-testid="stColumn"]',
    "element": '[data-testid="stElementContainer"]',
    "empty": ".stEmpty",
    "expand_sidebar": '[data-testid="stExpandSidebarButton"]',
    "header": '[data-testid="stHeader"]',
    "html": ".stHtml",
    "layout_wrapper": '[data-testid="stLayoutWrapper"]',
    "main": '[data-testid="stMain"]',
    "markdown": '[data-testid="stMarkdownContainer"]',
    "multiselect": '[data-testid="stMultiSelect"]',
    "number_input": '[data-testid="stNumberInputContainer"]',
    "page_link": ".stPageLink",
    "page_link_anchor": '[data-testid="stPageLink-NavLink"]',
    "plot": ".js-plotly-plot",
    "plot_buttons": ".modebar",
    "plot_shapes": ".shapelayer",
    "primary_button": '[data-testid="stBaseButton-primary"]',
    "sidebar": '[data-testid="stSidebar"]',
    "sidebar_content": '[data-testid="stSidebarUserContent"]',
    "sidebar_header": '[data-testid="stSidebarHeader"]',
    "text_input": '[data-testid="stTextInputRootElement"]',
    "vertical_block": ".stVerticalBlock",
    "widget_label": '[data-testid="stWidgetLabel"]',
}
# Relies on: the names of Streamlit's frontend scripts, "<part>.<hash>.js" in its static/static/js/.
EARLY_SCRIPTS = ("PlotlyChart", "BidiComponent", "Selectbox", "TextArea", "Checkbox")
# Relies on: the name of the cookie without which Streamlit refuses uploads.
XSRF_COOKIE = "_streamlit_xsrf"
MAX_UPLOADS = 4  # per session: a page has at most two uploaders, each for one file, which a new one replaces
MAX_DOWNLOADS = 20  # per session, being made or waiting
MAX_MADE = 4  # downloads at a time, over all sessions: fewer than asyncio.to_thread has threads
download_of = ContextVar[str]("download_of", default="")  # the session whose download is being made


def css(text: str) -> str:
    """Replace $name by SELECTORS[name] in CSS, or in HTML or JavaScript with selectors. Raises KeyError if unknown."""
    return Template(text).substitute(SELECTORS)


@cache
def script_files() -> list[str]:
    """Return the files of EARLY_SCRIPTS, relative to the page's URL; a part that is not found has none."""
    folder = Path(st.__file__).parent / "static" / "static" / "js"
    return [f"static/js/{path.name}" for part in EARLY_SCRIPTS for path in sorted(folder.glob(f"{part}.*.js"))]


def session_id() -> str | None:
    """Return the session whose script runs in this thread; None in other threads.

    Relies on: `get_script_run_ctx` and `ScriptRunContext.session_id`.
    """
    context = get_script_run_ctx(suppress_warning=True)
    return None if context is None else context.session_id


def sent_widgets() -> list[WidgetState]:
    """Return the states of all widgets as sent by the browser, including those of widgets that are not drawn yet.

    Relies on: `ScriptRunContext.session_state.get_widget_states`.
    """
    context = get_script_run_ctx()
    return context.session_state.get_widget_states() if context else []


def is_clicked() -> bool:
    """Whether this run was requested by a button, or by a component with a trigger value."""
    return any(_is_trigger(one) for one in sent_widgets())


def key_of(widget: WidgetState) -> str:
    """Return the key= of a widget, or "" if it has none.

    Relies on: `streamlit.elements.lib.utils.user_key_from_element_id`.
    """
    return user_key_from_element_id(widget.id) or ""


def rerun_with(widgets: Sequence[WidgetState]) -> None:
    """Rerun the page as if the browser had sent these states now; the callbacks of changed widgets are called.

    Relies on: `ScriptRunContext.script_requests.request_rerun` and the fields of `RerunData`.
    """
    context = get_script_run_ctx()
    if context and context.script_requests:
        context.script_requests.request_rerun(
            RerunData(
                query_string=context.query_string,
                widget_states=WidgetStates(widgets=widgets),
                page_script_hash=context.page_script_hash,
                cached_message_hashes=context.cached_message_hashes,
                context_info=context.context_info,
            )
        )


@cache
def check_widget_values() -> None:
    """Patch Streamlit to ignore a widget's value if it has the wrong type, or is no option of its select box.

    Streamlit takes a widget's value from whichever field of a message is set. A value of another type, or one that the
    widget cannot read, would end every run of that session with Streamlit's own error page. Each kind of ignored value
    and widget is logged once: if Streamlit's own frontend sends it, the control has no effect.
    Relies on: the methods `WStates.set_widget_from_proto` and `WStates.__getitem__`, which are replaced, and
    `WidgetMetadata.value_type`, `formatted_options`, `max_array_length` and `deserializer`.
    """
    take, read = WStates.set_widget_from_proto, WStates.__getitem__

    def take_checked(self: WStates, widget_state: WidgetState) -> None:
        if _is_of_its_type(self, widget_state):
            take(self, widget_state)
        else:
            _log_ignored(widget_state.WhichOneof("value"), self.widget_metadata[widget_state.id].value_type)

    def read_checked(states: WStates, key: str) -> Any:
        state, widget = states.states.get(key), states.widget_metadata.get(key)
        if not isinstance(state, Serialized) or widget is None:
            return read(states, key)
        try:
            if _is_of_its_type(states, state.value):  # in a new session, the type was unknown when the value came
                value = read(states, key)
                states.widget_metadata[key] = widget  # undo: read() stores this value's type, None if nothing is chosen
                return value
        except (ValueError, TypeError, LookupError, OverflowError, AttributeError, RecursionError):
            pass  # a value that this widget cannot send
        _log_ignored(state.value.WhichOneof("value"), widget.value_type)
        states.states[key] = Value(widget.deserializer(None))
        return read(states, key)

    WStates.set_widget_from_proto = take_checked  # type: ignore[method-assign]  # Streamlit has no hook for either
    WStates.__getitem__ = read_checked  # type: ignore[method-assign]


@cache
def _log_ignored(sent: str | None, expected: str) -> None:
    logging.getLogger(__name__).warning("ignored %s of a widget with %s", sent, expected)  # not shown


@cache
def rerun_page_for_late_clicks() -> None:
    """Patch Streamlit to answer a late click in a fragment by a rerun of the whole page.

    A click is late if a script is running, which then ends, or if its session does not have the fragment, as after a
    restart. Streamlit would run the fragment after that script, or drop the click, and the page would not match the
    browser. Reruns by a fragment's timer (run_every) are not affected.
    Relies on: the method `AppSession.request_rerun`, which is replaced, `AppSession.has_fragment` and `_state`.
    """
    request = AppSession.request_rerun

    def request_now(self: AppSession, client_state: ClientState | None) -> None:
        if client_state and not client_state.is_auto_rerun:
            running = self._state == AppSessionState.APP_IS_RUNNING
            if running or not self.has_fragment(client_state.fragment_id):
                client_state.fragment_id = ""
        request(self, client_state)

    AppSession.request_rerun = request_now  # type: ignore[method-assign]  # Streamlit has no hook for it


@cache
def preserve_interrupted_clicks() -> None:
    """Patch Streamlit so that a click is not lost if another message follows before its callback has run.

    Streamlit ends the run of a message, wherever it is, when the next one comes, and a click is sent only once. Now the
    next message also carries the click, and a callback that has begun runs to its end. On a busy server, threads begin
    late.
    Relies on: the methods `AppSession.request_rerun` and `SafeSessionState.on_script_will_rerun`, which are replaced,
    `AppSession._scriptrunner`, `ScriptRunner._requests`, `ScriptRequests._rerun_data` and
    `SafeSessionState._yield_callback`.
    """
    request, call = AppSession.request_rerun, SafeSessionState.on_script_will_rerun
    deciding = Lock()
    begun = WeakKeyDictionary[ScriptRequests, list[WidgetStates]]()  # messages whose callbacks have begun, per thread
    calling = WeakValueDictionary[str, Lock]()  # by session id

    def request_with_clicks(self: AppSession, client_state: ClientState | None) -> None:
        if client_state and self._scriptrunner and not client_state.is_auto_rerun:
            with deciding:
                requests = self._scriptrunner._requests
                before = requests._rerun_data.widget_states
                read = any(one is before for one in begun.get(requests, []))
                clicks = [] if read or before is None else before.widgets
                if clicks:  # in a fragment's run, Streamlit would keep one message per component
                    client_state.fragment_id = ""
                if not client_state.fragment_id:
                    self._scriptrunner.request_stop()
            sent = {one.id: one for one in client_state.widget_states.widgets}
            for click in filter(_is_trigger, clicks):
                if click.id not in sent:
                    client_state.widget_states.widgets.append(click)
                elif click.json_trigger_value:  # a component's trigger values are a list
                    _prepend_trigger_values(click, sent[click.id])
        request(self, client_state)

    def call_to_the_end(self: SafeSessionState, states: WidgetStates | None, **others: Any) -> None:
        context = get_script_run_ctx()
        if context is None or context.script_requests is None or states is None:
            call(self, states, **others)
            return
        with deciding:
            one_at_a_time = calling.setdefault(context.session_id, Lock())
        with one_at_a_time:
            may_end = self._yield_callback
            with deciding:
                may_end()
                begun.setdefault(context.script_requests, []).append(states)
            object.__setattr__(self, "_yield_callback", lambda: None)
            try:
                call(self, states, **others)
            finally:
                object.__setattr__(self, "_yield_callback", may_end)

    AppSession.request_rerun = request_with_clicks  # type: ignore[method-assign]  # Streamlit has no hook for either
    SafeSessionState.on_script_will_rerun = call_to_the_end  # type: ignore[method-assign, assignment]


@cache
def preserve_text_on_page_change() -> None:
    """Patch Streamlit so that texts typed just before another page is opened are not lost.

    Streamlit's frontend sends a text when its field loses focus, then the page that was clicked, without the fields of
    the previous page. If the second message comes before the first was run, it now also carries the text.
    Relies on: the method `AppSession.request_rerun`, which is replaced, and `AppSession._scriptrunner`.
    """
    request = AppSession.request_rerun
    last = WeakKeyDictionary[AppSession, tuple[str, dict[str, WidgetState], dict[str, WidgetState]]]()

    def request_with_texts(self: AppSession, client_state: ClientState | None) -> None:
        if client_state and not client_state.is_auto_rerun:
            widgets, page = client_state.widget_states.widgets, client_state.page_script_hash
            sent = {one.id: one for one in widgets if one.WhichOneof("value") == "string_value"}
            page_before, before, typed = last.get(self, (page, {}, {}))
            typed = {} if self._scriptrunner is None else typed  # if no script is running, they were read
            now = {name: one for name, one in sent.items() if one != before.get(name)}
            typed = now | {name: one for name, one in typed.items() if name not in now}  # latest first
            if page != page_before:
                widgets.extend(one for name, one in typed.items() if name not in sent)
            last[self] = page, sent, typed
        request(self, client_state)

    AppSession.request_rerun = request_with_texts  # type: ignore[method-assign]  # Streamlit has no hook for it


@cache
def cache_page_order() -> None:
    """Patch Streamlit to parse a page's position from its file name once, not on every run of every page.

    Relies on: the function `script_runner.page_sort_key`, which is replaced.
    """
    script_runner.page_sort_key = cache(script_runner.page_sort_key)  # Streamlit has no hook for it


@cache
def limit_uploads() -> None:
    """Patch Streamlit to keep only a session's latest files, and none if the session ended during the upload.

    Streamlit keeps whatever is sent to its upload URL, whether or not the page has an uploader.
    Relies on: the method `MemoryUploadedFileManager.add_file`, which is replaced, `file_storage` and `remove_file`; and
    `Runtime.is_active_session`.
    """
    add = MemoryUploadedFileManager.add_file

    def add_to_few(self: MemoryUploadedFileManager, session_id: str, file: UploadedFileRec) -> None:
        if not runtime.get_instance().is_active_session(session_id):
            raise HTTPException(400)  # after the session's end, nothing would ever remove it
        add(self, session_id, file)
        for old in list(self.file_storage[session_id])[:-MAX_UPLOADS]:
            self.remove_file(session_id, old)

    MemoryUploadedFileManager.add_file = add_to_few  # type: ignore[method-assign]  # Streamlit has no hook for it


@cache
def serialize_downloads() -> None:
    """Patch Streamlit to make a session's downloads one after another, and none after its browser has left.

    Streamlit makes each in one of the few threads that all sessions share, first come, first served: the downloads of
    one session would block all others.
    Relies on: the method `DeferredFileHandler.handle`, which is replaced, its being called in a task of its own, and
    asyncio.to_thread in it; and `Runtime.is_active_session`.
    """
    handle = DeferredFileHandler.handle
    turns, any_turn = WeakValueDictionary[str, _Turn](), asyncio.Semaphore(MAX_MADE)  # per session; over all sessions

    async def handle_in_turn(
        self: DeferredFileHandler, request: BackendOperationRequest, session_id: str
    ) -> BackendOperationResponse:
        turn = turns.setdefault(session_id, _Turn())
        if turn.asked < MAX_DOWNLOADS:
            turn.asked += 1
            try:
                async with turn, any_turn:
                    if runtime.get_instance().is_active_session(session_id):
                        download_of.set(session_id)
                        return await handle(self, request, session_id)
            finally:
                turn.asked -= 1
        return BackendOperationResponse(request_id=request.request_id, error_msg="not made")  # not shown

    DeferredFileHandler.handle = handle_in_turn  # type: ignore[method-assign]  # Streamlit has no hook for it


class _Turn(asyncio.Lock):
    asked = 0


def _is_trigger(sent: WidgetState) -> bool:
    """Whether this is a click or a component's trigger value, which are sent only once, unlike other values."""
    kind = sent.WhichOneof("value") or ""
    return kind.endswith("trigger_value") and bool(getattr(sent, kind))


def _prepend_trigger_values(first: WidgetState, second: WidgetState) -> None:
    """Prepend the trigger values of a component's first message to those of its second."""
    with suppress(ValueError, RecursionError):  # a browser may send anything
        values = [json.loads(sent.json_trigger_value) for sent in (first, second)]
        if all(isinstance(value, list) for value in values):
            second.json_trigger_value = json.dumps(values[0] + values[1])


def _is_of_its_type(states: WStates, sent: WidgetState) -> bool:
    widget, kind = states.widget_metadata.get(sent.id), sent.WhichOneof("value")
    if widget is None:
        return True
    if kind is None:  # an emptied select box or field; a row of options always sends its choice as a list
        return widget.max_array_length != 1
    chosen = [sent.string_value] if kind == "string_value" else []
    if kind == "int_value" and widget.value_type == "double_value":  # a whole number in a number field
        return True
    if kind == "string_array_value" and widget.max_array_length == 1:
        if len(sent.string_array_value.data) != 1:
            return False  # a single-choice row: on Unmask's pages one option is always chosen
    elif kind == "string_array_value":  # for such a row, Streamlit itself maps options of another language
        chosen = list(sent.string_array_value.data)
    options = widget.formatted_options  # None if new options may be typed
    return kind == widget.value_type and (options is None or all(one in options for one in chosen))
