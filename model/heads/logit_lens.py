"""The logit lens (nostalgebraist 2020): what a model would predict if it stopped after each layer.

The residual stream after a layer goes through the network's own last steps, its final norm and its unembedding, as if
no layer followed. Before the last layer nothing was trained to be read like this.
Sizes: L layers, P positions, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from model.base import Model
from model.masks import MaskSpec
from model.text import TokenBatch

TOP = 5  # candidates kept at each place
MOST_POSITIONS = 128  # read at once: each costs L+1 rows of V logits
BLOCK = 128  # positions whose logits are in memory at a time


@dataclass(frozen=True, eq=False)
class LogitLens:
    """What each layer would predict to follow each of P tokens. Reading 0 is of what enters the first layer, reading n
    of what leaves the n-th layer; the last is the model's own prediction.

    ids: int64 [L+1,P,TOP], the likeliest first; probabilities: float32, of the same. next_ids: [P], the token that
    follows in the text, -1 where none does; next_probabilities: float32 [L+1,P], NaN where none does. next_ranks: int64
    [L+1,P], 1 for the likeliest; 0 where none follows. labels: what to show for an id.
    """

    ids: np.ndarray
    probabilities: np.ndarray
    next_ids: np.ndarray
    next_probabilities: np.ndarray
    next_ranks: np.ndarray
    labels: dict[int, str]

    def settled(self, place: int) -> int:
        """The first reading from which on all have the model's own prediction on top; place: of the P."""
        same = self.ids[:, place, 0] == self.ids[-1, place, 0]
        return len(same) - int(np.argmin(same[::-1])) if not same.all() else 0


@torch.inference_mode()
def logit_lens(model: Model, batch: TokenBatch, spec: MaskSpec, row: int, positions: Sequence[int]) -> LogitLens:
    """Of some positions of one row, run under spec.

    Raises ValueError for no position or more than MOST_POSITIONS, NotSupported (a kind of it) for a model whose
    residual stream or whose last steps are not known.
    """
    if not 0 < len(positions) <= MOST_POSITIONS:
        raise ValueError(f"expected 1 to {MOST_POSITIONS} positions, got {len(positions)}")  # not shown
    alone = batch.rows([row])
    read = model.residuals(alone, spec)
    here, real = torch.tensor(positions), alone.real(0)
    following = torch.full((alone.ids.shape[1],), -1)
    following[real.start : real.stop - 1] = alone.ids[0, real.start + 1 : real.stop]
    wanted = following[here]
    found = []
    for stream in read.streams:
        logits = torch.cat([
            model.readout(read.final(part)).float().cpu() for part in stream[0, here].split(BLOCK)
        ])  # fmt: skip
        shares = logits.softmax(-1)  # [P,V]
        top = shares.topk(min(TOP, shares.shape[-1]))
        chance = shares.gather(-1, wanted.clamp(min=0)[:, None])
        given = logits.gather(-1, wanted.clamp(min=0)[:, None])
        ranks = (1 + (logits > given).sum(-1)).masked_fill(wanted < 0, 0)  # many probabilities are rounded to 0
        found.append((top.indices, top.values, chance[:, 0].masked_fill(wanted < 0, torch.nan), ranks))
    ids, probabilities, chances, places = (torch.stack(some).numpy() for some in zip(*found, strict=True))
    shown = sorted({*ids.ravel().tolist(), *wanted[wanted >= 0].tolist()})
    labels = {token: model.label(token) for token in shown}
    return LogitLens(ids, probabilities, wanted.numpy(), chances, places, labels)
