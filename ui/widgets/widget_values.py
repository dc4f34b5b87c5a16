"""What a browser says that a widget holds is of its type and, of a select box, an option; else it counts as not sent.

Streamlit takes a widget's value from whichever field a message has it in. One of another type, or one that the widget
cannot read, would end every run of that session with Streamlit's own error page.
"""

from typing import Any

from streamlit.proto.WidgetStates_pb2 import WidgetState
from streamlit.runtime.state.session_state import Serialized, Value, WStates

_take, _read = WStates.set_widget_from_proto, WStates.__getitem__


def _is_of_its_type(states: WStates, sent: WidgetState) -> bool:
    widget, kind = states.widget_metadata.get(sent.id), sent.WhichOneof("value")
    if widget is None or kind is None:
        return True
    options = widget.formatted_options if kind == "string_value" else None  # of a select box
    return kind == widget.value_type and (options is None or sent.string_value in options)


def _take_checked(self: WStates, widget_state: WidgetState) -> None:
    if _is_of_its_type(self, widget_state):
        _take(self, widget_state)


def _read_checked(states: WStates, key: str) -> Any:
    state, widget = states.states.get(key), states.widget_metadata.get(key)
    if not isinstance(state, Serialized) or widget is None:
        return _read(states, key)
    try:
        if _is_of_its_type(states, state.value):  # not known when it came, of a session that has just begun
            return _read(states, key)
    except (ValueError, TypeError, LookupError, OverflowError, AttributeError):
        pass  # nothing that this widget sends
    states.states[key] = Value(widget.deserializer(None))
    return _read(states, key)


WStates.set_widget_from_proto = _take_checked  # type: ignore[method-assign]  # Streamlit has no hook for either
WStates.__getitem__ = _read_checked  # type: ignore[method-assign]
