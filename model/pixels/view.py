"""The view of one pixel in a run on an image, as plain arrays. Cell 0 is the class token, cell 1 + p pixel p."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from i18n import msg
from model.heads.view import blocked_by_any


@dataclass(frozen=True, eq=False)
class PixelView:
    """The attention of one query on an image, in every head. Sizes: L layers, H heads.

    levels: uint8 [64], all of which are shown. digit: the digit of the class token. weights: float32 [L,H,65], 0 to 1,
    blocked cells 0. blocked: by the name of each mask that is on, bool [L,H,65], True = it blocks the cell. pixel: the
    selected one, 0 to 63. query: the cell that attends, 0 to 64. predicting_weights: the weights of the cell that predicts the
    pixel. chances: [8], the model's probability of each level of the pixel. losses: nats per pixel, [64]. mean_leak:
    [L,H], the share of attention to later cells, averaged over all queries; empty if not measured.
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
        """Return which cells at least one mask blocks: bool [L,H,65]."""
        return blocked_by_any(self.blocked, self.weights.shape)

    def blocking(self, layer: int, head: int, cell: int | None = None) -> list[str]:
        """Return the masks that block a cell of a head; without a cell, those that block any of its cells."""
        some = slice(None) if cell is None else cell
        return [name for name, mask in self.blocked.items() if mask[layer, head, some].any()]

    @property
    def leak(self) -> np.ndarray:
        """The share of the query's attention to later cells, [L,H]."""
        return np.asarray(self.weights[..., self.query + 1 :].sum(-1))

    @property
    def answer(self) -> float:
        """The attention, averaged over all heads, of the cell that predicts the pixel to that very pixel."""
        return float(self.predicting_weights[..., self.pixel + 1].mean())


def class_name(digit: int) -> str:
    """Return the label of a class token: "class 3"."""
    return msg("class {digit}", digit=digit)
