"""Real digits: scikit-learn's 1,797 pictures (UCI, Alpaydin and Kaynak 1998), in our grey levels and three parts.

scikit-learn is imported only when they are asked for: it takes a second.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from model.pixels.digits import to_levels

VALIDATION, TEST = 8, 9  # of every ten digits of a class, in scikit-learn's order from 0, these are never trained on


@dataclass(frozen=True, eq=False)
class Digits:
    """levels uint8 [N,64], 0 to 7; classes int [N], 0 to 9. Read-only."""

    levels: np.ndarray
    classes: np.ndarray


@dataclass(frozen=True, eq=False)
class RealDigits:
    """train teaches the model and the recogniser, validation picks the weights to keep, test is only measured on."""

    train: Digits
    validation: Digits
    test: Digits


@cache
def real_digits() -> RealDigits:
    """The three parts: 1,444, 177 and 176 digits."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    levels, classes = to_levels(bunch.data), bunch.target.astype(int)
    part = np.zeros(len(classes), int)
    for one in np.unique(classes):
        part[classes == one] = np.arange((classes == one).sum()) % 10

    def some(which: np.ndarray) -> Digits:
        chosen = Digits(levels[which], classes[which])
        chosen.levels.setflags(write=False)
        chosen.classes.setflags(write=False)
        return chosen

    return RealDigits(some(part < VALIDATION), some(part == VALIDATION), some(part == TEST))
