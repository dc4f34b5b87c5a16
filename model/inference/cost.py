"""The cost of a mask in a kernel that skips blocks of scores, computed without a model and without a T × T tensor.

A block-sparse kernel (FlexAttention, FlashAttention) divides the T × T scores into blocks of B × B. It skips the empty
ones, computes the full ones as they are, and computes the partial ones whole before masking some of their scores.

The counts are exact. A kind of mask either depends on the distance from query to key alone, or changes at a few
borders. In a block without borders, the number of allowed cells follows from the second cumulative sum over distances:
with F(n) the sum over m < n of how many distances below m are allowed, queries q … q + B - 1 and keys k … k + B - 1
have F(q - k + B + 1) - 2 F(q - k + 1) + F(q - k - B + 1) allowed cells. Blocks with borders are counted cell by cell.
Sizes: N blocks a side, of B × B cells; M of the blocks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from i18n import N_, msg
from model.errors import index, whole_numbers
from model.mask_kinds import KINDS, NEAR, Cells
from model.masks import ZERO
from model.spec import MaskSpec

MAX_TOKENS, MAX_BLOCK, MIN_BLOCK = 32_768, 256, 16
CELLS = 1_000_000  # most cells of blocks with borders that are counted at once

EMPTY, PARTIAL, FULL = range(3)  # states of a block
BLOCKED, BY_DISTANCE, OPENED, DRAWN = range(4)  # what determines the cells of a block without borders
STROKES = {"block": DRAWN, "open": OPENED}
ANY_MASK = ("attn_mask", "flex")  # SDPA's boolean tensor, and FlexAttention's function of q_idx and k_idx
KERNELS = ("is_causal", "varlen", *ANY_MASK)
SHORT = 256  # tokens that are compared cell by cell
SPLIT = next(name for name, kind in KINDS.items() if kind.splits)


@dataclass(frozen=True, eq=False)
class MaskCost:
    """The cost of a mask. blocks: int8 [N,N], rows are queries, 0 = empty, 1 = partial, 2 = full, as distinguished by
    FlexAttention's create_block_mask: cells beyond the text are blocked. allowed: the number of allowed cells of T × T.
    kernels: for each of KERNELS, whether it can compute this mask."""

    tokens: int
    block: int
    blocks: np.ndarray = field(repr=False)
    allowed: int
    kernels: dict[str, bool]

    @property
    def full(self) -> int:
        """The number of blocks without a masked score."""
        return int((self.blocks == FULL).sum())

    @property
    def partial(self) -> int:
        """The number of blocks that are computed whole although some of their scores are masked."""
        return int((self.blocks == PARTIAL).sum())

    @property
    def empty(self) -> int:
        """The number of blocks that are skipped."""
        return int((self.blocks == EMPTY).sum())

    @property
    def computed(self) -> int:
        """The number of scores that are computed: those of the full and partial blocks."""
        return (self.full + self.partial) * self.block**2

    @property
    def share(self) -> float:
        """The share of computed scores that are masked afterwards, 0 to 1."""
        return 1 - self.allowed / self.computed if self.computed else 0.0

    @property
    def dense_bytes(self) -> int:
        """The size of the mask as a boolean tensor [T,T]."""
        return self.tokens**2

    def flops(self, head_size: int) -> int:
        """Return one head's FLOPs of q·k and weights·v over the computed scores, 2 per multiply-add."""
        return 4 * self.computed * head_size

    def key_value_bytes(self, head_size: int) -> int:
        """Return the bytes of keys and values that a head reads, 2 per number, once per block of queries."""
        return 2 * (self.full + self.partial) * self.block * head_size * 2


def cost(
    masks: MaskSpec | Mapping[str, Any], tokens: int = MAX_TOKENS, block: int = 128, documents: Sequence[int] = ()
) -> MaskCost:
    """Compute the cost of a mask on a text of `tokens` real tokens, in blocks of `block` queries and keys.

    masks: a MaskSpec or a dict of its fields; what a text or a model decides (padding, separators, a model's own
    window) has no effect. documents: the number of tokens of each document of a packed text; the rest is one more
    document. Raises ValueError for other fields, for more than 32,768 tokens, and for a block that is not from 16 to
    256.
    """
    tokens = index("number of tokens", tokens, MAX_TOKENS + 1, first=1)  # not shown
    block = index("block size", block, MAX_BLOCK + 1, first=MIN_BLOCK)  # not shown
    sizes = lengths_within(tokens, documents)
    if not isinstance(masks, MaskSpec | Mapping):
        raise ValueError(f"expected masks as a MaskSpec or a dict of its fields, got {masks!r:.40}")  # not shown
    spec = masks if isinstance(masks, MaskSpec) else MaskSpec.from_fields(masks)
    found = _Blocks(spec, tokens, block, sizes)
    counts, split = found.counts(), len(sizes) > 1 or 0 < sum(sizes) < tokens
    blocks = (counts > 0).astype(np.int8) + (counts == block**2)
    kinds = [*found.kinds, *([SPLIT] if split else [])]
    total, size = int(counts.sum()), (tokens, block, sizes)
    kernels = {kernel: kernel in ANY_MASK or _takes(kernel, spec, kinds, size, counts) for kernel in KERNELS}
    return MaskCost(tokens, block, blocks, total, kernels)


