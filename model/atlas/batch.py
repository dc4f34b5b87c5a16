"""The measures of one batch of rows: a forward pass, and every head's weights a block of queries at a time.

Sizes: M measures, B rows, L layers, H heads, T positions, Q queries of a block, K keys up to the last that any of them
sees, C the longest row of the atlas, N different tokens of the batch, S sampled queries.
"""

import math

import numpy as np
import torch
from torch import Tensor

from model.atlas.result import NAMES
from model.atlas.tally import TOP_KEYS, Sample, Tally
from model.base import Model
from model.heads import measures
from model.masks import AllowedCache, MaskSpec
from model.text import TokenBatch

BITS = math.log2(math.e)  # times the scores: exp2 then gives weights, and entropies are in bits
Known = dict[str, Tensor]  # measures by their names, [B,H,Q] each
BLOCKED = -1e30  # a score whose weight is 0, and whose product with a weight of 0 is 0
KEY_BITS = 32  # of the 64 bits of an integer that holds a weight and its key, those of the key
BLOCK_BYTES = 4 * 2**20  # of weights: several sums pass over them, so a block should stay in the cache


def softmax2(scores: Tensor, mask: Tensor | None, choice: Tensor, sinks: Tensor | None) -> tuple[Tensor, Known]:
    """Return the weights [B,H,Q,K], and the peak and the entropy of each row; overwrites scores [B,H,Q,K], in BITS.
    mask: broadcastable to them, 0 where a cell is allowed and BLOCKED elsewhere. choice: bool [B,Q]; the weights of all
    other queries are 0. sinks: [H] or [B,H,Q,1], one more score per row, whose weight is left out."""
    if mask is not None:
        scores.add_(mask)
    first, others = scores[..., :1], scores[..., 1:]
    second = others.amax(-1, keepdim=True) if others.numel() else torch.full_like(first, BLOCKED)
    largest = torch.maximum(first, second)
    if sinks is not None:
        sinks = sinks.view(-1, 1, 1) if sinks.ndim == 1 else sinks
        largest = torch.maximum(largest, sinks)
    scores.sub_(largest)
    weights = scores.exp2()
    total = weights.sum(-1, keepdim=True)
    whole = total if sinks is None else total + (sinks - largest).exp2()
    part = choice[:, None, :, None] / whole
    weights.mul_(part)
    left = total.clamp(min=measures.EPSILON)
    entropy = choice[:, None, :, None] * left.log2() - torch.linalg.vecdot(weights, scores)[..., None] * whole / left
    entropy.clamp_(min=0)  # for a row whose weight a sink takes entirely
    peak = (second - largest).exp2() * part
    return weights, {"peak": peak[..., 0], "entropy": entropy[..., 0]}


class BatchFacts:
    """The facts about a batch that measures need, the same for every head."""

    def __init__(self, batch: TokenBatch, punctuation: Tensor) -> None:
        """punctuation: bool [B,T], True where a token is punctuation only."""
        self.keep = batch.keep
        self.position = torch.arange(batch.ids.shape[1])
        ids = batch.ids.where(batch.keep, -1)  # independent of the padding id
        self.followers = measures.followers(ids)  # [B,T]
        self.same_before = measures.same_before(ids) & batch.keep[:, :, None]
        self.punctuation = punctuation & batch.keep
        near = [self.position - 1, self.position, self.followers]  # the keys of previous, same and induction
        self._near = torch.stack(torch.broadcast_tensors(*near), -1).clamp(min=0)  # [B,T,3]
        self._earlier = self.same_before[:, None].float()  # [B,1,T,T]
        at = self.position.expand_as(batch.ids)
        self._of_keys = torch.stack([torch.ones_like(at), at, self.punctuation], 1).float()  # [B,3,T]

    def values(self, weights: Tensor, queries: slice, known: Known | None = None, *, ahead: bool) -> Tensor:
        """Compute every measure at every query, weights [B,H,Q,K] -> [M,B,H,Q]; any number where it does not count.
        known: peak and entropy, if computed already. ahead: whether any query may attend to a later token."""
        rows, heads, many, seen = weights.shape
        here = self.position[queries]  # [Q]
        near = self._near[:, None, queries].clamp(max=seen - 1).expand(-1, heads, -1, -1)
        previous, same, induction = weights.gather(-1, near).unbind(-1)
        summed = self._of_keys[:, :, :seen] @ weights.flatten(1, 2).mT  # [B,3,H·Q]
        total, at, punctuation = summed.view(rows, 3, heads, many).unbind(1)
        distance, leak = here * total - at, torch.zeros_like(total)
        if ahead:
            far = (self.position[:seen] - here[:, None]).clamp(min=0).float()  # [Q,K]
            distance = distance + 2 * (weights * far).sum(-1)
            leak = (weights * (far > 0)).sum(-1)
        if known is None:
            peak = weights[..., 1:].amax(-1) if seen > 1 else torch.zeros_like(weights[..., 0])
            known = {"peak": peak, "entropy": measures.row_entropy(weights)}
        found = known | {
            "previous": previous,
            "first": weights[..., 0],
            "same": same,
            "duplicate": torch.linalg.vecdot(weights, self._earlier[:, :, queries, :seen]),
            "induction": induction,
            "punctuation": punctuation,
            "leak": leak,
            "distance": distance / total.clamp(min=1e-9),  # sinks may leave less than 1
        }
        return torch.stack([found[name] for name in NAMES])

    def counts(self, allowed: Tensor, queries: slice) -> Tensor:
        """Return where each measure counts: allowed bool [1 or B, 1, T, T] -> bool [M,B,Q]."""
        rows = len(self.keep)
        cells = allowed[:, 0, queries] & self.keep[:, None, :]  # [B,Q,T]
        choice = self.keep[:, queries] & (cells.sum(-1) > 1)
        here = self.position[queries]
        counted = {
            "previous": self._is_open(cells, (here - 1).expand(rows, -1)) & (here > 1),
            "first": cells[..., 0] & (here > 0),
            "same": self._is_open(cells, here.expand(rows, -1)),
            "duplicate": (cells & self.same_before[:, queries]).any(-1),
            "induction": self._is_open(cells, self.followers[:, queries]),
            "punctuation": (cells & self.punctuation[:, None, :]).any(-1),
        }
        return torch.stack([choice & counted[name] if name in counted else choice for name in NAMES])

    @staticmethod
    def _is_open(cells: Tensor, key: Tensor) -> Tensor:
        """Return whether each query may attend to one key: cells [B,Q,K], key [B,Q] -> bool [B,Q]."""
        seen = cells.shape[-1]
        found = cells.gather(-1, key.clamp(0, seen - 1)[..., None])[..., 0]
        return found & (key >= 0) & (key < seen)


