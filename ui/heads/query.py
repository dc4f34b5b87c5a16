"""The choices "query", "key" and "span" of a page. A query of None is the row's last token, a key of None the one with
the query's largest weight; a span is several queries together."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import streamlit as st

from i18n import N_, say
from model.base import ranges
from model.heads.merging import over_queries
from model.heads.view import HeadView
from ui.link import SPAN, ZOOM
from ui.markdown import escaped
from ui.run_view import RunView
from ui.widgets import bound, component_value, one_of, whole
from viz.components import source
from viz.heads.bars import BarRow
from viz.palette import MARK

_listener = st.components.v2.component(
    "unmask_move", html="<span></span>", js=source("calls.js", "query.js", "axis_names.js", "plot_axes.js", "move.js")
)

MOVES = N_("{what}: up and down arrow keys move the query, {query}.")
NAMED = 64  # tokens to either side whose labels the browser has before the page responds


@dataclass(frozen=True)
class Moves:
    """How arrow keys move the query. query: the position to move from. span: the positions to move to, [begin, end).
    labels: a token for each position of the text."""

    query: int
    span: tuple[int, int]
    labels: Sequence[str]


def listen_for_query_keys(
    container: str, what: str, moves: Moves, *, role: Literal["application", "group"] = "group", framed: bool = False
) -> None:
    """Make the container named `container` focusable; while it has the focus, arrow keys move the choice "query".

    what: the container's accessible name. role: "application" for a picture, "group" for readable content. framed:
    whether it is a heatmap that frames the query's row.
    """
    listener_key = f"listening_keys_{container}"  # CSS hides keys that begin with "listening_" (ui/page.py)
    first = max(moves.query - NAMED, 0)
    props = {
        "place": f"st-key-{container}",
        "role": role,
        "words": say(MOVES, what=what, query="{query}"),
        "query": moves.query,
        "among": moves.span,
        "first": first,
        "labels": moves.labels[first : moves.query + NAMED + 1],
        "mark": MARK if framed else None,
    }
    _listener(data=props, key=listener_key, on_query_change=lambda: take(listener_key))


def take(key: str) -> None:
    """Set the choice "query" to the position that the component with this key sent."""
    position = whole(component_value(key).get("query"))
    if position is not None:
        st.session_state.query = position


HELP = N_("The token that attends: a row of the heatmap. Sentences about a single token are about this one.")


def chosen(now: RunView) -> int:
    """Return the position of the query that the user picked; by default, the row's last real token.

    A click on a picture picks one, by setting "query" in its callback.
    """
    query = st.session_state.get("query")
    if not isinstance(query, int) or not 0 <= query < len(now.tokens):
        query = st.session_state.query = None
    return now.real.stop - 1 if query is None else query


def choose(now: RunView) -> int:
    pieces = now.tokens
    name, shown = lambda position: f"{position}: {pieces[position]}", bound("query", chosen(now))
    return st.selectbox(say("Query"), range(len(pieces)), format_func=name, help=say(HELP), **shown)


def picked() -> int | None:
    """Return the query that the user picked, whose row is framed; None until then."""
    chosen: int | None = st.session_state.get("query")
    return chosen


def token(now: RunView) -> int | None:
    """Return the token of the query that the user picked, its last one if merged; None until then."""
    position = picked()
    return None if position is None else now.last_token(position)


def moves(now: RunView, part: tuple[int, int]) -> Moves:
    """Return how arrow keys move the query among the positions of a part, [begin, end)."""
    pieces = now.tokens
    return Moves(chosen(now), (part[0], min(part[1], len(pieces))), pieces)


def predicting(now: RunView, query: int) -> int | None:
    """Return the query's token in the predicted text, its last one if merged; None if queries are of another text."""
    return now.last_token(query) if now.run.queries is now.run.batch else None


def chosen_key(view: HeadView, query: int) -> int:
    """Return the key position that the user picked; by default, the one with the query's largest weight."""
    picked = st.session_state.get("key")
    if isinstance(picked, int) and 0 <= picked < len(view.keys):
        return picked
    st.session_state.key = None
    return int(view.weights[query].argmax())


def choose_key(view: HeadView, query: int, help_text: str | None = None) -> int:
    name, shown = lambda position: f"{position}: {view.keys[position]}", bound("key", chosen_key(view, query))
    return st.selectbox(say("Key"), range(len(view.keys)), format_func=name, help=help_text, width=240, **shown)


POOLED = {"mean": N_("mean"), "sum": N_("sum")}
SPAN_HELP = N_("Positions of queries: 3-7, or 2,5,9. Drag over rows of the heatmap to take those.")


def choose_span(now: RunView, part: tuple[int, int]) -> list[int]:
    """Let the user choose several queries. Returns those typed, else the rows zoomed into, else all real ones shown."""
    count, real = len(now.tokens), now.real
    typed = [position for position in read_span(st.session_state.get("span") or "") if position < count]
    zoom = re.fullmatch(ZOOM, st.session_state.get("zoom") or "")
    rows = (int(zoom[1]), int(zoom[2]) + 1) if zoom else (max(part[0], real.start), min(part[1], real.stop))
    queries = typed or list(range(count))[slice(*rows)] or list(range(real.start, real.stop))

    def take(typed: str) -> None:
        plain = typed.replace(" ", "").replace("，", ",").replace("–", "-")
        parts = [text.split("-") for text in plain.split(",")] if re.fullmatch(SPAN, plain) else []
        there = all(int(ends[0]) <= int(ends[-1]) < count for ends in parts)
        st.session_state.span_refused = None if not plain or (parts and there) else typed[:40]
        if st.session_state.span_refused is None:
            st.session_state.span = plain or None

    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        look = bound("span_typed", ranges(queries).replace(" ", ""), take)
        st.text_input(say("Queries"), help=say(SPAN_HELP), width=240, **look)
        one_of(say("Combined as"), POOLED, "pooled", width="content")
    if (wrong := st.session_state.pop("span_refused", None)) is not None:
        template = N_("Expected up to 32 positions or ranges from 0 to {last}, such as 3-7 or 2,5,9, got “{text}”.")
        st.caption(say(template, last=count - 1, text=escaped(wrong)))
    return queries


def span_row(
    now: RunView, views: Sequence[HeadView], head: tuple[int, int], queries: list[int], how: Literal["mean", "sum"]
) -> BarRow:
    """Return the combined weights of these queries, in views of a head now and, if it differs, as standard."""
    key = ("span", head, tuple(queries), how)
    rows = [now.cached((*key, number), partial(over_queries, view, queries, how)) for number, view in enumerate(views)]
    return BarRow(rows[0], rows[1] if len(rows) > 1 else None)


def read_span(typed: str) -> list[int]:
    """Parse positions: "3-5,9" -> [3, 4, 5, 9]."""
    positions: list[int] = []
    for part in filter(None, typed.split(",")):
        first, _, last = part.partition("-")
        positions.extend(range(int(first), min(int(last or first), int(first) + 100_000) + 1))
    return sorted(set(positions))
