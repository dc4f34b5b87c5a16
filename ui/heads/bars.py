"""The view Bars: one query's weights."""

import streamlit as st

from i18n import say, together
from ui import page
from ui.drawn import cached_figure
from ui.heads import head as head_picture
from ui.heads import query
from ui.heads.chosen import ChosenHead
from viz.heads.bars import MOST_SORTED, BarRow, bars_figure, rest_words, row_of, where_it_lies
from viz.heads.cells import weight_text


def show(chosen: ChosenHead) -> None:
    """A click on a bar chooses its token as the query."""
    row = row_of(chosen.view, chosen.standard if chosen.changed else None, chosen.query)
    st.html(cached_figure(where_it_lies, row))
    st.toggle(say("Largest first"), key="sorted")
    about = say("The weights of {query} in {head}, a bar for each key.", query=row.name, head=chosen.name)
    alt = together([about, _largest(row)])
    figure = cached_figure(bars_figure, row, largest_first=st.session_state.sorted)
    with st.container(key="bars_of_query"):
        st.plotly_chart(figure, key="head_bars", config=page.CHART, alt=alt)
    head_picture.listen("head_bars", "bars_of_query")
    query.hear("bars_of_query", say("Bars"), chosen.moves, role="application")
    if st.session_state.sorted and rest_words(row, MOST_SORTED):
        st.caption(rest_words(row, MOST_SORTED))


def _largest(row: BarRow) -> str:
    top = row.largest(1)
    if not len(top):
        return say("Every key is blocked.")
    return say(
        "The largest, {weight}, is that of {key} ({token}).",
        weight=weight_text(row.now[top[0]]),
        key=top[0],
        token=row.view.keys[top[0]],
    )
