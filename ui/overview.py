"""The overview of all heads as a component: bytes in, the picked head out."""

import streamlit as st

from viz.components import OVERVIEW_HTML, source

_component = st.components.v2.component(
    "unmask_overview",
    html=OVERVIEW_HTML,
    css=source("overview.css"),
    js=source("packet.js", "overview.js", "streamlit.js"),
)


def show(packet: bytes, key: str = "overview") -> None:
    """Draw viz.overview.overview_packet; a pick goes to st.session_state.layer and .head before the next rerun."""

    def picked() -> None:
        pick = st.session_state[key].get("pick")
        if pick:
            st.session_state.layer, st.session_state.head = int(pick[0]), int(pick[1])

    _component(data=packet, key=key, on_pick_change=picked)
