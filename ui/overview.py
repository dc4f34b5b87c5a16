"""The overview of all heads as a component: bytes in, the picked head out."""

from collections.abc import Sequence

import streamlit as st

from model.heads.survey import Survey
from ui.canvas import canvas
from ui.drawn import drawn
from ui.heard import heard
from viz.overview import overview_packet

_component = canvas("overview")


def show(found: Survey, layer: int, head: int, numbers: Sequence[int], key: str = "overview") -> None:
    """Draw every head, this one as the chosen one; a pick goes to st.session_state.layer and .head before the next
    rerun. numbers: as overview_packet's."""
    packet = drawn(overview_packet, found.thumbnails, found.blocked, layer=layer, head=head, numbers=numbers,
                   measures=found.measures())  # fmt: skip

    def picked() -> None:
        pick = heard(key).get("pick")
        if pick:
            st.session_state.layer, st.session_state.head = int(pick[0]), int(pick[1])

    _component(data=packet, key=key, on_pick_change=picked)