def _takes(
    kernel: str, spec: MaskSpec, kinds: Sequence[str], size: tuple[int, int, Sequence[int]], counts: np.ndarray
) -> bool:
    """Whether a kernel has arguments that give this mask on a text of this size: its tokens, those of a block, and
    those of each document. counts: of the cells that it allows in each block."""
    lacking = [name for name in kinds if kernel not in KINDS[name].arguments]
    if spec.drawn or any(KINDS[name].own for name in lacking):
        return False
    if not lacking:
        return True
    tokens, block, sizes = size
    short = min(tokens, SHORT)  # a prefix of the text, whose cells most kinds change
    parts = np.diff(np.cumsum([0, *sizes]).clip(max=short))
    texts = (short, 1, parts[parts > 0].tolist()), (tokens, block, sizes)  # cell by cell, then block by block
    plain = {name: getattr(MaskSpec(), name) for name in lacking}
    # a kind may be equal to the causal mask, to a window or to no mask; another kind may open all documents
    ours = _Blocks(spec, *texts[0]).counts(), counts
    rows, columns = np.nonzero(ours[0])
    reach = int(abs(rows - columns).max()) + 1
    sizes_near = {0, getattr(spec, NEAR), reach % short} if kernel in KINDS[NEAR].arguments else {0}
    wholes = (True, False) if kernel in KINDS[SPLIT].arguments else (True,)
    for causal, near, whole in product((spec.causal, not spec.causal), sizes_near, wholes):
        other = replace(spec, **(plain | {"causal": causal, NEAR: near}))
        theirs = (_Blocks(other, length, side, [] if whole else ends).counts() for length, side, ends in texts)
        if all(map(np.array_equal, ours, theirs)):
            return True
    return False


def lengths_within(tokens: int, sizes: Sequence[int]) -> list[int]:
    """Return the lengths of documents in a text of `tokens` tokens. Raises ValueError for invalid or too many ones."""
    sizes = whole_numbers("the tokens of each document as whole numbers", sizes)  # not shown
    if wrong := [size for size in sizes if not 1 <= size <= tokens]:
        raise ValueError(msg("expected documents of 1 to {most:,} tokens, got {got}", most=tokens, got=wrong[0]))
    if sum(sizes) > tokens:
        template = N_("expected documents of at most {most:,} tokens together, got {got:,}")
        raise ValueError(msg(template, most=tokens, got=sum(sizes)))
    return sizes


def _cells(query: Tensor, key: Tensor, tokens: int) -> Cells:
    """Return the cells of queries [..,Q,1] and keys [..,1,K] of a text without padding."""
    return Cells(query, key, query, key, tokens)