class SampledQueries:
    """The measures and heaviest keys of sampled queries. chosen: int64 [S,2], the row and the position of each."""

    def __init__(self, chosen: Tensor, layers: int, heads: int) -> None:
        self._row, self._at = chosen.unbind(-1)
        self._heads = torch.arange(heads)
        self._blocks: dict[tuple[int, int], tuple[Tensor, Tensor, Tensor, Tensor]] = {}
        self._values = torch.full((layers, len(NAMES), len(chosen), heads), torch.nan)
        self._heaviest = torch.zeros(len(chosen), layers, heads, TOP_KEYS, dtype=torch.long)

    def add(self, layer: int, queries: slice, weights: Tensor, values: Tensor, counted: Tensor) -> None:
        """Add a block of a layer: weights [B,H,Q,K], their measures [M,B,H,Q], and where those count, bool [M,B,Q]."""
        block = queries.start, queries.stop
        if block not in self._blocks:  # cached: the next layer has the same blocks
            here = ((self._at >= queries.start) & (self._at < queries.stop)).nonzero()[:, 0]
            row, at = self._row[here], self._at[here] - queries.start
            index = (row[:, None] * len(self._heads) + self._heads) * (queries.stop - queries.start) + at[:, None]
            self._blocks[block] = here, row, at, index.flatten()
        here, row, at, index = self._blocks[block]  # [s] each; the index of each of their heads among B·H·Q, [s·H]
        if not len(here):
            return
        measured = values.flatten(1).index_select(1, index).view(len(values), len(here), -1)  # [M,s,H]
        measured.masked_fill_(~counted[:, row, at][..., None], torch.nan)
        self._values[layer].index_copy_(1, here, measured)
        heaviest = _heaviest(weights.flatten(0, 2).index_select(0, index)).unflatten(0, (len(here), -1))
        self._heaviest[:, layer, :, : heaviest.shape[-1]].index_copy_(0, here, heaviest)

    def sample(self) -> Sample:
        """Return the sample, in order. The caller sets its priorities, places and texts."""
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
    """Return the TOP_KEYS keys of largest weight, of equals the first, in descending order: [n,K] -> [n,TOP_KEYS at
    most], each as one integer, a weight's bits above those of ~key: NumPy sorts those several times faster than any
    maximum search that was tried."""
    falling = torch.arange(weights.shape[-1]).bitwise_not_() & (1 << KEY_BITS) - 1
    both = weights.view(torch.int32).long().bitwise_left_shift_(KEY_BITS).add_(falling).numpy()
    both.sort()
    return torch.from_numpy(both[:, : -TOP_KEYS - 1 : -1].copy())


