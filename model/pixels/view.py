"""What a run on a picture has to show of one pixel, as plain arrays. Cell 0 is the class token, cell 1 + p pixel p."""

from dataclasses import dataclass, field

import numpy as np

from i18n import msg


@dataclass(frozen=True, eq=False)
class PixelView:
    """What one query looks at on a picture, in every head. Sizes: L layers, H heads.

    levels: uint8 [64], of which all are shown. told: the digit that the class token says.
    weights: float32 [L,H,65], 0 to 1, blocked cells 0. blocked: bool [65], True = the causal mask blocks the cell.
    pixel: the one picked, 0 to 63. query: the cell that looks, 0 to 64. writer: the weights of the cell that writes the
    pixel. chances: [8], how likely the model finds each level of the pixel. losses: nats a pixel, [64].
    mean_leak: [L,H], the share of attention on later cells on average over all queries; empty where not measured.
    """

    levels: np.ndarray
    told: int
    weights: np.ndarray
    blocked: np.ndarray
    pixel: int
    query: int
    writer: np.ndarray
    chances: np.ndarray
    losses: np.ndarray
    mean_leak: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))

    @property
    def class_name(self) -> str:
        return class_name(self.told)

    @property
    def leak(self) -> np.ndarray:
        """[L,H], the share of the query's attention on later cells."""
        return np.asarray(self.weights[..., self.query + 1 :].sum(-1))

    @property
    def answer(self) -> float:
        """The share of attention, mean of all heads, that the cell which writes the pixel puts on that very pixel."""
        return float(self.writer[..., self.pixel + 1].mean())


def class_name(digit: int) -> str:
    """What a class token says: "class 3"."""
    return msg("class {digit}", digit=digit)
