"""Keys move the query on parts of a page that Streamlit draws: a picture, or a view's tables. The views of
viz/components move it by the same rules themselves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import streamlit as st

from i18n import N_, say
from ui.widgets.listeners import component_value, whole
from viz.components import source
from viz.palette import MARK

_listener = st.components.v2.component(
    "unmask_move", html="<span></span>", js=source("query.js", "axis_names.js", "move.js")
)

MOVES = N_("{what}: up and down arrow keys move the query, {query}.")
NAMED = 64  # tokens to either side that the browser can name before the page has answered


@dataclass(frozen=True)
class Moves:
    """query: the position that keys move from. among: those that they move it to, from one up to, without, another.
    labels: a token for each position of the text."""

    query: int
    among: tuple[int, int]
    labels: Sequence[str]


def hear(
    place: str, what: str, moves: Moves, *, role: Literal["application", "group"] = "group", framed: bool = False
) -> None:
    """Give the container of the name `place` the focus, and while it has it let keys move the choice "query".

    what: the container's name for who cannot see it. role: "application" of a picture, "group" of what can be read.
    framed: whether it is a heatmap that frames the query's row.
    """
    ear = f"listening_keys_{place}"  # by this name it is out of sight (ui/page.py)
    first = max(moves.query - NAMED, 0)
    heed = {
        "place": f"st-key-{place}",
        "role": role,
        "words": say(MOVES, what=what, query="{query}"),
        "query": moves.query,
        "among": moves.among,
        "first": first,
        "labels": moves.labels[first : moves.query + NAMED + 1],
        "mark": MARK if framed else None,
    }
    _listener(data=heed, key=ear, on_query_change=lambda: take(ear))


def take(key: str) -> None:
    """The position that the component under this key sent becomes the choice "query"."""
    position = whole(component_value(key).get("query"))
    if position is not None:
        st.session_state.query = position
