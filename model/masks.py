"""Boolean masks and how they combine. True means "may attend".

A cell is allowed when every mask that is on allows it, or where one that opens cells opens it again; what was drawn by
hand has the last word. mask_kinds.py says which kinds there are, MaskSpec (spec.py) which are on, a MaskContext what
they are made of.
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

MASK_NAMES = (*KINDS, "drawn")
NATIVE = tuple(name for name, kind in KINDS.items() if kind.own)  # those that models are trained with
AllowedCache = dict[tuple[Hashable, ...], Tensor | None]  # what MaskContext.allowed gave, for layers that share it
Masking = Callable[["MaskContext", MaskSpec, "AllowedCache | None"], Tensor | None]
TextSplit = Callable[[str], Tensor]  # from a separator to the part of the text that each position is in, int64 [B,K]


def causal(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """[Q,K]: a query sees itself and what came before. With K > Q the queries are the last Q of K positions."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril_(keys - queries)


def places(keep: Tensor) -> Tensor:
    """keep [B,K] -> int64 [B,K]: how many real tokens came before; -1 at padding."""
    return (keep.long().cumsum(-1) - 1).masked_fill(~keep, -1)


def drawn(strokes: tuple[Stroke, ...], place: Tensor, queries: int) -> tuple[Tensor, Tensor]:
    """The cells blocked and the cells opened by hand, each bool [B,1,Q,K]; never one of padding."""
    blocked, opened = _canvas(strokes, place.shape[-1])
    blocked, opened = blocked.to(place.device), opened.to(place.device)
    q, k = place[:, -queries:, None], place[:, None, :]
    real = (q >= 0) & (k >= 0)
    return (blocked[q, k] & real)[:, None], (opened[q, k] & real)[:, None]


def cells_of(keep: Tensor, queries: int, split: TextSplit | None = None, groups: Tensor | None = None) -> Cells:
    """What a mask is made of, where the last `queries` of K positions look. keep: bool [B,K], True = a real token."""
    position, token = torch.arange(keep.shape[-1], device=keep.device), places(keep)[:, None, None]
    query, query_token = position[None, None, -queries:, None], token[..., -queries:].transpose(-1, -2)
    return Cells(query, position[None, None, None], query_token, token, len(position), split, groups)


def combine(masks: dict[str, Tensor]) -> Tensor | None:
    """A cell is allowed when every mask allows it. None when there is no mask."""
    return reduce(torch.logical_and, masks.values()) if masks else None


