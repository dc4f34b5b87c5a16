"""One batch of rows on its way into a tally: a forward pass, and every head's weights a block of queries at a time.

Sizes: M measures, B rows, L layers, H heads, T positions, Q queries of a block, K keys up to the last that any of them
sees, C the longest row of the atlas, N different tokens of the batch, S sampled queries.
"""

import numpy as np
import torch
from torch import Tensor

from model.atlas.measures import BITS, BLOCKED, BatchFacts, Known, softmax2
from model.atlas.result import NAMES
from model.atlas.tally import TOP_KEYS, Sample, Tally
from model.base import Model
from model.masks import AllowedCache, MaskSpec
from model.text import TokenBatch

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


BLOCK_BYTES = 4 * 2**20  # of weights: they pass through several sums, and should not leave the cache in between


def measure_batch(
    model: Model, batch: TokenBatch, punctuation: Tensor, masks: MaskSpec, length: int, chosen: Tensor
) -> tuple[Tally, Sample]:
    """punctuation bool [B,T]; length: C; chosen int64 [S,2]: row and position of the sampled queries.

    The tally's sample is empty; the sample's priorities, places and texts are for the caller to write.
    """
    trace = model.run(batch, masks)
    facts = BatchFacts(batch, punctuation)
    made: AllowedCache = {}  # layers under the same masks share them
    sums = _Sums(facts, batch, length, trace.num_layers, trace.num_heads, chosen)
    grounds: dict[int, _Ground] = {}
    for layer, record in enumerate(trace.layers):
        allowed = record.context.allowed(masks, made)
        ground = grounds.get(id(allowed))  # `made` holds it, so its id stays its own
        if ground is None:
            ground = grounds[id(allowed)] = _Ground(facts, allowed, batch, length, trace.num_heads)
        for queries in ground.blocks:
            scores, sinks = record.batch_scores(queries, ground.seen(queries), times=BITS)
            sums.add(layer, queries, *softmax2(scores, *ground.masks(queries), sinks), ground)
        sums.finish(layer, ground)
    return sums.tally(), sums.chosen.sample()


