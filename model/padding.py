"""Comparison of a padded batch with the same texts alone: which padding leaves a text's logits unchanged.

Sizes: B texts, T cells of a row, n real tokens of one text, W width, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from model.base import Model
from model.blocks import positions_under
from model.hardware import rounding
from model.masks import MaskSpec
from model.text import TokenBatch, shortened
from model.trace import Trace

Side = Literal["left", "right"]
PaddingMask = Literal["off", "keys", "both"]
PositionIds = Literal["counted", "cells"]

MAX_TEXTS = 8
MAX_TOKENS = 128  # of a text: twelve runs of the batch should finish while the user waits
BLOCK = 128  # tokens whose logits are in memory at once: with a large vocabulary 25 MB
# Relative to the largest logit. Float32 has 7 digits, and a dozen layers that sum in another order lose one to three of
# them; real effects of padding on a text are a hundred times larger or more.
ROUNDING = 1e-4


@dataclass(frozen=True)
class PaddingChoice:
    """How a batch is padded, and which masks and positions the model gets. mask "off": no mask; "keys": no token
    attends to padding; "both": nor does padding attend to any token. positions "counted": over real tokens, as usually
    derived from the mask; "cells": 0…T-1, padding counted too."""

    side: Side
    mask: PaddingMask
    positions: PositionIds

    def spec(self, causal: bool) -> MaskSpec:
        """Return the mask spec of this choice."""
        return MaskSpec(
            causal=causal, padding=self.mask != "off", padding_queries=self.mask == "both", positions=self.positions
        )


CHOICES = tuple(
    PaddingChoice(side, mask, positions)
    for side in ("right", "left")
    for positions in ("cells", "counted")
    for mask in ("off", "keys", "both")
)


@dataclass(frozen=True)
class Guess:
    """The most likely next token: its id and its probability, 0 to 1."""

    token: int
    probability: float


@dataclass(frozen=True, eq=False)
class Alone:
    """The results of each text by itself. tolerance: the largest difference of a logit that is mere rounding; guesses:
    the most likely next tokens, None for a model that predicts no next token."""

    tolerance: float
    guesses: tuple[Guess | None, ...]


@dataclass(frozen=True, eq=False)
class PaddingComparison:
    """A padded run of the texts, compared with each of them alone. apart: [B,T], the largest |logit - logit alone| of
    each real token, NaN at padding. positions: int64 [B,T], those requested. guesses: at each row's last real token;
    at_end: at its last cell, padding or not."""

    batch: TokenBatch
    positions: Tensor
    apart: Tensor
    guesses: tuple[Guess | None, ...]
    at_end: tuple[Guess | None, ...]

    def largest(self) -> list[float]:
        return [float(self.apart[row, self.batch.real(row)].max()) for row in range(len(self.apart))]


@torch.inference_mode()
def alone(model: Model, *runs: Trace) -> Alone:
    """Return the results of each text by itself under the causal mask or none, unpadded, at positions 0…n-1."""
    states = tuple(run.states[0] for run in runs)
    values = (_values(model, some) for some in torch.cat(states).split(BLOCK))
    largest = max(float(some[some.isfinite()].abs().max()) for some in values)
    tolerance = rounding(states[0].dtype, ROUNDING) * largest
    return Alone(tolerance, _guesses(model, torch.stack([some[-1] for some in states])))


@torch.inference_mode()
def compare(model: Model, texts: Sequence[str], choice: PaddingChoice, causal: bool, *runs: Trace) -> PaddingComparison:
    """Run the texts as one batch padded by choice, and compare it with runs of each by itself, as `alone` takes them.
    Raises ValueError for position ids "cells" if the model computes positions itself."""
    batch, spec = model.encode(list(texts), choice.side), choice.spec(causal)
    states = model.run(batch, spec).states
    here, expected = states[batch.keep.to(states.device)], torch.cat([run.states[0] for run in runs])  # [all n,W]
    pairs = zip(here.split(BLOCK), expected.split(BLOCK), strict=True)
    apart = torch.full(batch.ids.shape, float("nan"))
    apart[batch.keep] = torch.cat([_apart(_values(model, one), _values(model, other)) for one, other in pairs]).cpu()
    every = torch.arange(len(texts))
    last = torch.tensor([batch.real(row).stop - 1 for row in every.tolist()])
    return PaddingComparison(
        batch, positions_under(spec, batch), apart, _guesses(model, states[every, last]), _guesses(model, states[:, -1])
    )


def predicts_next(model: Model) -> bool:
    """Whether the model predicts what follows a text: an encoder's logits are about the token at their own position."""
    return model.kind != "encoder" and model.predicts


def fitting(model: Model, texts: list[str]) -> list[str]:
    """Return the first MAX_TEXTS texts, each cut after MAX_TOKENS tokens; fewer if a run would keep too much. Raises
    ValueError for a text without a token."""
    if not texts:
        return []
    cut = [shortened(text, MAX_TOKENS, model.encode) for text in texts[:MAX_TEXTS]]
    longest = min(model.encode(cut).ids.shape[1], MAX_TOKENS)
    return cut[: max(model.most_cells // longest, 1)]


def _values(model: Model, states: Tensor) -> Tensor:
    """Return the values to compare: the logits [.., V], or the last states [.., W] of a model without logits."""
    return model.readout(states).float() if model.predicts else states.float()


def _guesses(model: Model, states: Tensor) -> tuple[Guess | None, ...]:
    """Return the most likely next tokens after states [B,W]."""
    if not predicts_next(model):
        return (None,) * len(states)
    probabilities, tokens = model.readout(states).float().softmax(-1).max(-1)
    return tuple(map(Guess, tokens.tolist(), probabilities.tolist()))


def _apart(found: Tensor, expected: Tensor) -> Tensor:
    """Return the largest difference, [n,V] twice -> [n]; infinite where one is not finite, 0 where both are -inf."""
    difference = (found - expected).abs().nan_to_num(nan=float("inf"), posinf=float("inf"))
    return difference.masked_fill(found == expected, 0.0).amax(-1)
