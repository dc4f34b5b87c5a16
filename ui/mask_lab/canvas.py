"""The composed mask as a component: bytes in, a drawing out."""

from dataclasses import astuple, replace

import streamlit as st

from i18n import N_, say
from model.heads.view import MOST_CELLS, MaskView
from model.spec import MOST_STROKES, MaskSpec, stroke_of
from ui.heads import head as head_picture
from ui.heads import query as query_keys
from ui.heads.head import canvas
from ui.mask_lab import compose
from ui.results import cached_figure
from ui.widgets.key import component_value, whole
from viz.mask_lab.canvas import canvas_margin, canvas_packet

ABOVE = 280  # pixels over the mask, and over the head beside it, as the page opens

_component = canvas("mask")


def drawable(begin: int, end: int, query: int) -> tuple[int, int]:
    """Of positions begin up to, without, end those that can be drawn on, a cell each, the query among them where it is
    one of these; says what is left out."""
    if end - begin <= MOST_CELLS:
        return begin, end
    before = (query - begin) // MOST_CELLS if begin <= query < end else 0  # whole parts: it stays while a query moves
    begin = min(begin + before * MOST_CELLS, end - MOST_CELLS)
    words = N_(
        "Positions {first} to {last}: the screen has no room for more. Choose another part of the text above, or "
        "another query."
    )
    st.caption(say(words, first=begin, last=begin + MOST_CELLS - 1))
    return begin, begin + MOST_CELLS


def show(
    view: MaskView,
    rows: tuple[int, int],
    columns: tuple[int, int],
    text: str,
    query: int,
    key: str = "mask_canvas",
    *,
    in_scope: bool = True,
) -> None:
    """Draw these queries and keys of the mask, each from a position up to, without, another; strokes go to compose's
    drawing, and what is chosen with the key q becomes the choice "query".

    text: what the drawing then belongs to, as compose.text_key gives it. Of strokes it shows those of the page: a
    user who is asked first draws before they hold. in_scope: whether the composed masks hold in the layer shown;
    elsewhere a drawing changes nothing, so none is shown and nothing can be drawn.
    """
    strokes, below = (tuple(map(astuple, some)) for some in (compose.drawing() if in_scope else ((), ())))
    packet = cached_figure(
        canvas_packet,
        replace(view, strokes=strokes),
        rows=rows,
        columns=columns,
        epoch=st.session_state.mask_epoch,
        number=st.session_state.mask_number,
        most=MOST_STROKES if in_scope else 0,
        query=query,
        below=below,
    )
    head_picture.make_room("one", key, canvas_margin(view, rows, columns), ABOVE)
    with st.container(key=f"one_{key}"):
        heard = {"on_drawn_change": lambda: take(key, text), "on_query_change": lambda: query_keys.take(key)}
        _component(data=packet, key=key, **heard)


def take(key: str, text: str) -> None:
    """What the component under this key sent goes to compose's drawing; anything that is no drawing changes nothing."""
    drawing = component_value(key).get("drawn")
    if not isinstance(drawing, dict) or drawing.get("epoch") != st.session_state.mask_epoch:
        return  # of a drawing that the page has replaced since
    try:
        strokes = tuple(map(stroke_of, drawing["strokes"]))
        MaskSpec(drawn=strokes)
    except (KeyError, TypeError, ValueError):
        return  # nothing that our own canvas sends
    number = whole(drawing.get("number"))
    if number is not None:
        compose.take_drawing(strokes, text, number)
