"""Writing digits: sampling pixels in raster order, from nothing or from where a reader's drawing ends.

Sizes: N digits, P pixels given.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model import masks, sampling
from model.blocks import KeysValues
from model.pixels.digits import CLASSES, PIXELS, DigitsModel, to_ids
from model.sampling import Sampling

Kept = list[KeysValues]  # each layer's, of what was read
TEMPERATURE, TOP_P = 0.8, 1.0  # what the card's numbers are measured with


@dataclass(frozen=True)
class Draw:
    """How pixels are drawn: logits ÷ temperature, then the likeliest levels that together reach top_p.

    temperature 0 takes the likeliest level; top_p from 0 (without) to 1 (all levels). One seed, one set of digits.
    """

    temperature: float = TEMPERATURE
    top_p: float = TOP_P
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 10:
            raise ValueError(f"expected a temperature from 0 to 10, got {self.temperature}")  # not shown
        if not 0 < self.top_p <= 1:
            raise ValueError(f"expected a top-p above 0 and at most 1, got {self.top_p}")  # not shown


def write(
    model: DigitsModel,
    classes: Sequence[int] | np.ndarray,
    draw: Draw | None = None,
    given: np.ndarray | None = None,
) -> np.ndarray:
    """Digits of these classes [N], N ≥ 1: uint8 [N,64]. given: levels [N,P] that every digit begins with.

    Under the causal mask a pixel needs no pixel after it, so they are written one by one, all digits at once.
    Digit n draws the same random numbers whatever the others are.
    """
    draw = draw or Draw()
    how = Sampling(draw.temperature, 0, draw.top_p)
    ids = to_ids(np.zeros((len(classes), 0)) if given is None else given, classes)
    chances = torch.stack([_chances(draw.seed, row) for row in range(len(ids))])
    unread, kept = ids, None
    for pixel in range(ids.shape[1] - 1, PIXELS):
        logits, kept = read_on(model, unread, kept)
        unread = sampling.pick(sampling.distribution(logits, how), chances[:, pixel])[:, None] + CLASSES
        ids = torch.cat([ids, unread], dim=1)
    return (ids[:, 1:] - CLASSES).numpy().astype(np.uint8)


@torch.inference_mode()
def read_on(model: DigitsModel, ids: Tensor, kept: Kept | None = None) -> tuple[Tensor, Kept]:
    """Read ids [N,T] after what was read before -> logits [N,8] of the next pixel's grey level, and what to keep.

    Kept are each layer's keys and values, for under the causal mask what was read does not change any more. Classes,
    which can follow nothing, are left out of the logits.
    """
    before = kept[0][0].shape[2] if kept else 0
    length = before + ids.shape[1]
    allowed = masks.causal(ids.shape[1], length)[None, None] if ids.shape[1] > 1 else None
    states, qkvs = model.network(ids, torch.arange(before, length), allowed, kept)
    return model.readout(states[:, -1]).float()[:, CLASSES:], [(k, v) for _, k, v in qkvs]


def _chances(seed: int, row: int) -> Tensor:
    """The random numbers [64] of a digit, its own whatever else is written."""
    return torch.from_numpy(np.random.default_rng((seed, row)).random(PIXELS)).float()


@torch.inference_mode()
def class_chances(model: DigitsModel, given: np.ndarray) -> np.ndarray:
    """How likely each class is for what is drawn, levels [P] -> [10], by Bayes' rule from alike chances.

    The probability that the model writes these pixels after each class token, scaled to sum to 1.
    """
    levels = np.repeat(np.asarray(given)[None], CLASSES, axis=0)
    ids = to_ids(levels, range(CLASSES))
    length = ids.shape[1]
    states, _ = model.network(ids, torch.arange(length), masks.causal(length, length)[None, None])
    chances = model.readout(states[:, :-1]).float().log_softmax(-1)
    total = chances.gather(-1, ids[:, 1:, None])[..., 0].double().sum(-1)
    return total.softmax(0).numpy()
