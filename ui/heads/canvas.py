"""The views of viz/components in Streamlit."""

from typing import Any

import streamlit as st

from viz.components import VIEWS, source


def canvas(view: str) -> Any:
    """The component of a view out of VIEWS. Called with data, its packet, and key; what is picked is its triggers'.

    Streamlit takes a trigger for none unless it has a callback: on_pick_change=….
    """
    return st.components.v2.component(
        f"unmask_{view}",
        html=f'<div class="view {view}"></div>',
        css=source(f"{view}.css"),
        js=source(*VIEWS[view], "streamlit.js"),
    )
