"""A session's name and what its browser sent: values of widgets, among them values that no browser sends."""

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

from streamlit.elements.lib.utils import user_key_from_element_id
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.runtime.scriptrunner import RerunData, get_script_run_ctx
from streamlit.runtime.state.session_state import Serialized, Value, WStates


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
    return any(is_trigger(one) for one in sent_widgets())


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
                context_info=context.context_info,
            )
        )


def is_trigger(sent: WidgetState) -> bool:
    """Whether this is a click or a component's trigger value, which are sent only once, unlike other values."""
    kind = sent.WhichOneof("value") or ""
    return kind.endswith("trigger_value") and bool(getattr(sent, kind))


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
