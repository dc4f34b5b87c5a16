"""Which query row to look at."""

import streamlit as st

from ui.run_view import RunView


def choose(now: RunView) -> int:
    """The position of the query that the reader picks, one two thirds into the row at first; its key is "query"."""
    pieces = now.trace.queries.pieces[now.row]
    chosen = st.session_state.get("query")
    if not isinstance(chosen, int) or not 0 <= chosen < len(pieces):
        real = now.trace.queries.real(now.row)
        st.session_state.query = real.start + (real.stop - real.start) * 2 // 3  # much before it, and something after
    st.selectbox("Query: the token that looks", range(len(pieces)), key="query",
                 format_func=lambda place: f"{place}: {pieces[place]}")  # fmt: skip
    return st.session_state.query
