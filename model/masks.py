"""Boolean masks and how they combine. True means "may attend".

A cell is allowed when every mask that is on allows it, or where one that opens cells opens it; hand-drawn strokes
override both. mask_kinds.py defines the kinds, MaskSpec (spec.py) selects those that are on, a MaskContext holds the
data that they are computed from.
Sizes: B batch rows, H heads, Q queries, K keys; the queries are the last Q of the K positions.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import Any

import torch
from torch import Tensor

from model.mask_kinds import KINDS, Cells
from model.spec import STANDARD, MaskSpec, Stroke

__all__ = ["MaskContext", "MaskSpec", "Stroke", "combine"]

LONG = 4096  # with more queries no mask is built as a whole: 16 MB
MASK_NAMES = (*KINDS, "drawn")
NATIVE = tuple(name for name, kind in KINDS.items() if kind.own)  # those that models are trained with
ZERO = torch.zeros(1, 1, 1, 1, dtype=torch.long)
ON_TEXT = tuple(  # those that change any text, without padding, a split or native sizes
    name
    for name, kind in KINDS.items()
    if not kind.sized
    and not kind.joins
    and kind.cells(Cells(ZERO, ZERO, ZERO, ZERO, LONG), kind.first or True) is not None
)
AllowedCache = dict[tuple[Hashable, ...], Tensor | None]  # results of MaskContext.allowed, for layers that share them
Masking = Callable[["MaskContext", MaskSpec, "AllowedCache | None"], Tensor | None]
TextSplit = Callable[[str], Tensor]  # maps a separator to the part of the text that each position is in, int64 [B,K]


def causal(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """Return the causal mask [Q,K]: each query attends to itself and earlier keys. If K > Q, queries are the last Q."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril_(keys - queries)


def real_token_indices(keep: Tensor) -> Tensor:
    """Return each position's index among the row's real tokens, -1 at padding: keep [B,K] -> int64 [B,K]."""
    return (keep.long().cumsum(-1) - 1).masked_fill(~keep, -1)


def drawn(strokes: tuple[Stroke, ...], indices: Tensor, queries: slice) -> tuple[Tensor, Tensor]:
    """Return the cells that strokes block and those that they open, each bool [B,1,Q,K]; never one of padding."""
    q, k = indices[:, queries, None], indices[:, None, :]
    first, last = max(int(q.min()), 0), int(q.max())
    blocked, opened = (plane.to(indices.device) for plane in _canvas(strokes, indices.shape[-1], first, last))
    real = (q >= 0) & (k >= 0)
    q = (q - first).clamp(min=0)
    return (blocked[q, k] & real)[:, None], (opened[q, k] & real)[:, None]


def cells_of(keep: Tensor, queries: slice, split: TextSplit | None = None, groups: Tensor | None = None) -> Cells:
    """Return the cells that masks are computed from, for queries among K positions. keep: bool [B,K], True = real."""
    position, token = torch.arange(keep.shape[-1], device=keep.device), real_token_indices(keep)[:, None, None]
    query, query_token = position[None, None, queries, None], token[..., queries].transpose(-1, -2)
    return Cells(query, position[None, None, None], query_token, token, len(position), split, groups)


def combine(masks: dict[str, Tensor]) -> Tensor | None:
    """Combine masks: a cell is allowed when every mask allows it. Returns None when there is no mask."""
    return reduce(torch.logical_and, masks.values()) if masks else None


