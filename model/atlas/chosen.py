"""The sampled queries of one batch, looked at more closely: every measure of each, and its heaviest keys.

Sizes: M measures, B rows, L layers, H heads, Q queries of a block, K keys up to the last that any of them sees,
S sampled queries, s those of a block.
"""

import numpy as np
import torch
from torch import Tensor

from model.atlas.names import NAMES
from model.atlas.tally import TOP_KEYS, Sample

KEY_BITS = 32  # of an integer that holds a weight and its key


class SampledQueries:
    """chosen int64 [S,2]: the row and the position of each."""

    def __init__(self, chosen: Tensor, layers: int, heads: int) -> None:
        self._row, self._at = chosen.unbind(-1)
        self._heads = torch.arange(heads)
        self._blocks: dict[tuple[int, int], tuple[Tensor, Tensor, Tensor, Tensor]] = {}
        self._values = torch.full((layers, len(NAMES), len(chosen), heads), torch.nan)
        self._heaviest = torch.zeros(len(chosen), layers, heads, TOP_KEYS, dtype=torch.long)

    def add(self, layer: int, queries: slice, weights: Tensor, values: Tensor, counted: Tensor) -> None:
        """A block of a layer: weights [B,H,Q,K], their measures [M,B,H,Q], and where those count, bool [M,B,Q]."""
        here, row, at, places = self._of_block(queries)
        if not len(here):
            return
        measured = values.flatten(1).index_select(1, places).view(len(values), len(here), -1)  # [M,s,H]
        measured.masked_fill_(~counted[:, row, at][..., None], torch.nan)
        self._values[layer].index_copy_(1, here, measured)
        heaviest = _heaviest(weights.flatten(0, 2).index_select(0, places)).unflatten(0, (len(here), -1))
        self._heaviest[:, layer, :, : heaviest.shape[-1]].index_copy_(0, here, heaviest)

    def _of_block(self, queries: slice) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Those among the queries: which of all, row and place in the block, [s] each; and [s·H], where each head of
        theirs is among B·H·Q. Kept: the next layer has the same blocks."""
        block = queries.start, queries.stop
        if block not in self._blocks:
            here = ((self._at >= queries.start) & (self._at < queries.stop)).nonzero()[:, 0]
            row, at = self._row[here], self._at[here] - queries.start
            places = (row[:, None] * len(self._heads) + self._heads) * (queries.stop - queries.start) + at[:, None]
            self._blocks[block] = here, row, at, places.flatten()
        return self._blocks[block]

    def sample(self) -> Sample:
        """In their order. Their priorities, places and texts are for the caller to write."""
        many = len(self._row)
        weights = (self._heaviest >> KEY_BITS).int()
        keys = self._heaviest.bitwise_not().int().masked_fill_(weights == 0, -1)
        return Sample(
            np.zeros(many, np.uint64),
            np.zeros((many, 3), np.int64),
            [""] * many,
            [()] * many,
            self._values.permute(2, 1, 0, 3).contiguous().numpy(),
            keys.numpy(),
            weights.view(torch.float32).numpy(),
        )


def _heaviest(weights: Tensor) -> Tensor:
    """The TOP_KEYS keys of most weight, of equals the first, the heaviest first: [n,K] -> [n,TOP_KEYS at most].

    Each as one integer, a weight's bits above those of ~key: it rises as a weight of 0 or more does, and falls as the
    key rises. numpy sorts integers several times faster than anybody here finds five maxima and their places.
    """
    falling = torch.arange(weights.shape[-1]).bitwise_not_() & (1 << KEY_BITS) - 1
    both = weights.view(torch.int32).long().bitwise_left_shift_(KEY_BITS).add_(falling).numpy()
    both.sort()
    return torch.from_numpy(both[:, : -TOP_KEYS - 1 : -1].copy())
