"""Live widgets in a notebook: a mask to draw on, and the head under the drawn mask."""

from dataclasses import replace
from typing import Any

from model.spec import stroke_of


class LiveHead:
    """A mask to draw on and the head under it. run: the latest Run, under the mask as it is drawn.

    mask, head: the two widgets. Raises ValueError for cross-attention, for a head that does not exist and for one that
    the run's masks do not apply to, ImportError if anywidget is not installed.
    """

    def __init__(self, run: Any, layer: int, head: int) -> None:
        self.run, self._indices = run, (layer, head)
        self.mask, self.head = run.mask(layer, head).widget(), run.head(layer, head).widget()
        if not run.masks.holds_in(layer, head):
            raise ValueError(f"expected a head that this run's masks apply to, got {run.named(layer, head)}")
        self.mask.observe(self._redraw, "drawn")

    def _redraw(self, change: Any) -> None:
        strokes = tuple(map(stroke_of, (change.new or {}).get("strokes", [])))
        self.run = self.run.under(replace(self.run.masks, drawn=strokes))
        self.head.packet = self.run.head(*self._indices).canvas().packet
        self.head.query = None  # the new picture has its own; a click on the former one is then a change

    def _repr_mimebundle_(self, **how: Any) -> Any:
        from ipywidgets import HBox  # installed with anywidget

        for widget in (self.mask, self.head):  # without a width of their own; side by side where there is room
            widget.layout.flex = "1 1 20rem"
        return HBox([self.mask, self.head], layout={"flex_flow": "row wrap"})._repr_mimebundle_(**how)
