"""The view Tokens: the text itself, lit in the browser."""

import streamlit as st

from ui.canvas import canvas
from ui.drawn import drawn
from ui.heads.chosen import Chosen, hearing, pins
from viz.heads.tokens import left_out, shown, tokens_packet

_component = canvas("tokens")


def show(chosen: Chosen, key: str = "head_tokens") -> None:
    """Draw it; what is picked there are the choices "query", "pins" and "towards"."""
    part = shown(chosen.view, chosen.part, chosen.query)
    packet = drawn(
        tokens_packet,
        part,
        name=chosen.name,
        query=chosen.query,
        length=len(chosen.view.queries),
        pins=pins(),
        towards=st.session_state.towards,
        across=chosen.across,
    )
    heard = hearing(key)
    _component(data=packet, key=key, on_query_change=heard, on_pins_change=heard, on_towards_change=heard)
    words = left_out(chosen.view, part, chosen.query)
    if words:
        st.caption(words)
