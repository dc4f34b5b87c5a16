"""The mask of one head that shows itself: in a page to read which cell is blocked and why, live to draw on."""

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from model.heads.view import MOST_CELLS, MaskView, mask_view
from model.spec import MOST_STROKES, MaskSpec, stroke_of
from model.trace import Trace
from unmask.shown import HeadPicture, Live
from viz.heads.cells import window
from viz.html import tag
from viz.mask_lab.canvas import canvas_packet
from viz.saved.standalone import Canvas, page


@dataclass(frozen=True, eq=False, repr=False)
class Mask(Live):
    """All masks of one head together. allowed: bool [Q,K], True = may attend. query: the position that is shown where
    there is no room for all.

    The widget is drawn on; its trait `drawn` is {"strokes": …, …} or None, and the next run takes it:
    model.run(text, masks={"drawn": widget.drawn["strokes"]}).
    """

    name: str
    view: MaskView
    allowed: np.ndarray
    query: int

    def numpy(self) -> np.ndarray:
        """bool [Q,K], True = may attend."""
        return self.allowed

    def canvas(self) -> Canvas:
        """The mask to draw on, and its bytes."""
        return self._canvas(MOST_STROKES)

    def page(self) -> str:
        """A whole HTML document that needs no network; to look at, since nothing there runs the model on a drawing."""
        begin, end = self._part()
        length = len(self.allowed)
        left_out = f"Shown are tokens {begin}–{end - 1} of {length:,}." if end - begin < length else ""
        return page(repr(self), [self._canvas(0), tag("p", left_out)])

    def _part(self) -> tuple[int, int]:
        return window(0, len(self.allowed), self.query, MOST_CELLS)

    def _canvas(self, most: int) -> Canvas:
        part = self._part()
        return Canvas("mask", canvas_packet(self.view, rows=part, columns=part, epoch=0, number=0, most=most))

    def __repr__(self) -> str:
        queries, keys = self.allowed.shape
        return f"mask of {self.name}: {queries} queries × {keys} keys, {self.allowed.sum():,} cells allowed"


def mask_of(trace: Trace, row: int, layer: int, head: int, name: str, query: int) -> Mask:
    """Raises ValueError for cross-attention, and for a head that is not there."""
    if trace.name == "cross":
        raise ValueError("expected the attention of a text to itself, got cross")
    allowed = trace.allowed(layer, row, head=head).numpy()
    return Mask(name, mask_view(trace, row, trace.spec, layer, head), allowed, query)


class Drawable(Protocol):
    """What of a Run is needed here."""

    @property
    def masks(self) -> MaskSpec: ...
    def mask(self, layer: int, head: int) -> Mask: ...
    def head(self, layer: int, head: int) -> HeadPicture: ...
    def under(self, masks: MaskSpec) -> "Drawable": ...


class LiveHead:
    """A mask to draw on and the head beside it. run: the latest one, under the mask as it is drawn.

    mask, head: the two widgets. Raises ValueError for cross-attention and for a head that is not there, ImportError
    where anywidget is not installed.
    """

    def __init__(self, run: Drawable, layer: int, head: int) -> None:
        self.run, self._place = run, (layer, head)
        self.mask, self.head = run.mask(layer, head).widget(), run.head(layer, head).widget()
        self.mask.observe(self._redraw, "drawn")

    def _redraw(self, change: Any) -> None:
        strokes = tuple(map(stroke_of, (change.new or {}).get("strokes", [])))
        self.run = self.run.under(replace(self.run.masks, drawn=strokes))
        self.head.packet = self.run.head(*self._place).canvas().packet

    def _repr_mimebundle_(self, **how: Any) -> Any:
        from ipywidgets import HBox  # anywidget brings it

        return HBox([self.mask, self.head])._repr_mimebundle_(**how)
