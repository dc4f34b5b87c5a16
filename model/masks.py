"""Boolean masks and how they combine. True means "may attend".

A cell is allowed when every mask that is on allows it, or where sinks or a prefix open it again; what was drawn by
hand has the last word. MaskSpec (spec.py) says which masks are on, a MaskContext what they are made of.
Sizes: B batch rows, H heads, Q queries, K keys; the queries are the last Q of the K positions.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache, reduce
from typing import Any

import torch
from torch import Tensor

from model.spec import OFF, STANDARD, MaskSpec, Stroke

__all__ = ["MaskContext", "MaskSpec", "Stroke", "build", "combine"]

SCOPE = ("layers", "heads", "positions")  # fields that say where, not which
MASK_NAMES = tuple(field.name for field in fields(MaskSpec) if field.name not in SCOPE)
NATIVE = ("causal", "padding", "window", "chunk")  # those that models are trained with
OPENERS = ("prefix", "sinks")


def causal(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """[Q,K]: a query sees itself and what came before. With K > Q the queries are the last Q of K positions."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril_(keys - queries)


def padding(keep: Tensor) -> Tensor:
    """keep [B,K] (True = a real token) -> [B,1,1,K]: nobody looks at padding."""
    return keep[:, None, None, :]


def padding_queries(keep: Tensor, queries: int) -> Tensor:
    """keep [B,K] -> [B,1,Q,1]: padding looks at nobody."""
    return keep[:, None, keep.shape[-1] - queries :, None]


def window(queries: int, keys: int, size: int, device: torch.device | None = None) -> Tensor:
    """[Q,K]: the distance |query - key| is less than size (Mistral's sliding window, arXiv:2310.06825)."""
    if size < 1:
        raise ValueError(f"expected a window of at least 1 position, got {size}")
    return _distance(queries, keys, device).abs() < size


def chunk(place: Tensor, queries: int, size: int) -> Tensor:
    """place [B,K] (`places`) -> [B,1,Q,K]: both are in the same chunk of `size` real tokens (Llama 4)."""
    if size < 1:
        raise ValueError(f"expected chunks of at least 1 position, got {size}")
    return same_document(place.div(size, rounding_mode="floor"), queries)


def stride(queries: int, keys: int, step: int, device: torch.device | None = None) -> Tensor:
    """[Q,K]: the distance is a multiple of step (Child et al. 2019, arXiv:1904.10509; with a window, dilated)."""
    if step < 1:
        raise ValueError(f"expected a stride of at least 1 position, got {step}")
    return _distance(queries, keys, device) % step == 0


def same_document(document: Tensor, queries: int) -> Tensor:
    """document [B,K], a number for each position -> [B,1,Q,K]: both are of one document."""
    return (document[:, -queries:, None] == document[:, None, :])[:, None]


def prefix(place: Tensor, queries: int, size: int) -> Tensor:
    """place [B,K] (`places`) -> [B,1,Q,K], the cells to open: the first `size` real tokens see each other."""
    first = (place >= 0) & (place < size)
    return (first[:, -queries:, None] & first[:, None, :])[:, None]


def sinks(place: Tensor, queries: int, size: int) -> Tensor:
    """place [B,K] -> [B,1,Q,K], the cells to open: all real tokens see the first `size` (arXiv:2309.17453)."""
    first = (place >= 0) & (place < size)
    return ((place[:, -queries:, None] >= 0) & first[:, None, :])[:, None]


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


def blockers(
    spec: MaskSpec,
    keep: Tensor,
    queries: int,
    *,
    window_size: int | None = None,
    chunk_size: int | None = None,
    documents: Callable[[str], Tensor] | None = None,
) -> dict[str, Tensor]:
    """The masks that `spec` turns on, by name, each broadcastable to [B,1,Q,K], before anything is opened or drawn.

    keep: bool [B,K], True = a real token. A padding mask that blocks nothing is left out, so that a text on its own
    takes the fast path. window_size, chunk_size: the model's native window and chunks in positions, None where it has
    none.
    documents: from a separator to the number of each position's document [B,K]; None where there is no text.
    """
    keys, device = keep.shape[-1], keep.device
    masks: dict[str, Tensor] = {}
    if spec.causal:
        masks["causal"] = causal(queries, keys, device)[None, None]
    if spec.padding and not keep.all():
        masks["padding"] = padding(keep)
        if spec.padding_queries:
            masks["padding"] = masks["padding"] & padding_queries(keep, queries)
    if spec.window and window_size is not None and window_size < keys:
        masks["window"] = window(queries, keys, window_size, device)[None, None]
    if spec.chunk and chunk_size is not None and chunk_size < keys:
        masks["chunk"] = chunk(places(keep), queries, chunk_size)
    if 0 < spec.sliding < keys:
        masks["sliding"] = window(queries, keys, spec.sliding, device)[None, None]
    if spec.stride > 1:
        masks["stride"] = stride(queries, keys, spec.stride, device)[None, None]
    if spec.documents and documents is not None:
        masks["documents"] = same_document(documents(spec.documents).to(device), queries)
    return masks


