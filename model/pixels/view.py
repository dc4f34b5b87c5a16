"""What a run on a picture has to show of one pixel, as plain arrays. Cell 0 is the class token, cell 1 + p pixel p."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from i18n import msg
from model.heads.view import blocked_by_any


@dataclass(frozen=True, eq=False)
class PixelView:
    """What one query looks at on a picture, in every head. Sizes: L layers, H heads.

    levels: uint8 [64], of which all are shown. digit: the digit that the class token says.
    weights: float32 [L,H,65], 0 to 1, blocked cells 0. blocked: by the name of each mask that is on bool [L,H,65],
    True = it blocks the cell.
    pixel: the one picked, 0 to 63. query: the cell that looks, 0 to 64. predicting_weights: the weights of the cell that writes the
    pixel. chances: [8], how likely the model finds each level of the pixel. losses: nats a pixel, [64].
    mean_leak: [L,H], the share of attention on later cells on average over all queries; empty where not measured.
    """

    levels: np.ndarray
    digit: int
    weights: np.ndarray
    blocked: Mapping[str, np.ndarray]
    pixel: int
    query: int
    predicting_weights: np.ndarray
    chances: np.ndarray
    losses: np.ndarray
    mean_leak: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))

    @property
    def class_name(self) -> str:
        return class_name(self.digit)

    def any_blocked(self) -> np.ndarray:
        """bool [L,H,65], True where at least one mask blocks the cell."""
        return blocked_by_any(self.blocked, self.weights.shape)

    def blocking(self, layer: int, head: int, cell: int | None = None) -> list[str]:
        """The masks that block a cell of a head, or one of its cells at least."""
        some = slice(None) if cell is None else cell
        return [name for name, mask in self.blocked.items() if mask[layer, head, some].any()]

    @property
    def leak(self) -> np.ndarray:
        """[L,H], the share of the query's attention on later cells."""
        return np.asarray(self.weights[..., self.query + 1 :].sum(-1))

    @property
    def answer(self) -> float:
        """The share of attention, mean of all heads, that the cell which writes the pixel puts on that very pixel."""
        return float(self.predicting_weights[..., self.pixel + 1].mean())


def class_name(digit: int) -> str:
    """What a class token says: "class 3"."""
    return msg("class {digit}", digit=digit)
