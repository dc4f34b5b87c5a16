"""Which key of the query a page looks at: the choice "key" in its link; None is the heaviest of the query's."""

import streamlit as st

from i18n import say
from ui.widgets.bound import bound
from viz.view import HeadView


def chosen(view: HeadView, query: int) -> int:
    """The position looked at: the one that the reader picked, the heaviest of the query's until then."""
    picked = st.session_state.get("key")
    if isinstance(picked, int) and 0 <= picked < len(view.keys):
        return picked
    st.session_state.key = None
    return int(view.weights[query].argmax())


def choose(view: HeadView, query: int, help_text: str | None = None) -> int:
    """The chosen key, with a select box to choose another."""
    return st.selectbox(say("Key"), range(len(view.keys)), **bound("key", chosen(view, query)), width=240,
                        help=help_text, format_func=lambda place: f"{place}: {view.keys[place]}")  # fmt: skip
