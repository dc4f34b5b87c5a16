"""The large picture of a head, as large as its column and the window allow, with or without padding."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from i18n import say
from ui import page
from ui.heads import query
from ui.link import ZOOM
from ui.streamlit_internals.selectors import css
from ui.widgets import bound, component_value, wholes
from viz.components import VIEWS, source, style
from viz.palette import TWO, WIDE


def canvas(view: str) -> Callable[..., None]:
    """Return the component of a view in VIEWS, called with data (its packet), key, tables (a function that makes its
    numbers on request) and a callback for each trigger, on_pick_change=…: Streamlit ignores a trigger without one."""
    component = st.components.v2.component(
        f"unmask_{view}",
        html=f'<div class="view {view} in_app"></div>',
        css=style(view),
        js=source(*VIEWS[view], "calls.js", "streamlit.js"),
    )

    def draw(*, data: bytes, key: str, tables: "page.Tables", **callbacks: Any) -> None:
        with page.with_tables(key, tables):
            component(data=data, key=key, **callbacks)

    return draw


OnPick = Callable[[int, int | None], None]
ABOVE = 195  # pixels above the picture on page load
ROOMS = {"pair": WIDE, "one": 1, "two": TWO}  # a picture's width in multiples of its side, without margins
MIN_SIDE = "11.5rem"  # a picture's side, without its margins
ROOM = """<style>
  .PLACE { container-type: inline-size; overflow-x: auto; SIZES }
  .PLACE > * {
    --side: clamp(var(--least, MIN_SIDE), min((100cqw - var(--across)) / var(--sides),
      (100dvh - var(--above) - var(--down)) / var(--tall)), 70rem);
    --wide: calc(var(--side) * var(--sides) + var(--across)); min-width: var(--wide); max-width: var(--wide); }
  .PLACE .chart {
    width: var(--wide) !important;
    height: calc(var(--side) * var(--tall) + var(--down)) !important; }
  @media (max-width: 640px) { .st-key-pair_head_figure { --least: 7.5rem; } } /* its colour bars are in sight */
  @media (min-width: 641px) { /* a column that is narrower than its picture at the least takes a row of its own */
    $column:has(.PLACE) { SIZES min-width: min(100%, var(--least, MIN_SIDE) * var(--sides) + var(--across)); } }
</style>"""  # by the container's own class: with [class*=…] a browser restyles all inside whenever its class changes
MIN_OWN = 1 / 3  # share of a row's positions: with fewer real tokens, padding is hidden by default


def choose_query(position: int, key: int | None) -> None:
    """Choose the query and key of a clicked cell, on a page with the choices "query" and "key"."""
    st.session_state.query = position
    if key is not None:
        st.session_state.key = key


def show(
    figure: go.Figure,
    alt: str,
    *,
    room: str,
    key: str = "head_figure",
    above: int = ABOVE,
    tall: float = 1,
    zooms: bool = False,
    on_pick: OnPick | None = choose_query,
    moves: query.Moves | None = None,
) -> None:
    """Draw one of viz.head's figures as large as the page allows.

    room: "pair" for a figure that a comparison may replace, "two" for two large pictures, else "one". above: pixels
    above it on page load. tall: a picture's height in widths, at most 1. zooms: zooming in sets the choice "zoom" of a
    page that draws only that part (`zoomed`): so it is exact, and is kept when a mask is flipped. on_pick: called on a
    click with the positions of the cell's row and column. moves: how arrow keys move the query, whose row the figure
    frames.
    """
    margin = figure.layout.margin
    make_room(room, key, {side: margin[side] for side in "lrtb"}, above, tall)
    with st.container(key=f"{room}_{key}"):
        page.chart(figure, key, alt, callbacks=callbacks(key, zooms=zooms, on_pick=on_pick))
    if moves:
        query.listen_for_query_keys(f"{room}_{key}", say("Heatmap"), moves, role="application", framed=True)


def make_room(room: str, key: str, margin: Mapping[str, int], above: int, tall: float = 1) -> None:
    """Set the size of a picture in the container "{room}_{key}"; arguments as in `show`. margin: around it, in pixels.

    Lessons set --least, its minimum side.
    """
    across, down = margin["l"] + margin["r"], margin["t"] + margin["b"]
    sizes = f"--above: {above}px; --across: {across}px; --down: {down}px; --tall: {tall:.4f}; --sides: {ROOMS[room]};"
    rules = ROOM.replace("PLACE", f"st-key-{room}_{key}").replace("SIZES", sizes).replace("MIN_SIDE", MIN_SIDE)
    st.html(css(rules))


def callbacks(key: str, *, zooms: bool = False, on_pick: OnPick | None = choose_query) -> dict[str, Any]:
    """Return the callbacks for page.chart of this key; arguments as in `show`. A bar that is clicked has no key."""

    def take_pick() -> None:
        sent = component_value(key).get("pick")
        positions = wholes(sent, 2) or wholes(sent, 1)
        if on_pick and positions:
            on_pick(positions[0], positions[1] if len(positions) > 1 else None)

    def take_zoom() -> None:
        zoom = component_value(key).get("zoom")
        if isinstance(zoom, str) and re.fullmatch(f"({ZOOM})?", zoom):
            st.session_state.update(zoom=zoom or None, span=None)

    return ({"on_pick_change": take_pick} if on_pick else {}) | ({"on_zoom_change": take_zoom} if zooms else {})


def zoomed(rows: tuple[int, int], columns: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the rows and columns to show of those given, each [begin, end), by the choice "zoom".

    Draws a button that zooms out if the user has zoomed in.
    """
    found = re.fullmatch(ZOOM, st.session_state.get("zoom") or "")
    if found is None:
        return rows, columns
    top, bottom, left, right = map(int, found.groups())
    part = (max(top, rows[0]), min(bottom + 1, rows[1])), (max(left, columns[0]), min(right + 1, columns[1]))
    if any(begin >= end for begin, end in part) or part == (rows, columns):
        return rows, columns
    (top, bottom), (left, right) = part
    shown = {"top": top, "bottom": bottom - 1, "left": left, "right": right - 1}
    label = say("Show all: these are queries {top}–{bottom} and keys {left}–{right}", **shown)
    zoom_out = lambda: st.session_state.update(zoom=None)  # noqa: E731
    st.button(label, key="zoom_out", icon=":material/zoom_out_map:", on_click=zoom_out)
    return part


def without_padding(part: tuple[int, int], keep: np.ndarray, *, masked: bool) -> tuple[int, int]:
    """Return the positions to show, [begin, end): all or, if padding is hidden, those that are not padding.

    keep: bool [T], the tokens that are not padding. masked: whether padding is masked; only then is it hidden by
    default, if the tokens are few beside it. Draws the switch if the row has padding.
    """
    own = np.flatnonzero(keep)
    if keep.all() or not len(own):
        return part
    chosen = st.session_state.get("show_padding")
    at_first = bool(not masked or keep.mean() >= MIN_OWN)
    look = bound("show_padding", at_first if chosen is None else chosen)
    shown = st.toggle(say("Show padding"), help=say("The rows and columns of the padding tokens."), **look)
    begin, end = max(part[0], int(own[0])), min(part[1], int(own[-1]) + 1)
    return part if shown or begin >= end else (begin, end)
