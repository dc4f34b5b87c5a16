"""The large picture of a head on a page, as large as its column and the window let it be."""

import plotly.graph_objects as go
import streamlit as st

from ui import page


def show(figure: go.Figure, alt: str, *, room: str, key: str = "head_figure") -> None:
    """Draw one of viz.head's figures. room: "pair" for one that a comparison may take the place of, else "one"."""
    with st.container(key=f"{room}_{key}"):
        st.plotly_chart(figure, key=key, config=page.CHART, height="stretch", alt=alt)
