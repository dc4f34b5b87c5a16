"""The view Numbers: the weights as a table, and what the heatmap's colours mean."""

import streamlit as st

from ui.heads.chosen import Chosen
from viz.heads.colours import PALETTES
from viz.heads.numbers import numbers_table, shown
from viz.heads.tokens import left_out

RANGES = {"largest": "the largest weight", "one": "1", "percentile": "the 99th percentile"}
BRIGHTNESS = {"root": "the square root", "linear": "the weight"}


def show(chosen: Chosen) -> None:
    """The controls act on the heatmap above."""
    with st.container(horizontal=True, gap="medium"):
        st.segmented_control("The heatmap's colours", list(PALETTES), key="palette", required=True, width="content")
        st.segmented_control("Brightest at", list(RANGES), format_func=RANGES.__getitem__, key="colours_to",
                             required=True, width="content")  # fmt: skip
        st.segmented_control("Brightness goes with", list(BRIGHTNESS), format_func=BRIGHTNESS.__getitem__,
                             key="brightness", required=True, width="content")  # fmt: skip
    part = shown(chosen.view, chosen.part, chosen.query)
    st.dataframe(numbers_table(part), key="head_numbers", height=380)
    words = left_out(chosen.view, part, chosen.query)
    st.caption("Rows are queries, columns keys; a cell that a mask blocks names the mask. " + words)
