"""What a run predicts for one row, as plain arrays."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.trace import Trace


@dataclass(frozen=True, eq=False)
class Predictions:
    """losses: float32 [T], nats, NaN where there is none. tokens int64 [N], probabilities float32 [N], 0 to 1: the
    likeliest next tokens, the likeliest first.
    """

    losses: np.ndarray
    tokens: np.ndarray
    probabilities: np.ndarray


def logits_at(trace: Trace, row: int, position: int) -> Tensor:
    """The logits [V] of what follows the token at a position, float32."""
    with torch.inference_mode():
        return trace.readout(trace.states[row, position]).float().cpu()


def predictions(trace: Trace, row: int, query: int | None, most: int) -> Predictions:
    """The row's losses, and the likeliest tokens, `most` or all, after the position query (its last real one)."""
    chances = trace.next_token(row, query)
    top = chances.topk(min(most, len(chances)))
    return Predictions(trace.losses(row).numpy(), top.indices.cpu().numpy(), top.values.cpu().numpy())