def measure_batch(
    model: Model, batch: TokenBatch, punctuation: Tensor, masks: MaskSpec, length: int, chosen: Tensor
) -> tuple[Tally, Sample]:
    """Measure a batch. punctuation bool [B,T]; length: C; chosen int64 [S,2]: row and position of the sampled queries.
    The tally's sample is empty; the caller sets the sample's priorities, places and texts."""
    trace = model.run(batch, masks)
    facts = BatchFacts(batch, punctuation)
    made: AllowedCache = {}  # layers under the same masks share them
    sums = _Sums(facts, batch, length, trace.num_layers, trace.num_heads, chosen)
    grounds: dict[int, _MaskFacts] = {}
    for layer, record in enumerate(trace.layers):
        allowed = record.context.allowed(masks, made)
        ground = grounds.get(id(allowed))  # `made` holds it, so its id stays unique
        if ground is None:
            here = None if allowed is None else allowed.cpu()
            ground = grounds[id(allowed)] = _MaskFacts(facts, here, batch, length, trace.num_heads)
        for queries in ground.blocks:
            scores, sinks = record.batch_scores(queries, ground.seen(queries), times=BITS)
            sinks = None if sinks is None else sinks.cpu()
            sums.add(layer, queries, *softmax2(scores.cpu(), *ground.masks(queries), sinks), ground)
        sums.finish(layer, ground)
    return sums.tally(), sums.chosen.sample()


class _MaskFacts:
    """The data shared by all heads under one mask: where each measure counts, and its values for uniform weights."""

    def __init__(self, facts: BatchFacts, allowed: Tensor | None, batch: TokenBatch, length: int, heads: int) -> None:
        rows, size = batch.ids.shape
        every = torch.ones(1, 1, 1, 1, dtype=torch.bool) if allowed is None else allowed[:, :1]
        free = every.expand(-1, -1, size, size)
        step = max(BLOCK_BYTES // (4 * rows * heads * size), 1)
        self.blocks = [slice(begin, min(begin + step, size)) for begin in range(0, size, step)]
        self._mask = None if allowed is None else torch.zeros(allowed.shape).masked_fill_(~allowed, BLOCKED)
        self._last = free.any(0).any(0).int().flip(-1).argmax(-1).neg() + size - 1  # [T], the last visible key
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
            values = facts.values(even, queries, ahead=self.ahead)
            self.uniform += (values * self.counted[:, :, None, queries]).sum((1, 3))
            _add_by_offset(self.cells, cells.sum(0), queries)
            _add_by_offset(self.even, even.sum(0), queries)

    def seen(self, queries: slice) -> int:
        return int(self._last[queries].max()) + 1

    def masks(self, queries: slice) -> tuple[Tensor | None, Tensor]:
        """Return what is added to the queries' scores on the visible keys, and which of the queries have a choice."""
        choice = self.choice[:, queries]
        if self._mask is None:
            return None, choice
        rows = self._mask if self._mask.shape[2] == 1 else self._mask[:, :, queries]
        return rows if rows.shape[3] == 1 else rows[..., : self.seen(queries)], choice


class _Sums:
    """The sums over the blocks of a batch."""

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
        self._by_position = torch.zeros(2, heads, rows, size)  # the same for the current layer, by position
        self._offsets = torch.zeros(layers, heads, 2 * length - 1)
        self._sums = torch.zeros(len(NAMES), layers, heads)

    def add(self, layer: int, queries: slice, weights: Tensor, known: Known, ground: _MaskFacts) -> None:
        """Add weights [B,H,Q,K] and their known measures; all blocks of a layer must come in order."""
        values = self._facts.values(weights, queries, known, ahead=ground.ahead)
        counted = ground.counted[..., queries]
        self._sums[:, layer] += (values * counted[:, :, None]).sum((1, 3))
        _add_by_offset(self._offsets[layer], weights.sum(0), queries)
        self._by_position[0, ..., : weights.shape[-1]] += weights.sum(2).transpose(0, 1)
        self._by_position[1, ..., queries] = known["peak"].transpose(0, 1)
        self.chosen.add(layer, queries, weights, values, counted)

    def finish(self, layer: int, ground: _MaskFacts) -> None:
        tokens = self._token_of.flatten()
        self._by_token[layer].index_add_(-1, tokens, self._by_position.flatten(2))
        self._by_position.zero_()
        self._query_count[layer].index_add_(0, tokens, ground.choice.flatten().long())
        self._tally.counts[:, layer] = ground.counts
        self._tally.uniform[:, layer] = ground.uniform[:, 0]
        self._tally.cells[layer], self._tally.even[layer] = ground.cells[0], ground.even[0]

    def tally(self) -> Tally:
        result = self._tally
        result.sums, result.offsets = self._sums.double().numpy(), self._offsets.double().numpy()
        result.tokens = self._tokens
        result.key_weight, result.query_peak = self._by_token.transpose(0, 1).numpy()
        real = self._token_of[self._batch.keep]
        result.key_count = torch.bincount(real, minlength=len(self._tokens)).numpy()
        result.query_count = self._query_count.numpy()
        return result


def _add_by_offset(total: Tensor, weights: Tensor, queries: slice) -> None:
    """Add weights [H,Q,K] to total [H,2C-1], each at its key - query + C - 1."""
    middle = total.shape[-1] // 2
    keys = torch.arange(weights.shape[-1])
    offset = keys - torch.arange(queries.start, queries.stop)[:, None] + middle  # [Q,K]
    total.index_add_(1, offset.flatten(), weights.flatten(1))