@dataclass(frozen=True, eq=False)
class MaskContext:
    """One attention of a model during one run: what its masks are made of.

    keep bool [B,K], True = a real key. sizes: of the masks of its own, in positions, by kind. available: the masks it
    can have. standard: the masks that hold outside a spec's layers and heads. split, groups: see Cells.
    """

    keep: Tensor
    queries: int
    heads: int
    layer: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)
    available: frozenset[str] = frozenset(MASK_NAMES)
    standard: MaskSpec = STANDARD
    split: TextSplit | None = None
    groups: Tensor | None = None

    def on(self, spec: MaskSpec, head: int = 0) -> dict[str, Any]:
        """The kinds that are on under spec and that this attention can have, each with its parameter."""
        on = spec.at(self.layer, head, self.standard).on()
        return {name: self.sizes.get(name, value) for name, value in on.items()
                if name in self.available and (name in self.sizes or not KINDS[name].sized)}  # fmt: skip

    def undrawn(self, spec: MaskSpec, head: int = 0) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What each kind that blocks leaves allowed, whatever opens it again, and what each that opens opens: by name,
        bool, broadcastable to [B,1,Q,K], without the drawing.

        A mask that changes nothing is left out, so that a text on its own takes the fast path.
        """
        cells = cells_of(self.keep, self.queries, self.split, self.groups)
        blocking: dict[str, Tensor] = {}
        opening: dict[str, Tensor] = {}
        for name, parameter in self.on(spec, head).items():
            kind, found = KINDS[name], opening if KINDS[name].opens else blocking
            mask = kind.cells(cells, parameter) if not kind.joins or kind.joins in found else None
            if mask is not None:
                found[kind.joins or name] = found[kind.joins] & mask if kind.joins else mask
        return blocking, opening

    def masks(self, spec: MaskSpec, head: int = 0) -> dict[str, Tensor]:
        """The masks of one head under spec, by name, each broadcastable to [B,1,Q,K]: what blocks, with the cells that
        other masks or the drawing open again, and the drawing."""
        masks, openings = self.undrawn(spec, head)
        strokes = spec.at(self.layer, head, self.standard).drawn if "drawn" in self.available else ()
        if strokes:
            blocked, openings["drawn"] = drawn(strokes, places(self.keep), self.queries)
        for opened in openings.values():
            masks = {name: mask | opened for name, mask in masks.items()}
        return masks | {"drawn": ~blocked} if strokes else masks

    def allowed_in_row(self, spec: MaskSpec, row: int, head: int = 0) -> Tensor:
        """What one head may attend to in one row of the batch: bool [Q,K], on the CPU."""
        allowed = combine(self.in_row(self.masks(spec, head), row))
        return torch.ones(self.queries, self.keep.shape[-1], dtype=torch.bool) if allowed is None else allowed

    def in_row(self, masks: Mapping[str, Tensor], row: int) -> dict[str, Tensor]:
        """These masks in one row of the batch, bool [Q,K] each, on the CPU."""
        shape = (len(self.keep), 1, self.queries, self.keep.shape[-1])
        return {name: mask.expand(shape)[row, 0].cpu() for name, mask in masks.items()}

    def allowed(self, spec: MaskSpec, made: AllowedCache | None = None) -> Tensor | None:
        """All of them together, broadcastable to [B,H,Q,K]: [B,1,Q,K] unless the heads differ. None: no mask.

        made: what this gave for other layers of the same run, looked up and added to.
        """
        here = spec.at(self.layer, next(iter(spec.heads), 0), self.standard)
        rulings: tuple[MaskSpec, ...] = (here,)
        if spec.heads:
            elsewhere = spec.at(-1, -1, self.standard)
            rulings = tuple(here if head in spec.heads else elsewhere for head in range(self.heads))
        made = {} if made is None else made
        key = (*self.sizes.items(), self.available, self.queries, rulings)
        if key not in made:
            made[key] = self._over_heads(rulings)
        return made[key]

    def allowed_at_top_left(self, spec: MaskSpec, made: AllowedCache | None = None) -> Tensor | None:
        """As allowed, of a kernel that takes the first of the queries for position 0: wrong unless Q = K."""
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


def layer_contexts(layers: int, keep: Tensor, queries: int, heads: int, **more: Any) -> list[MaskContext]:
    """A context for each layer of a stack whose layers have the same masks. more: as MaskContext's."""
    return [MaskContext(keep, queries, heads, layer, **more) for layer in range(layers)]


def allowed_by_layer(contexts: list[MaskContext], spec: MaskSpec) -> list[Tensor | None]:
    """For each layer its mask, [B or 1, H or 1, Q or 1, K], or None; layers under the same masks share it."""
    made: AllowedCache = {}
    return [context.allowed(spec, made) for context in contexts]


@lru_cache(maxsize=2)  # two planes of T x T bytes each
def _canvas(strokes: tuple[Stroke, ...], size: int) -> tuple[Tensor, Tensor]:
    """The drawing on size x size positions: blocked, opened, both bool. Read-only, for it is kept."""
    canvas = torch.zeros(size, size, dtype=torch.uint8)
    value = {"erase": 0, "block": 1, "open": 2}
    for stroke in strokes:
        canvas[stroke.query : stroke.last_query + 1, stroke.key : stroke.last_key + 1] = value[stroke.kind]
    return canvas == 1, canvas == 2