class _Blocks:
    """The blocks of one mask on one text."""

    def __init__(self, spec: MaskSpec, tokens: int, block: int, sizes: Sequence[int]) -> None:
        self.spec, self.tokens, self.block = spec, tokens, block
        self.first = np.arange(0, tokens, block)
        self.last = np.minimum(self.first + block, tokens) - 1
        one = _cells(ZERO, ZERO, tokens)
        on = {name: value for name, value in spec.on().items() if not KINDS[name].sized}
        found = [(name, value) for name, value in on.items() if KINDS[name].cells(one, value) is not None]
        # kinds that change such a text, each with its parameter; those that block come first
        self.kinds = dict(sorted(found, key=lambda item: KINDS[item[0]].opens))
        ends = np.cumsum([0, *sizes])
        self.part = np.repeat(np.arange(len(ends)), np.diff(ends, append=tokens))  # each token's document

    def counts(self) -> np.ndarray:
        """Return how many cells of each block are allowed: int64 [N,N]."""
        states, bordered = self._states()
        offset = np.arange(len(states))[:, None] - np.arange(len(states))
        counts: np.ndarray = self._by_distance()[states, offset + len(states) - 1]
        rows, columns = np.nonzero(bordered)
        some = max(CELLS // self.block**2, 1)
        for start in range(0, len(rows), some):
            here = slice(start, start + some)
            counts[rows[here], columns[here]] = self._count_cells(rows[here], columns[here])
        return counts

    def _states(self) -> tuple[np.ndarray, np.ndarray]:
        """Return what determines the cells of each block, int8 [N,N], and which blocks have borders, bool [N,N]."""
        count = len(self.first)
        states, bordered = np.full((count, count), BY_DISTANCE, np.int8), np.zeros((count, count), bool)
        bordered[self.last - self.first + 1 < self.block] = True  # the last block, if it extends beyond the text
        bordered |= bordered.T
        beyond = bordered.copy()
        begin, end = self.part[self.first], self.part[self.last]
        states[(begin[:, None] > end) | (end[:, None] < begin)] = BLOCKED
        bordered |= (states != BLOCKED) & ((begin < end) | (begin < end)[:, None])
        for name, value in self.kinds.items():
            if KINDS[name].borders is None:
                continue
            whole, partial = self._whole_and_partial(name, value)
            bordered |= whole != partial
            if KINDS[name].opens:
                states[whole] = OPENED
            else:
                states[~partial] = BLOCKED
        below, bordered_below = states.copy(), bordered.copy()
        for stroke in self.spec.drawn:
            rows, columns = self._covered(stroke.query, stroke.last_query), self._covered(stroke.key, stroke.last_key)
            touched, within = zip(rows, columns, strict=True)
            states[within] = STROKES.get(stroke.kind, below[within])
            bordered[touched] = True
            bordered[within] = (beyond if stroke.kind in STROKES else bordered_below)[within]  # covered by a stroke
        return states, bordered

    def _covered(self, first: int, last: int) -> tuple[slice, slice]:
        """Return the blocks that contain any position from first to last, and the blocks that contain no others."""
        touched = slice(first // self.block, min(last // self.block + 1, len(self.first)))
        begin = int(np.searchsorted(self.first, first))
        return touched, slice(begin, max(int(np.searchsorted(self.last, last, "right")), begin))

    def _whole_and_partial(self, name: str, value: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return which blocks a kind allows, or opens, as a whole, and which in part: bool [N,N] each."""
        kind, count = KINDS[name], len(self.first)
        ends = torch.from_numpy(np.stack([self.first, self.last], axis=1).ravel())
        mask = kind.cells(_cells(ends[:, None], ends[None], self.tokens), value)
        assert mask is not None  # otherwise it is not in self.kinds
        corners = np.broadcast_to(mask.numpy(), (2 * count, 2 * count)).reshape(count, 2, count, 2)
        whole, partial = np.asarray(corners.all(axis=(1, 3))), np.asarray(corners.any(axis=(1, 3)))
        if not kind.once:
            inside = np.zeros(count, bool)
            borders = np.fromiter(kind.borders(value, self.tokens) if kind.borders else (), np.int64)
            inside[borders[(borders % self.block > 0) & (borders < self.tokens)] // self.block] = True
            bordered = inside | inside[:, None]
            return whole & ~bordered, partial | bordered
        return whole, partial

    def _by_distance(self) -> np.ndarray:
        """Return how many cells of a block are allowed, by what determines them and by its distance in blocks from the
        diagonal: int64 [4, 2N-1], from 1 - N on."""
        reach = len(self.first) * self.block
        distance = torch.arange(-reach, reach)
        opened, free = self._allowed(_cells(distance, torch.zeros_like(distance), self.tokens), by_distance=True)
        allowed = torch.stack([opened, free | opened, torch.ones_like(free), torch.zeros_like(free)]).long().numpy()
        below = np.cumsum(np.pad(allowed, [(0, 0), (1, 0)]), axis=1)  # how many distances below n are allowed
        sums = np.cumsum(np.pad(below, [(0, 0), (1, 0)]), axis=1)[:, 1 :: self.block]  # F(n + 1), see the module
        counts: np.ndarray = sums[:, 2:] - 2 * sums[:, 1:-1] + sums[:, :-2]
        return counts

    def _allowed(self, cells: Cells, by_distance: bool) -> tuple[Tensor, Tensor]:
        """Return the cells that kinds open, and those that none blocks. by_distance: of kinds without borders alone."""
        free = torch.ones(torch.broadcast_shapes(cells.query.shape, cells.key.shape), dtype=torch.bool)
        opened = ~free
        for name, value in self.kinds.items():
            mask = None if by_distance and KINDS[name].borders else KINDS[name].cells(cells, value)
            if mask is not None and KINDS[name].opens:
                opened = opened | mask
            elif mask is not None:
                free = free & mask
        return opened, free

    def _count_cells(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return how many cells of these blocks are allowed: int64 [M]."""
        within = torch.arange(self.block)
        query = torch.from_numpy(self.first[rows])[:, None, None] + within[:, None]
        key = torch.from_numpy(self.first[columns])[:, None, None] + within
        opened, free = self._allowed(_cells(query, key, self.tokens), by_distance=False)
        last = self.tokens - 1
        part = torch.from_numpy(self.part)
        allowed = (free & (part[query.clamp(max=last)] == part[key.clamp(max=last)])) | opened
        if self.spec.drawn:
            self._draw(allowed.numpy(), rows, columns)
        counts: np.ndarray = (allowed & (query <= last) & (key <= last)).sum((1, 2)).numpy()
        return counts

    def _draw(self, allowed: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> None:
        """Apply the strokes to the cells [M,B,B] of these blocks."""
        below, ends = allowed.copy(), self.block - 1
        tops, lefts = self.first[rows], self.first[columns]
        for stroke in self.spec.drawn:
            here = (tops <= stroke.last_query) & (stroke.query <= tops + ends)
            here &= (lefts <= stroke.last_key) & (stroke.key <= lefts + ends)
            for block in np.flatnonzero(here).tolist():
                top, left = int(tops[block]), int(lefts[block])
                cells = (block, slice(max(stroke.query - top, 0), stroke.last_query + 1 - top),
                         slice(max(stroke.key - left, 0), stroke.last_key + 1 - left))  # fmt: skip
                allowed[cells] = below[cells] if stroke.kind == "erase" else stroke.kind == "open"