@dataclass(frozen=True, eq=False)
class MaskContext:
    """The data that the masks of one attention are computed from, during one run of a model. keep bool [B,K], True = a
    real key. sizes: of its native masks, in positions, by kind. available: the masks it can have. standard: the masks
    that apply outside a spec's layers and heads. split, groups: see Cells. end: the position after the last query, the
    last of all unless given."""

    keep: Tensor
    queries: int
    heads: int
    layer: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)
    available: frozenset[str] = frozenset(MASK_NAMES)
    standard: MaskSpec = STANDARD
    split: TextSplit | None = None
    groups: Tensor | None = None
    end: int | None = None

    @property
    def rows(self) -> slice:
        """The positions of the queries among the K keys."""
        end = self.keep.shape[-1] if self.end is None else self.end
        return slice(max(end - self.queries, 0), end)

    @property
    def is_long(self) -> bool:
        """Whether its masks are built for blocks of queries: a whole mask takes Q·K bytes."""
        return self.queries > LONG

    def of(self, queries: slice) -> "MaskContext":
        """Return the context of these queries alone, counted from its first."""
        begin, end, _ = queries.indices(self.queries)
        return replace(self, queries=end - begin, end=self.rows.start + end)

    def only_causal(self, spec: MaskSpec) -> bool:
        """Whether under spec only the causal mask changes anything, for all heads. Builds no mask."""
        here = spec.at(self.layer, next(iter(spec.heads), 0), self.standard)
        whole = bool(self.keep.all())
        others = {
            name
            for name, parameter in self.on(spec).items()
            if not (whole and name in ("padding", "padding_queries"))
            and not (name in self.sizes and parameter >= self.keep.shape[-1])
        }
        return others == {"causal"} and not here.drawn and not spec.heads and self.queries == self.keep.shape[-1]

    def on(self, spec: MaskSpec, head: int = 0) -> dict[str, Any]:
        """Return the kinds that are on under spec and that this attention can have, each with its parameter."""
        on = spec.at(self.layer, head, self.standard).on()
        return {name: self.sizes.get(name, value) for name, value in on.items()
                if name in self.available and (name in self.sizes or not KINDS[name].sized)}  # fmt: skip

    def masks_without_strokes(self, spec: MaskSpec, head: int = 0) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the masks without hand-drawn strokes, by name: what each blocking kind leaves allowed, ignoring what
        opens cells, and what each opening kind opens. Each bool, broadcastable to [B,1,Q,K]. A mask that changes
        nothing is left out, so that a single text takes the fast path."""
        cells = cells_of(self.keep, self.rows, self.split, self.groups)
        blocking: dict[str, Tensor] = {}
        opening: dict[str, Tensor] = {}
        for name, parameter in self.on(spec, head).items():
            kind, found = KINDS[name], opening if KINDS[name].opens else blocking
            mask = kind.cells(cells, parameter) if not kind.joins or kind.joins in found else None
            if mask is not None:
                found[kind.joins or name] = found[kind.joins] & mask if kind.joins else mask
        return blocking, opening

    def masks(self, spec: MaskSpec, head: int = 0) -> dict[str, Tensor]:
        """Return the masks of one head under spec, by name, each broadcastable to [B,1,Q,K]: the blocking ones, with
        the cells that other masks or strokes open, and the strokes."""
        masks, openings = self.masks_without_strokes(spec, head)
        strokes = self._strokes(spec, head)
        if strokes:
            blocked, openings["drawn"] = drawn(strokes, real_token_indices(self.keep), self.rows)
        for opened in openings.values():
            masks = {name: mask | opened for name, mask in masks.items()}
        return masks | {"drawn": ~blocked} if strokes else masks

    def names(self, spec: MaskSpec, head: int = 0) -> list[str]:
        """Return the names of one head's masks under spec, including those that open cells."""
        blocking, opening = self.masks_without_strokes(spec, head)
        return [*blocking, *opening, *(["drawn"] if self._strokes(spec, head) else [])]

    def _strokes(self, spec: MaskSpec, head: int) -> tuple[Stroke, ...]:
        return spec.at(self.layer, head, self.standard).drawn if "drawn" in self.available else ()

    def allowed_in_row(self, spec: MaskSpec, row: int, head: int = 0) -> Tensor:
        """Return the cells that one head may attend to in one row of the batch: bool [Q,K], on the CPU."""
        allowed = combine(self.in_row(self.masks(spec, head), row))
        return torch.ones(self.queries, self.keep.shape[-1], dtype=torch.bool) if allowed is None else allowed

    def in_row(self, masks: Mapping[str, Tensor], row: int) -> dict[str, Tensor]:
        """Return these masks in one row of the batch, bool [Q,K] each, on the CPU."""
        shape = (len(self.keep), 1, self.queries, self.keep.shape[-1])
        return {name: mask.expand(shape)[row, 0].cpu() for name, mask in masks.items()}

    def allowed(self, spec: MaskSpec, made: AllowedCache | None = None) -> Tensor | None:
        """Combine all masks, broadcastable to [B,H,Q,K]: [B,1,Q,K] unless the heads differ. None: no mask. made:
        results for other layers of the same run, reused and added to."""
        here = spec.at(self.layer, next(iter(spec.heads), 0), self.standard)
        rulings: tuple[MaskSpec, ...] = (here,)
        if spec.heads:
            elsewhere = spec.at(-1, -1, self.standard)
            rulings = tuple(here if head in spec.heads else elsewhere for head in range(self.heads))
        made = {} if made is None else made
        key = (*self.sizes.items(), self.available, self.queries, self.end, self.keep.device, rulings)
        if key not in made:
            made[key] = self._over_heads(rulings)
        return made[key]

    def allowed_at_top_left(self, spec: MaskSpec, made: AllowedCache | None = None) -> Tensor | None:
        """Return `allowed` as applied by a kernel that aligns the first query with position 0: wrong unless Q = K."""
        square = replace(self, queries=self.keep.shape[-1]).allowed(spec, made)
        return None if square is None else square[..., : self.queries, :]

    def _over_heads(self, rulings: tuple[MaskSpec, ...]) -> Tensor | None:
        if len(rulings) == 1:
            return combine(self.masks(rulings[0]))
        shape = (len(self.keep), 1, self.queries, self.keep.shape[-1])
        free = torch.ones(1, dtype=torch.bool, device=self.keep.device)
        kinds = {ruling: self._over_heads((ruling,)) for ruling in set(rulings)}
        each = [free if mask is None else mask for mask in (kinds[ruling] for ruling in rulings)]
        return torch.cat([mask.expand(shape) for mask in each], dim=1)


def allowed_by_layer(contexts: list[MaskContext], spec: MaskSpec) -> list[Tensor | None]:
    """Return each layer's mask, [B or 1, H or 1, Q or 1, K], or None; layers under the same masks share it."""
    made: AllowedCache = {}
    return [context.allowed(spec, made) for context in contexts]


@lru_cache(maxsize=2)  # two planes of Q x K bytes each
def _canvas(strokes: tuple[Stroke, ...], size: int, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Return the strokes on the queries from first to last and `size` keys: blocked, opened, both bool. Cached, so
    never modify them."""
    canvas = torch.zeros(max(last - first + 1, 1), size, dtype=torch.uint8)
    value = {"erase": 0, "block": 1, "open": 2}
    for stroke in strokes:
        rows = slice(max(stroke.query - first, 0), max(stroke.last_query + 1 - first, 0))
        canvas[rows, stroke.key : stroke.last_key + 1] = value[stroke.kind]
    return canvas == 1, canvas == 2
