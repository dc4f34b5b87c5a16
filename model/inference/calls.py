"""A text read in several calls with a cache, as inference engines do: in chunks, after a cached prefix, or one by one.

Each call computes the attention of its queries over all positions so far: a rectangle [Q,K] with Q <= K. Its mask is
the last Q rows of the K × K mask ("bottom-right", FlashAttention's convention since 2.1). A kernel that lets the first
query stand at position 0 ("top-left", is_causal of PyTorch's scaled_dot_product_attention) computes something else.
Sizes: T positions of a text, Q queries and K keys of a call.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from i18n import msg
from model.base import Model
from model.masks import MaskContext, MaskSpec
from model.text import TokenBatch

ROUNDING = 2e-5  # of the largest logit: the families of tests/model/inference stay below a fifth of it
ALIGNMENTS = {"bottom-right": MaskContext.allowed, "top-left": MaskContext.allowed_at_top_left}


@dataclass(frozen=True, eq=False)
class CallsComparison:
    """A text in several calls beside the same text in one.

    calls: each one's queries and keys. cells: int16 [T,T], the call that computed each cell of layer 0, −1 for none.
    missed, extra: how many cells of layer 0 the calls left out that one call computes, and computed that it does not.
    differences: float32 [T], for each position the largest difference between its logits and those of one call; size:
    the largest of those. losses, in_one: float32 [T], nats, NaN at the first position.
    """

    calls: list[tuple[int, int]]
    cells: np.ndarray
    missed: int
    extra: int
    differences: np.ndarray
    size: float
    losses: np.ndarray
    in_one: np.ndarray

    @property
    def difference(self) -> float:
        """The largest difference between two logits."""
        return float(self.differences.max())

    @property
    def tolerance(self) -> float:
        """Up to this a difference between logits is rounding."""
        return ROUNDING * self.size

    def numpy(self) -> np.ndarray:
        """The call that computed each cell of the first layer, −1 for none: int16 [T,T]."""
        return self.cells

    @property
    def computed(self) -> int:
        """How many cells of layer 0 were computed."""
        return int((self.cells >= 0).sum())


def ends_of(tokens: int, chunks: Sequence[int] | int, prefix: int = 0) -> list[int]:
    """Where each call ends: the first after `prefix` positions, if any, then one for each chunk.

    chunks: sizes, that together are all positions after the prefix; or one size for all, the last of which may be less.
    Raises ValueError for other sizes.
    """
    if not 0 <= prefix < tokens:
        raise ValueError(msg("expected a prefix from 0 to {most}, got {got}", most=tokens - 1, got=prefix))
    rest = tokens - prefix
    if isinstance(chunks, int):
        if chunks < 1:
            raise ValueError(msg("expected chunks of at least 1 token, got {got}", got=chunks))
        chunks = [min(chunks, rest - start) for start in range(0, rest, chunks)]
    if sum(chunks) != rest or min(chunks) < 1:
        sizes = ", ".join(map(str, chunks))
        raise ValueError(msg("expected chunks of {count} tokens together, got {sizes}", count=rest, sizes=sizes))
    return [end for end in np.cumsum([prefix, *chunks]).tolist() if end]


@torch.inference_mode()
def compare_calls(
    model: Model, batch: TokenBatch, spec: MaskSpec, ends: Sequence[int], align: str = "bottom-right"
) -> CallsComparison:
    """The only row of a batch, read up to one of `ends` after the other, beside one call under the same masks.

    Raises ValueError for another alignment than ALIGNMENTS, and what Model.run_calls raises.
    """
    if align not in ALIGNMENTS:
        raise ValueError(msg("expected an alignment of {names}, got {got}", names=", ".join(ALIGNMENTS), got=align))
    trace = model.run(batch, spec)
    states = model.run_calls(batch, spec, ends, ALIGNMENTS[align])
    ours, theirs = model.readout(states)[0].float(), model.readout(trace.states)[0].float()
    right = trace.allowed(0).numpy()
    cells, done = _cells(right, ends, align)
    return CallsComparison(
        calls=[(end - start, end) for start, end in pairwise([0, *ends])],
        cells=cells,
        missed=int((right & ~done).sum()),
        extra=int((done & ~right).sum()),
        differences=(ours - theirs).abs().amax(-1).cpu().numpy(),
        size=float(theirs.abs().max()),
        losses=_losses(ours, batch.ids[0]),
        in_one=_losses(theirs, batch.ids[0]),
    )


def _cells(right: np.ndarray, ends: Sequence[int], align: str) -> tuple[np.ndarray, np.ndarray]:
    """The call that computed each cell, and whether any did, where `right` is the mask of one call, bool [T,T]."""
    cells = np.full(right.shape, -1, np.int16)
    for number, (start, end) in enumerate(pairwise([0, *ends])):
        rows = slice(start, end) if align == "bottom-right" else slice(0, end - start)
        cells[start:end, :end][right[rows, :end]] = number
    return cells, cells >= 0


def _losses(logits: Tensor, ids: Tensor) -> np.ndarray:
    """float32 [T], nats: of each token after the ones before it."""
    given = ids[1:].to(logits.device)
    found = torch.nn.functional.cross_entropy(logits[:-1], given, reduction="none")
    return np.concatenate([[np.nan], found.cpu().numpy()]).astype(np.float32)
