"""Widgets bound to a choice that the page sets by itself too: a click on a picture chooses the query of its select box.

With every message a browser says what all of its widgets show. One that has not heard the last answer, on a slow line
or of a busy server, says what they showed before; taken for the reader's, that would undo the click. So a widget has
another key whenever the page has set its choice, and what is said of the one before is nobody's.
"""

from collections.abc import Callable
from typing import Any

import streamlit as st


def bound(choice: str, value: Any, take: Callable[[Any], object] | None = None) -> dict[str, Any]:
    """What a widget is drawn with that shows value in this run, beside its words and options: st.slider(…, **bound(…)).

    take: called with what the reader takes; without, it goes to st.session_state[choice].
    """
    state = st.session_state
    keys = state.setdefault("bound_keys", {})
    keys.setdefault(choice, f"{choice}_0")
    if state.get(keys[choice], value) != value:
        keys[choice] = f"{choice}_{int(keys[choice].rpartition('_')[2]) + 1}"
    key = keys[choice]
    state[key] = value

    def on_change() -> None:
        if key != keys[choice]:
            return
        if take is None:
            state[choice] = state[key]
        else:
            take(state[key])

    return {"key": key, "on_change": on_change}
