"""What a run predicts for one row, as plain arrays."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.trace import Trace


@dataclass(frozen=True, eq=False)
class NextTokens:
    """The likeliest next tokens, the likeliest first: tokens int64 [N], probabilities float32 [N], 0 to 1."""

    tokens: np.ndarray
    probabilities: np.ndarray


@dataclass(frozen=True, eq=False)
class Predictions(NextTokens):
    """losses: float32 [T], nats, NaN where there is none."""

    losses: np.ndarray


def logits_at(trace: Trace, row: int, position: int) -> Tensor:
    """The logits [V] of what follows the token at a position, float32."""
    with torch.inference_mode():
        return trace.readout(trace.states[row, position]).float().cpu()


def next_tokens(trace: Trace, row: int, query: int | None, most: int) -> NextTokens:
    """The likeliest tokens, `most` or all, after the position query (the row's last real one)."""
    chances = trace.next_token(row, query)
    top = chances.topk(min(most, len(chances)))
    return NextTokens(top.indices.cpu().numpy(), top.values.cpu().numpy())


def predictions(trace: Trace, row: int, query: int | None, most: int) -> Predictions:
    """The same, and the row's losses, which take every position's logits: of a long text as long as a small run."""
    found = next_tokens(trace, row, query, most)
    return Predictions(found.tokens, found.probabilities, trace.losses(row).numpy())
