"""Which key of the query a page looks at: the choice "key" in its link; None is the heaviest of the query's."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from i18n import say
from model.heads.view import HeadView
from ui.widgets.choices import bound

MOST = 10**6  # more than any position, layer or number of a picture's part


def component_value(key: str) -> Mapping[str, Any]:
    """For a component's callback: what the one under this key sent; nothing where another page was chosen meanwhile."""
    return st.session_state.get(key) or {}


def whole(sent: Any) -> int | None:
    """A whole number from 0 to MOST that a component sent; None for anything else: a browser may send what it likes."""
    return int(sent) if isinstance(sent, int | float) and 0 <= sent <= MOST and sent == int(sent) else None


def wholes(sent: Any, count: int) -> list[int] | None:
    """So many of them; None for anything else."""
    found = list(map(whole, sent)) if isinstance(sent, list) and len(sent) == count else []
    return [one for one in found if one is not None] if found and None not in found else None


def chosen(view: HeadView, query: int) -> int:
    """The position looked at: the one that the user picked, the heaviest of the query's until then."""
    picked = st.session_state.get("key")
    if isinstance(picked, int) and 0 <= picked < len(view.keys):
        return picked
    st.session_state.key = None
    return int(view.weights[query].argmax())


def choose(view: HeadView, query: int, help_text: str | None = None) -> int:
    name, shown = lambda position: f"{position}: {view.keys[position]}", bound("key", chosen(view, query))
    return st.selectbox(say("Key"), range(len(view.keys)), format_func=name, help=help_text, width=240, **shown)
