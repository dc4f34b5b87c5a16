"""Which query, a row of the heatmap, a page looks at: the choice "query" in its link; None is the row's last token."""

import streamlit as st

from i18n import N_, say
from ui.heads.query_keys import Moves
from ui.run_view import RunView
from ui.widgets.bound import bound

HELP = N_("The token that looks, a row of the heatmap. Its next token, its loss, its reach and its steps are shown.")


def chosen(now: RunView) -> int:
    """The position of the query that the reader picked, the row's last real token until then.

    A click on a picture chooses one, by setting "query" in its callback.
    """
    query = st.session_state.get("query")
    if not isinstance(query, int) or not 0 <= query < len(now.run.queries.pieces[now.row]):
        query = st.session_state.query = None
    return now.run.queries.real(now.row).stop - 1 if query is None else query


def choose(now: RunView) -> int:
    """The chosen query, with a select box to choose another."""
    pieces = now.run.queries.pieces[now.row]
    return st.selectbox(say("Query"), range(len(pieces)), **bound("query", chosen(now)), help=say(HELP),
                        format_func=lambda place: f"{place}: {pieces[place]}")  # fmt: skip


def picked() -> int | None:
    """The query that the reader picked, whose row is framed; None until then."""
    chosen = st.session_state.get("query")
    return chosen if isinstance(chosen, int) else None


def moves(now: RunView, part: tuple[int, int]) -> Moves:
    """How keys move the query among the positions of a part, from one up to, without, another."""
    pieces = now.run.queries.pieces[now.row]
    return Moves(chosen(now), (part[0], min(part[1], len(pieces))), pieces)


def predicting(now: RunView, query: int) -> int | None:
    """The position in the predicted text: the query, or None where another text's tokens look."""
    return query if now.run.queries is now.run.batch else None