def build(
    spec: MaskSpec,
    keep: Tensor,
    queries: int,
    *,
    window_size: int | None = None,
    chunk_size: int | None = None,
    documents: Callable[[str], Tensor] | None = None,
) -> dict[str, Tensor]:
    """As `blockers`, with the cells that sinks, a prefix or a drawing open again, and with what is drawn."""
    masks = blockers(spec, keep, queries, window_size=window_size, chunk_size=chunk_size, documents=documents)
    for opened in openings(spec, keep, queries).values():
        masks = {name: mask | opened for name, mask in masks.items()}
    if spec.drawn:
        by_hand, opened = drawn(spec.drawn, places(keep), queries)
        masks = {name: mask | opened for name, mask in masks.items()}
        masks["drawn"] = ~by_hand
    return masks


def openings(spec: MaskSpec, keep: Tensor, queries: int) -> dict[str, Tensor]:
    """The cells that spec opens whatever blocks them, by name, each bool [B,1,Q,K]; what is drawn is not among them."""
    size = {"prefix": spec.prefix, "sinks": spec.sinks}
    make = {"prefix": prefix, "sinks": sinks}
    return {name: make[name](places(keep), queries, size[name]) for name in OPENERS if size[name]}


def combine(masks: dict[str, Tensor]) -> Tensor | None:
    """A cell is allowed when every mask allows it. None when there is no mask."""
    return reduce(torch.logical_and, masks.values()) if masks else None


@dataclass(frozen=True, eq=False)
class MaskContext:
    """One attention of a model during one run: what its masks are made of.

    keep bool [B,K], True = a real key. window, chunk: its native sliding window and the chunks it attends within, in
    positions, or None. available: the masks it can have. standard: the masks that hold outside a spec's layers and
    heads. documents: see build.
    """

    keep: Tensor
    queries: int
    heads: int
    layer: int = 0
    window: int | None = None
    chunk: int | None = None
    available: frozenset[str] = frozenset(MASK_NAMES)
    standard: MaskSpec = STANDARD
    documents: Callable[[str], Tensor] | None = None

    def masks(self, spec: MaskSpec, head: int = 0) -> dict[str, Tensor]:
        """The masks of one head under spec, by name, each broadcastable to [B,1,Q,K]."""
        return build(*self._with_its_own(spec.at(self.layer, head, self.standard)), **self._known())

    def undrawn(self, spec: MaskSpec, head: int = 0) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What blocks, whatever opens it again, and what opens: both by name, without the drawing."""
        ruling = self._with_its_own(spec.at(self.layer, head, self.standard))
        return blockers(*ruling, **self._known()), openings(*ruling)

    def allowed(self, spec: MaskSpec, made: dict | None = None) -> Tensor | None:
        """All of them together, broadcastable to [B,H,Q,K]: [B,1,Q,K] unless the heads differ. None: no mask.

        made: what this gave for other layers of the same run, looked up and added to.
        """
        here = spec.at(self.layer, next(iter(spec.heads), 0), self.standard)
        rulings: tuple[MaskSpec, ...] = (here,)
        if spec.heads:
            elsewhere = spec.at(-1, -1, self.standard)
            rulings = tuple(here if head in spec.heads else elsewhere for head in range(self.heads))
        made = {} if made is None else made
        key = (self.window, self.chunk, self.available, self.queries, rulings)
        if key not in made:
            made[key] = self._over_heads(rulings)
        return made[key]

    def _over_heads(self, rulings: tuple[MaskSpec, ...]) -> Tensor | None:
        if len(rulings) == 1:
            return combine(build(*self._with_its_own(rulings[0]), **self._known()))
        shape = (len(self.keep), 1, self.queries, self.keep.shape[-1])
        free = torch.ones(1, dtype=torch.bool, device=self.keep.device)
        kinds = {ruling: self._over_heads((ruling,)) for ruling in set(rulings)}
        each = [free if mask is None else mask for mask in (kinds[ruling] for ruling in rulings)]
        return torch.cat([mask.expand(shape) for mask in each], dim=1)

    def _with_its_own(self, ruling: MaskSpec) -> tuple[MaskSpec, Tensor, int]:
        """The masks of ruling that this attention can have, and its sizes: what every builder of masks begins with."""
        missing = {name: getattr(OFF, name) for name in MASK_NAMES if name not in self.available}
        return replace(ruling, **missing) if missing else ruling, self.keep, self.queries

    def _known(self) -> dict[str, Any]:
        return {"window_size": self.window, "chunk_size": self.chunk, "documents": self.documents}


def _distance(queries: int, keys: int, device: torch.device | None) -> Tensor:
    """query - key, [Q,K]."""
    q = torch.arange(keys - queries, keys, device=device)[:, None]
    return q - torch.arange(keys, device=device)[None, :]


@lru_cache(maxsize=2)  # two planes of T x T bytes each
def _canvas(strokes: tuple[Stroke, ...], size: int) -> tuple[Tensor, Tensor]:
    """The drawing on size x size positions: blocked, opened, both bool. Read-only, for it is kept."""
    canvas = torch.zeros(size, size, dtype=torch.uint8)
    value = {"erase": 0, "block": 1, "open": 2}
    for stroke in strokes:
        canvas[stroke.query : stroke.last_query + 1, stroke.key : stroke.last_key + 1] = value[stroke.kind]
    return canvas == 1, canvas == 2
