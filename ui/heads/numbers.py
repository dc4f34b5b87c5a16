"""The view Numbers: the weights as a table, and what the heatmap's colours mean."""

import streamlit as st

from model.language import N_, say, together
from ui.heads.chosen import Chosen
from viz.heads.colours import PALETTES
from viz.heads.numbers import numbers_table, shown
from viz.heads.tokens import left_out

RANGES = {"largest": N_("the largest weight"), "one": "1", "percentile": N_("the 99th percentile")}
BRIGHTNESS = {"root": N_("the square root"), "linear": N_("the weight")}


def show(chosen: Chosen) -> None:
    """The controls act on the heatmap above."""
    with st.container(horizontal=True, gap="medium"):
        st.segmented_control(
            say("The heatmap's colours"), list(PALETTES), key="palette", required=True, width="content"
        )
        st.segmented_control(
            say("Brightest at"), list(RANGES), format_func=_said, key="colours_to", required=True, width="content"
        )
        st.segmented_control(say("Brightness goes with"), list(BRIGHTNESS), format_func=_said, key="brightness",
                             required=True, width="content")  # fmt: skip
    part = shown(chosen.view, chosen.part, chosen.query)
    st.dataframe(numbers_table(part), key="head_numbers", height=380)
    words = left_out(chosen.view, part, chosen.query)
    about = say("Rows are queries, columns keys; a cell that a mask blocks names the mask.")
    st.caption(together([about, words]))


def _said(name: str) -> str:
    return say((RANGES | BRIGHTNESS)[name])
