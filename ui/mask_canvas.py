"""The composed mask as a component: bytes in, a drawing out."""

import streamlit as st

from model.spec import MOST_STROKES, MaskSpec, stroke_of
from ui import compose
from viz.components import MASK_HTML, source
from viz.mask_canvas import MaskView, canvas_packet

_component = st.components.v2.component("unmask_mask", html=MASK_HTML, css=source("mask.css"), js=source("mask.js"))


def show(view: MaskView, begin: int, end: int, text: str, key: str = "mask_canvas") -> None:
    """Draw positions begin up to, without, end of the mask; what the reader draws goes to compose's drawing.

    text: what the drawing then belongs to, as compose.check_text knows it.
    """

    def taken() -> None:
        drawing = st.session_state[key].get("drawn")
        if not isinstance(drawing, dict) or drawing.get("epoch") != compose.epoch():
            return  # of a drawing that the page has replaced since
        try:
            strokes = tuple(map(stroke_of, drawing["strokes"]))
            MaskSpec(drawn=strokes)
            number = int(drawing["number"])
        except (KeyError, TypeError, ValueError):
            return  # nothing that our own canvas sends
        compose.take_drawing(strokes, text, number)

    packet = canvas_packet(
        view, begin=begin, end=end, epoch=compose.epoch(), number=compose.number(), most=MOST_STROKES
    )
    _component(data=packet, key=key, on_drawn_change=taken)