class _Ground:
    """What holds for every head under one mask: where each measure counts, and what a head gets that looks evenly."""

    def __init__(self, facts: BatchFacts, allowed: Tensor | None, batch: TokenBatch, length: int, heads: int) -> None:
        rows, size = batch.ids.shape
        every = torch.ones(1, 1, 1, 1, dtype=torch.bool) if allowed is None else allowed[:, :1]
        free = every.expand(-1, -1, size, size)
        step = max(BLOCK_BYTES // (4 * rows * heads * size), 1)
        self.blocks = [slice(begin, min(begin + step, size)) for begin in range(0, size, step)]
        self._mask = None if allowed is None else torch.zeros(allowed.shape).masked_fill_(~allowed, BLOCKED)
        self._last = free.any(0).any(0).int().flip(-1).argmax(-1).neg() + size - 1  # [T], the last key a query sees
        self.counted = torch.cat([facts.counts(free, queries) for queries in self.blocks], -1)  # [M,B,T]
        self.counts = self.counted.sum((1, 2))  # [M]
        self.ahead = bool(free.triu(1).any())
        self.choice = self.counted[NAMES.index("entropy")]  # [B,T]
        self.uniform = torch.zeros(len(NAMES), 1)
        self.cells, self.even = torch.zeros(1, 2 * length - 1), torch.zeros(1, 2 * length - 1)
        for queries in self.blocks:
            cells = (free[:, :, queries] & batch.keep[:, None, None, :]).float()  # [B,1,Q,T]
            cells = cells * self.choice[:, None, queries, None]
            even = cells / cells.sum(-1, keepdim=True).clamp(min=1)
            self.uniform += _sum(facts.values(even, queries, ahead=self.ahead), self.counted[..., queries])
            _add_by_offset(self.cells, cells.sum(0), queries)
            _add_by_offset(self.even, even.sum(0), queries)

    def seen(self, queries: slice) -> int:
        """Up to which key any of some queries sees."""
        return int(self._last[queries].max()) + 1

    def masks(self, queries: slice) -> tuple[Tensor | None, Tensor]:
        """What is added to their scores on the keys up to there, and which of them have a choice."""
        choice = self.choice[:, queries]
        if self._mask is None:
            return None, choice
        rows = self._mask if self._mask.shape[2] == 1 else self._mask[:, :, queries]
        return rows if rows.shape[3] == 1 else rows[..., : self.seen(queries)], choice


class _Sums:
    """What the blocks of a batch add up to."""

    def __init__(
        self, facts: BatchFacts, batch: TokenBatch, length: int, layers: int, heads: int, chosen: Tensor
    ) -> None:
        self._facts, self._batch = facts, batch
        self.chosen = SampledQueries(chosen, layers, heads)
        self._tally = Tally.empty(len(NAMES), layers, heads, length)
        tokens, self._token_of = batch.ids.unique(return_inverse=True)
        self._tokens = tokens.numpy()
        self._by_token = torch.zeros(layers, 2, heads, len(tokens))  # the weight that keys get, the peaks of queries
        self._query_count = torch.zeros(layers, len(tokens), dtype=torch.long)
        rows, size = batch.ids.shape
        self._by_place = torch.zeros(2, heads, rows, size)  # the same of the layer that is going on
        self._offsets = torch.zeros(layers, heads, 2 * length - 1)
        self._sums = torch.zeros(len(NAMES), layers, heads)

    def add(self, layer: int, queries: slice, weights: Tensor, known: Known, ground: _Ground) -> None:
        """weights [B,H,Q,K] and what is known of them, all of the layer's blocks in turn."""
        values = self._facts.values(weights, queries, known, ahead=ground.ahead)
        counted = ground.counted[..., queries]
        self._sums[:, layer] += _sum(values, counted)
        _add_by_offset(self._offsets[layer], weights.sum(0), queries)
        self._by_place[0, ..., : weights.shape[-1]] += weights.sum(2).transpose(0, 1)
        self._by_place[1, ..., queries] = known["peak"].transpose(0, 1)
        self.chosen.add(layer, queries, weights, values, counted)

    def finish(self, layer: int, ground: _Ground) -> None:
        """Once every block of the layer was added."""
        tokens = self._token_of.flatten()
        self._by_token[layer].index_add_(-1, tokens, self._by_place.flatten(2))
        self._by_place.zero_()
        self._query_count[layer].index_add_(0, tokens, ground.choice.flatten().long())
        self._tally.counts[:, layer] = ground.counts
        self._tally.uniform[:, layer] = ground.uniform[:, 0]
        self._tally.cells[layer], self._tally.even[layer] = ground.cells[0], ground.even[0]

    def tally(self) -> Tally:
        """All but its sample."""
        result = self._tally
        result.sums, result.offsets = self._sums.double().numpy(), self._offsets.double().numpy()
        result.tokens = self._tokens
        result.key_weight, result.query_peak = self._by_token.transpose(0, 1).numpy()
        real = self._token_of[self._batch.keep]
        result.key_count = torch.bincount(real, minlength=len(self._tokens)).numpy()
        result.query_count = self._query_count.numpy()
        return result


def _sum(values: Tensor, counted: Tensor) -> Tensor:
    """Over the queries where a measure counts: values [M,B,H,Q], counted [M,B,Q] -> [M,H]."""
    return (values * counted[:, :, None]).sum((1, 3))


def _add_by_offset(total: Tensor, weights: Tensor, queries: slice) -> None:
    """total [H,2C-1] += weights [H,Q,K], each at its key - query + C - 1."""
    middle = total.shape[-1] // 2
    keys = torch.arange(weights.shape[-1])
    offset = keys - torch.arange(queries.start, queries.stop)[:, None] + middle  # [Q,K]
    total.index_add_(1, offset.flatten(), weights.flatten(1))
