"""Choices that outlive the page they were made on.

Streamlit forgets a widget's value once a page has not drawn it, and then an older value of the same key may come back.
So every page keeps a copy of its choices under a name of its own, which holds when the reader comes back to it.
"""

from collections.abc import Callable
from typing import Any

import streamlit as st


def restore(name: str, first: Callable[[], dict[str, Any]]) -> None:
    """Call before any widget is drawn: put every choice of the copy `name` where its widget will find it.

    first: the choices, by their keys, where there is no copy yet.
    """
    state = st.session_state
    if name not in state:
        kept = first()
    elif state.get(f"{name}_visit") != state.visit:
        kept = state[name]
    else:
        kept = {key: state.get(key, value) for key, value in state[name].items()}
    state.update(kept)
    state.update({name: kept, f"{name}_visit": state.visit})
