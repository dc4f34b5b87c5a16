"""The view Numbers: the weights as a table, and what the heatmap's colours mean."""

import streamlit as st

from i18n import N_, say, together
from model.heads.view import HeadView
from ui.heads.chosen import ChosenHead
from viz.heads.colours import PALETTES, key_names, numbers_table, shown
from viz.heads.tokens import left_out

RANGES = {"largest": N_("the largest weight"), "one": "1", "percentile": N_("the 99th percentile")}
BRIGHTNESS = {"root": N_("the square root"), "linear": N_("the weight")}


def show(chosen: ChosenHead) -> None:
    """The controls act on the heatmap above."""
    with st.container(horizontal=True, gap="medium"):
        st.segmented_control(
            say("The heatmap's colours"), list(PALETTES), key="palette", required=True, width="content"
        )
        st.segmented_control(
            say("Brightest at"), list(RANGES), format_func=_said, key="colours_to", required=True, width="content"
        )
        st.segmented_control(say("Brightness shows"), list(BRIGHTNESS), format_func=_said, key="brightness",
                             required=True, width="content")  # fmt: skip
    part = shown(chosen.view, chosen.part, chosen.query)
    table = numbers_table(part)
    _mark_cell(chosen, part)
    alt = say("The weights of {head}, a row for each query.", head=chosen.name)
    st.dataframe(table, key="head_numbers", height=380, alt=alt, selection_mode="single-cell",
                 on_select=lambda: _take(part))  # fmt: skip
    words = left_out(chosen.view, part, chosen.query)
    about = say("Rows are queries, columns keys; a cell that a mask blocks names the mask.")
    choose = say("Click a cell, or use the arrow keys in the table, to choose its query and key.")
    st.caption(together([about, choose, words]))


def _mark_cell(chosen: ChosenHead, part: HeadView) -> None:
    """Mark the cell of the query and the key, or of the heaviest key that is in the table."""
    row, column, cells = chosen.query - part.first, chosen.key - part.first_key, []
    if 0 <= row < len(part.queries):
        shown = 0 <= column < len(part.keys)
        cells = [(row, key_names(part)[column if shown else int(part.weights[row].argmax())])]
    st.session_state.head_numbers_marked = cells
    if _marked() != cells:
        st.session_state.head_numbers = {"selection": {"cells": cells}}


def _take(part: HeadView) -> None:
    """The cell that was chosen in the table, by a click or by keys, chooses its query and its key.

    The browser sends back the cell that the page marked, too: that is nobody's choice.
    """
    if _marked() == st.session_state.head_numbers_marked:
        return
    for row, name in _marked():
        st.session_state.query = part.first + row
        st.session_state.key = part.first_key + key_names(part).index(name)


def _marked() -> list[tuple[int, str]]:
    """The cells that are marked in the table: one, or none."""
    state = st.session_state.get("head_numbers")
    return [(row, name) for row, name in state["selection"]["cells"]] if state else []


def _said(name: str) -> str:
    return say((RANGES | BRIGHTNESS)[name])
