"""A head that follows what is drawn on its mask: run.live(layer, head), a live widget (anywidget)."""

from dataclasses import replace
from typing import Any, Protocol

from model.spec import MaskSpec, stroke_of
from unmask.mask import Mask
from unmask.shown import HeadPicture


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
