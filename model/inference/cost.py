"""What a mask costs a kernel that skips blocks of scores, without a model and without a T × T tensor.

A block-sparse kernel (FlexAttention, FlashAttention) divides the T × T scores into blocks of B × B. It skips the empty
ones, computes the full ones as they are, and computes the partial ones whole to mask some of their scores afterwards.

The counts are exact. A kind of mask depends either on the distance from query to key alone, or is constant between a
few borders. Between the borders of all kinds, drawn strokes and blocks, how many cells of a rectangle are allowed
follows from the second cumulative sum over distances: with F(n) the sum over m < n of how many distances below m are
allowed, queries q0 … q1 - 1 and keys k0 … k1 - 1 have
F(q1 - k0 + 1) - F(q0 - k0 + 1) - F(q1 - k1 + 1) + F(q0 - k1 + 1) allowed cells.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.errors import index
from model.mask_kinds import KINDS, Cells
from model.spec import MaskSpec

MOST_TOKENS, MOST_BLOCK, LEAST_BLOCK = 32_768, 256, 16
STRIPE = 500_000  # rectangles looked at together: a few times this many int64

EMPTY, PARTIAL, FULL = range(3)  # of a block
BLOCKED, BY_DISTANCE, OPENED, DRAWN = range(4)  # of a rectangle: what decides which of its cells are allowed
STROKES = {"block": DRAWN, "open": OPENED}
ANY_MASK = ("attn_mask", "flex")  # SDPA's boolean tensor, and FlexAttention's function of q_idx and k_idx
KERNELS = ("is_causal", "varlen", *ANY_MASK)


ZERO = torch.zeros(1, 1, 1, 1, dtype=torch.long)
ONE_CELL = Cells(ZERO, ZERO, ZERO, ZERO, MOST_TOKENS)  # of a text without padding
COSTED = tuple(
    name
    for name, kind in KINDS.items()
    if not kind.sized and not kind.joins and kind.cells(ONE_CELL, kind.first or True) is not None
)


@dataclass(frozen=True, eq=False)
class MaskCost:
    """blocks: int8 [N,N], rows of queries, 0 = empty, 1 = partial, 2 = full, as FlexAttention's create_block_mask
    tells them apart: cells beyond the text are blocked. allowed: how many of the T × T cells are. kernels: for each of
    KERNELS, whether it can compute this mask.
    """

    tokens: int
    block: int
    blocks: np.ndarray
    allowed: int
    kernels: dict[str, bool]

    @property
    def full(self) -> int:
        """Blocks without a masked score."""
        return int((self.blocks == FULL).sum())

    @property
    def partial(self) -> int:
        """Blocks computed whole, some of whose scores are masked."""
        return int((self.blocks == PARTIAL).sum())

    @property
    def empty(self) -> int:
        """Blocks that are skipped."""
        return int((self.blocks == EMPTY).sum())

    @property
    def computed(self) -> int:
        """Scores that are computed: those of the full and partial blocks."""
        return (self.full + self.partial) * self.block**2

    @property
    def share(self) -> float:
        """Of the computed scores, the share that is masked afterwards: 0 to 1."""
        return 1 - self.allowed / self.computed if self.computed else 0.0

    @property
    def dense_bytes(self) -> int:
        """The size of the mask as a boolean tensor [T,T]."""
        return self.tokens**2

    def flops(self, head_size: int) -> int:
        """Of one head's q·k and weights·v over the computed scores: a multiplication and an addition each."""
        return 4 * self.computed * head_size

    def key_value_bytes(self, head_size: int, bytes_per_number: int = 2) -> int:
        """The keys and values that one head reads: each block of queries reads those of its blocks once."""
        return 2 * (self.full + self.partial) * self.block * head_size * bytes_per_number


def cost(masks: MaskSpec | Mapping[str, Any], tokens: int = MOST_TOKENS, block: int = 128) -> MaskCost:
    """What a mask costs on a text of `tokens` real tokens, in blocks of `block` queries and keys.

    masks: a MaskSpec or a dict of its fields; what a text or a model decides (padding, separators, a model's own
    window) has no effect. Raises ValueError for other fields, for more than MOST_TOKENS, and for a block that is not
    from LEAST_BLOCK to MOST_BLOCK.
    """
    tokens = index("number of tokens", tokens, MOST_TOKENS + 1, first=1)  # not shown
    block = index("block size", block, MOST_BLOCK + 1, first=LEAST_BLOCK)  # not shown
    spec = masks if isinstance(masks, MaskSpec) else MaskSpec.from_json(json.dumps(dict(masks)))
    counts = np.concatenate([*_rows_of_blocks(spec, tokens, block)])
    blocks = (counts > 0).astype(np.int8) + (counts == block**2)
    kinds = _kinds(spec, tokens)
    kernels = {kernel: _accepts(kernel, spec, kinds) for kernel in KERNELS}
    return MaskCost(tokens, block, blocks, int(counts.sum()), kernels)


def _accepts(kernel: str, spec: MaskSpec, kinds: Mapping[str, Any]) -> bool:
    """Whether a kernel takes any mask, or has an argument for each one that is on."""
    return kernel in ANY_MASK or (not spec.drawn and all(kernel in KINDS[name].arguments for name in kinds))


