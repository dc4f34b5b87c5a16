"""The view Bars: one query's weights."""

import streamlit as st

from ui import head as head_picture
from ui import page
from ui.drawn import drawn
from ui.heads.chosen import Chosen
from viz.heads.bars import MOST_SORTED, Row, bars_figure, rest_words, row_of, where_it_lies


def show(chosen: Chosen) -> None:
    """A click on a bar chooses its token as the query."""
    row = row_of(chosen.view, chosen.standard if chosen.changed else None, chosen.query)
    st.html(drawn(where_it_lies, row))
    st.toggle("Largest first", key="sorted")
    alt = f"The weights of {row.name} in {chosen.name}, a bar for each key. " + _largest(row)
    figure = drawn(bars_figure, row, largest_first=st.session_state.sorted)
    with st.container(key="bars_of_query"):
        st.plotly_chart(figure, key="head_bars", config=page.CHART, alt=alt)
    head_picture.listen("head_bars", "bars_of_query")
    if st.session_state.sorted and rest_words(row, MOST_SORTED):
        st.caption(rest_words(row, MOST_SORTED))


def _largest(row: Row) -> str:
    top = row.largest(1)
    if not len(top):
        return "Every key is blocked."
    return f"The largest, {row.now[top[0]]:.4f}, is that of {top[0]} ({row.view.keys[top[0]]})."
