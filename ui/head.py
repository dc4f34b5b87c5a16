"""The large picture of a head on a page: as large as its column and the window let it be, with or without padding."""

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from ui import page
from viz.components import source

_listener = st.components.v2.component("unmask_pick", html="<span></span>", js=source("pick.js"))

LEAST_OWN = 1 / 3  # of a row's positions: with fewer tokens of its own, its padding is out of sight at first


def show(figure: go.Figure, alt: str, *, room: str, key: str = "head_figure") -> None:
    """Draw one of viz.head's figures; a click on a cell chooses its query, the choice "query".

    room: "pair" for a figure that a comparison may take the place of, else "one".
    """
    with st.container(key=f"{room}_{key}"):
        st.plotly_chart(figure, key=key, config=page.CHART, height="stretch", alt=alt)

    def picked() -> None:
        query = st.session_state[f"{key}_pick"].get("pick")
        if isinstance(query, int):
            st.session_state.query = query

    with st.container(key=f"listening_{key}"):
        _listener(data={"chart": f"st-key-{room}_{key}"}, key=f"{key}_pick", on_pick_change=picked)


def without_padding(part: tuple[int, int], keep: np.ndarray, *, masked: bool) -> tuple[int, int]:
    """The positions to show, from the first up to, without, the second: padding is left out unless it is asked for.

    keep: bool [T], the row's own tokens. masked: whether padding is: what no token looks at is out of sight at first
    where the row's own tokens are few beside it. Draws the switch where the row has padding.
    """
    own = np.flatnonzero(keep)
    if keep.all() or not len(own):
        return part
    chosen = st.session_state.get("padding_chosen")
    st.session_state.padding_shown = bool(not masked or keep.mean() >= LEAST_OWN) if chosen is None else chosen
    st.toggle("Show padding", key="padding_shown", on_change=_take, help="The rows and columns of the padding tokens.")
    begin, end = max(part[0], int(own[0])), min(part[1], int(own[-1]) + 1)
    return part if st.session_state.padding_shown or begin >= end else (begin, end)


def _take() -> None:
    st.session_state.padding_chosen = st.session_state.padding_shown