def _kinds(spec: MaskSpec, tokens: int) -> dict[str, Any]:
    """The kinds that change something on such a text, each with its parameter."""
    one = _cells(torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long), tokens)
    on = {name: value for name, value in spec.on().items() if not KINDS[name].sized}
    return {name: value for name, value in on.items() if KINDS[name].cells(one, value) is not None}


def _cells(query: Tensor, key: Tensor, tokens: int) -> Cells:
    """The cells where some queries [Q] meet some keys [K] of a text without padding."""
    query, key = query[None, None, :, None], key[None, None, None]
    return Cells(query, key, query, key, tokens)


def _rows_of_blocks(spec: MaskSpec, tokens: int, block: int) -> Iterator[np.ndarray]:
    """How many cells of each block are allowed, int64 [rows,N], some rows of blocks at a time."""
    kinds = _kinds(spec, tokens)
    by_distance = {name: value for name, value in kinds.items() if KINDS[name].borders is None}
    others = {name: value for name, value in kinds.items() if name not in by_distance}
    sums = _sums_over_distances(by_distance, tokens)
    edges = np.arange(0, tokens, block)
    begins = _borders(others, spec, tokens, edges)
    ends = np.append(begins[1:], tokens)
    first = np.append(np.searchsorted(begins, edges), len(begins))  # of each block, its first rectangle
    rows = max(STRIPE * len(edges) // len(begins) ** 2, 1)
    for some in range(0, len(edges), rows):
        last = min(some + rows, len(edges))
        here = slice(first[some], first[last])
        states = _states(others, spec, begins[here], begins, tokens)
        counts = _allowed(sums, states, (begins[here], ends[here]), (begins, ends))
        counts = np.add.reduceat(counts, first[:-1], axis=1)
        yield np.add.reduceat(counts, first[some:last] - first[some], axis=0)


def _borders(kinds: Mapping[str, Any], spec: MaskSpec, tokens: int, edges: np.ndarray) -> np.ndarray:
    """Where rectangles begin, sorted: at the edges of blocks, where a kind changes, and at the ends of strokes."""
    found = [edges]
    for name, value in kinds.items():
        borders = KINDS[name].borders
        found.append(np.fromiter(borders(value, tokens) if borders else (), np.int64))
    for stroke in spec.drawn:
        found.append(np.array([stroke.query, stroke.last_query + 1, stroke.key, stroke.last_key + 1]))
    begins = np.unique(np.concatenate(found))
    return begins[begins < tokens]


def _sums_over_distances(kinds: Mapping[str, Any], tokens: int) -> np.ndarray:
    """F(n) of the module's text for n from 1 - T to T + 1, int64 [4, 2T + 1]: by what decides over a rectangle."""
    distance = torch.arange(1 - tokens, tokens)
    cells = _cells(distance, torch.zeros(1, dtype=torch.long), tokens)
    opened = torch.zeros(len(distance), dtype=torch.bool)
    free = ~opened
    for name, value in kinds.items():
        mask = KINDS[name].cells(cells, value)
        if mask is None:
            continue
        if KINDS[name].opens:
            opened = opened | mask.flatten()
        else:
            free = free & mask.flatten()
    allowed = torch.stack([opened, free | opened, torch.ones_like(free), torch.zeros_like(free)]).long().numpy()
    below = np.cumsum(np.pad(allowed, [(0, 0), (1, 0)]), axis=1)  # how many allowed distances are less than n
    return np.cumsum(np.pad(below, [(0, 0), (1, 0)]), axis=1)


def _states(kinds: Mapping[str, Any], spec: MaskSpec, queries: np.ndarray, keys: np.ndarray, tokens: int) -> np.ndarray:
    """int8 [Q,K]: what decides over the rectangles that begin at these queries and keys."""
    states = np.full((len(queries), len(keys)), BY_DISTANCE, np.int8)
    cells = _cells(torch.from_numpy(queries), torch.from_numpy(keys), tokens)
    for name, value in sorted(kinds.items(), key=lambda item: KINDS[item[0]].opens):
        mask = KINDS[name].cells(cells, value)
        if mask is not None:
            opens = KINDS[name].opens
            states[np.broadcast_to(mask[0, 0].numpy() == opens, states.shape)] = OPENED if opens else BLOCKED
    return _drawn_over(states, spec, queries, keys)


def _drawn_over(states: np.ndarray, spec: MaskSpec, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The states, with what was drawn by hand over them."""
    below = states.copy()
    for stroke in spec.drawn:
        rows = slice(*np.searchsorted(queries, [stroke.query, stroke.last_query + 1]))
        columns = slice(*np.searchsorted(keys, [stroke.key, stroke.last_key + 1]))
        states[rows, columns] = STROKES.get(stroke.kind, below[rows, columns])
    return states


def _allowed(
    sums: np.ndarray, states: np.ndarray, queries: tuple[np.ndarray, np.ndarray], keys: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """How many cells of each rectangle are allowed, int64 [Q,K]. queries, keys: where each begins and ends."""
    (first, last), (begin, end) = ((one[:, None] for one in queries), (one[None] for one in keys))
    zero = sums.shape[1] // 2  # the column of n = 1 is one further
    at = [sums[states, zero + n] for n in (last - begin, first - begin, last - end, first - end)]
    counts: np.ndarray = at[0] - at[1] - at[2] + at[3]
    return counts
