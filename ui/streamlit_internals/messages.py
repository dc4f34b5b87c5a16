"""Patches of how Streamlit receives and answers the browser's messages, so that none is lost on a slow connection."""

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import streamlit as st
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.runtime.app_session import AppSession, AppSessionState
from streamlit.runtime.forward_msg_cache import create_reference_msg
from streamlit.runtime.scriptrunner import get_script_run_ctx, script_runner
from streamlit.runtime.scriptrunner_utils.script_requests import ScriptRequests
from streamlit.runtime.state.safe_session_state import SafeSessionState
from streamlit.runtime.state.session_state import SessionState

from ui.streamlit_internals.session import is_trigger


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
            for click in filter(is_trigger, clicks):
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
def lock_session_state() -> None:
    """Patch Streamlit so that no two runs of a session use its state at the same time.

    A run that is told to stop goes on until it next uses the state, beside the run that replaces it. Each run has a
    lock of its own around one state: if one changes what the other iterates over, that one ends with Streamlit's error.
    Relies on: the method `SafeSessionState.__init__`, which is replaced, and `SafeSessionState._lock`.
    """
    create, choosing = SafeSessionState.__init__, Lock()
    locks = WeakValueDictionary[int, Any]()  # by id() of the state, which lives as long as whoever has its lock

    def create_with_lock(self: SafeSessionState, state: SessionState, yield_callback: Callable[[], None]) -> None:
        create(self, state, yield_callback)
        with choosing:
            object.__setattr__(self, "_lock", locks.setdefault(id(state), self._lock))

    SafeSessionState.__init__ = create_with_lock  # type: ignore[method-assign]  # Streamlit has no hook for it


@cache
def send_what_the_browser_lacks() -> None:
    """Patch Streamlit to refer to an earlier message only if the browser still has it when the reference arrives.

    A browser removes a message once two runs have ended without it. Streamlit refers to what the browser had when it
    asked for the run; if answers that were under way then have removed it ("Cached ForwardMsg MISS"), the page is dead.
    Relies on: the methods `AppSession.request_rerun`, `flush_browser_queue` and `clear_session_caches`, which are
    replaced; `ClientState.cached_message_hashes`, `create_reference_msg` and the option global.maxCachedMessageAge.
    """
    request, flush, disconnect = (
        AppSession.request_rerun,
        AppSession.flush_browser_queue,
        AppSession.clear_session_caches,
    )
    caches = WeakKeyDictionary[AppSession, _BrowserCache]()

    def request_whole_messages(self: AppSession, client_state: ClientState | None) -> None:
        if client_state:
            caches.setdefault(self, _BrowserCache()).report(client_state.cached_message_hashes)
            client_state.ClearField("cached_message_hashes")
        request(self, client_state)

    def flush_references(self: AppSession) -> list[ForwardMsg]:
        cached = caches.setdefault(self, _BrowserCache())
        return [cached.shorten(message) for message in flush(self)]

    def forget_messages(self: AppSession) -> None:
        caches.pop(self, None)  # what was sent last may not have arrived
        disconnect(self)

    AppSession.request_rerun = request_whole_messages  # type: ignore[method-assign]  # Streamlit has no hook for these
    AppSession.flush_browser_queue = flush_references  # type: ignore[method-assign]
    AppSession.clear_session_caches = forget_messages  # type: ignore[method-assign]


class _BrowserCache:
    """The messages that a browser has cached: those that it has reported, unless too many runs have ended since."""

    def __init__(self) -> None:
        self._ages: dict[str, int] = {}  # ends of runs since each message was last sent or referred to, by hash
        self._reported: set[str] = set()

    def report(self, hashes: Iterable[str]) -> None:
        """Note the messages that the browser had when it sent a request."""
        self._reported = self._ages.keys() & set(hashes)

    def shorten(self, message: ForwardMsg) -> ForwardMsg:
        """Return what to send next: this message, or a reference to it if the browser is certain to have it."""
        if message.WhichOneof("type") == "script_finished":
            limit = st.get_option("global.maxCachedMessageAge")
            self._ages = {name: age + 1 for name, age in self._ages.items() if age < limit}
        if not message.metadata.cacheable:
            return message
        is_cached = message.hash in self._reported & self._ages.keys()
        self._ages[message.hash] = 0
        return create_reference_msg(message) if is_cached else message


@cache
def cache_page_order() -> None:
    """Patch Streamlit to parse a page's position from its file name once, not on every run of every page.

    Relies on: the function `script_runner.page_sort_key`, which is replaced.
    """
    script_runner.page_sort_key = cache(script_runner.page_sort_key)  # Streamlit has no hook for it


def _prepend_trigger_values(first: WidgetState, second: WidgetState) -> None:
    """Prepend the trigger values of a component's first message to those of its second."""
    with suppress(ValueError, RecursionError):  # a browser may send anything
        values = [json.loads(sent.json_trigger_value) for sent in (first, second)]
        if all(isinstance(value, list) for value in values):
            second.json_trigger_value = json.dumps(values[0] + values[1])
