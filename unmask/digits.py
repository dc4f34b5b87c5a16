"""The digits model, which reads and writes pictures of 8×8 pixels, in notebooks: unmask.digit(levels, told).

Pixels are numbered in raster order; a head's cell 0 is the class token, cell 1 + p pixel p.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from torch import nn

from model.errors import index
from model.pixels import digits
from model.pixels.digits import PIXELS, load
from unmask.checking import network_of
from unmask.masks import expect_text, spec_of
from unmask.pictures import Picture
from unmask.runs import Run
from viz.heads.cells import weight_text
from viz.pixels import head_packet, largest, name_of
from viz.saved.standalone import Canvas, page

_model = cache(load)


def digit(levels: Any, told: int, *, causal: bool | None = None, masks: Any = None) -> "DigitRun":
    """Run one forward pass on a picture. levels: 64 numbers from 0, paper, to 7, ink, or [8,8]. told: the digit that
    its class token names, 0 to 9. causal, masks: as for run. Raises ValueError for invalid arguments."""
    model = _model()
    try:
        picture = np.asarray(levels)
    except ValueError:  # rows of different lengths
        picture = np.asarray(levels, object)
    if picture.size != PIXELS or picture.dtype.kind not in "iufb" or (picture != np.floor(picture)).any():
        got = f"{picture.dtype} {list(picture.shape)}"
        raise ValueError(f"expected {PIXELS} levels, whole numbers from 0 to {digits.LEVELS - 1}, got {got}")
    batch = digits.encode(picture.reshape(1, PIXELS), [index("digit", told, digits.CLASSES)])
    spec = spec_of(model.standard, masks, causal=causal, padding=None)
    expect_text(spec, batch)
    return DigitRun(model, model.run(batch, spec))


@dataclass(frozen=True, eq=False, repr=False)
class DigitRun(Run):
    """A run whose tokens are a class and 64 pixels: all of a Run, and what a pixel attends to, on the picture."""

    def own_network(self) -> nn.Module:
        return network_of(str(digits.FOLDER))

    def pixels(self, layer: int, head: int, pixel: int) -> Picture:
        """Show what a pixel attends to in a head. Its numbers: float32 [65], of the class token, then of the pixels.

        The widget's trait `pick` is the pixel that was picked. Raises ValueError for a pixel or head that is not there.
        """
        pixel = index("pixel", pixel, PIXELS)
        self._check(layer, head)
        view = digits.pixel_view(self.trace, 0, self.masks, pixel + 1, pixel)
        weights = view.weights[layer, head]
        most = int(weights.argmax())
        seen = (
            f"most to {name_of(most, view.class_name)}, {weight_text(weights[most])}" if weights.any() else "to nothing"
        )
        line = f"{self.named(layer, head)} at {digits.name_of(pixel)}: attends {seen}"

        def canvas(picks: bool = True) -> Canvas:
            return Canvas("pixels", head_packet(view, layer, head, largest(view), picks=picks))

        axes = {"token": [name_of(one, view.class_name) for one in range(len(weights))]}
        return Picture(line, view, weights, lambda: page(line, [canvas(picks=False)]), canvas, axes=axes)
