"""Objects with heads to show: a run (runs.py), or weights returned by transformers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral
from typing import Any, Literal, Self

import numpy as np

from model.errors import index, items
from model.heads.merging import By, Groups, groups_of_labels, merged, merged_blocked, merged_weights
from model.heads.survey import blocked_thumbnail, thumbnails, weights_from_attentions
from model.heads.view import HeadView, head_name
from unmask.pictures import ABSENT, MAX_TOKENS, HeadPicture, Picture, head_picture, printed_file
from viz.heads.tokens import MAX_HEADS
from viz.numbers import head_count, key_count, layer_count, query_count
from viz.palette import MASK_COLOURS
from viz.saved.explorer import AllHeads, all_heads, explorer_page
from viz.saved.standalone import Canvas

HELD_CELLS = 500_000  # of all heads in one picture of a notebook: 1 MB before compression


class HeadSource(ABC):
    """An object with heads, which displays itself as all of them. Layers and heads count from 0.

    title: a description in a line. query: the position whose row is framed. across: the keys are another text than the
    queries. numbers: of each layer in the network, if these are not 0, 1, 2 … by: what tokens are merged into.
    """

    title: str
    query: int
    across: bool
    numbers: Sequence[int]
    by: By

    @abstractmethod
    def merged(self, by: By) -> Self:
        """Return the same with its tokens merged into "words" or "sentences": weights summed over keys, averaged over
        queries; or not merged, by "tokens". Raises ValueError for anything else."""

    @abstractmethod
    def view(self, layer: int, head: int) -> HeadView:
        """Return one head as arrays with its labels. Raises ValueError for a head that does not exist."""

    def shown_view(self, layer: int, head: int) -> HeadView:
        """Return what pictures of all heads show of one: the whole head, or a part if it is too large."""
        return self.view(layer, head)

    @property
    def size(self) -> tuple[int, int]:
        """How many queries and keys a whole head has."""
        queries, keys = self.view(0, 0).weights.shape
        return queries, keys

    @property
    def first_token(self) -> int:
        """The first key that is not padding."""
        return 0

    @abstractmethod
    def glance(self) -> tuple[np.ndarray, np.ndarray]:
        """Return thumbnails float32 [L,H,S,S'], and bool [L, H or 1, S, S'], patches that are blocked as a whole."""

    @abstractmethod
    def _heads(self, layer: int, name: Literal["q", "k", "v"]) -> np.ndarray:
        """Return the q, k or v of a layer's heads. Raises ValueError if they are not known."""

    def q(self, layer: int) -> np.ndarray:
        """Return the queries of a layer, float32 [H,Q,D], after rotary positions if the model has them. Raises
        ValueError if they are not known; so do k and v."""
        return self._heads(layer, "q")

    def k(self, layer: int) -> np.ndarray:
        """Return the keys of a layer, float32 [Hkv,K,D]: with grouped-query attention, fewer heads than for queries."""
        return self._heads(layer, "k")

    def v(self, layer: int) -> np.ndarray:
        """Return the values of a layer, float32 [Hkv,K,D]."""
        return self._heads(layer, "v")

    def first_head(self) -> tuple[int, int]:
        return len(self.glance()[0]) // 2, 0

    def notes(self) -> list[list[str]]:
        """Return a line for each head of each layer, or none at all."""
        return []

    def measures(self) -> dict[str, np.ndarray]:
        """Return shares of each head's attention by their names, [L,H]."""
        return {}

    def marks(self) -> dict[str, np.ndarray]:
        """Return the measures by which an overview marks, dims and sorts heads."""
        return {}

    def head(self, layer: int, head: int, *, by: By | None = None) -> HeadPicture:
        """Show one head as a heatmap. by: as for `merged`."""
        return (self if by is None else self.merged(by))._picture("heatmap", layer, [head])

    def tokens(self, layer: int, head: int, *, by: By | None = None) -> HeadPicture:
        """Show one head on its text: pointing at a token highlights those it attends to. by: as for `merged`."""
        return (self if by is None else self.merged(by))._picture("tokens", layer, [head])

    def arcs(self, layer: int, heads: int | Sequence[int], *, by: By | None = None) -> HeadPicture:
        """Show a head of a layer, or several, as lines between the tokens. by: as for `merged`."""
        if by is not None:
            return self.merged(by).arcs(layer, heads)
        some = [int(heads)] if isinstance(heads, Integral) else items("a head of the layer, or several", heads)
        if not 1 <= len(some) <= MAX_HEADS:
            raise ValueError(f"expected 1 to {MAX_HEADS} heads, got {len(some)}")
        return self._picture("arcs", layer, some)

    def heads(self) -> Picture:
        """Show all heads as thumbnails, and the selected one enlarged. Its numbers are the thumbnails, float32
        [L,H,S,S']: the largest weight of each patch; S = Q for a short text; for a longer one its repr says
        "thumbnails"."""
        first = self.first_head()
        heads = self.all_heads([first])
        layers, count, *pixels = heads.thumbnails.shape
        smaller = "" if tuple(pixels) == self.size else " (thumbnails of {} × {})".format(*pixels)
        line = f"{self.title}: {layer_count(layers)} × {head_count(count)}{smaller}"
        html, canvas = partial(explorer_page, line, heads, absent=ABSENT), lambda: Canvas("overview", heads.overview())
        printed = partial(printed_file, "overview", "", self.title, (heads, self.size))
        return Picture(line, heads, heads.thumbnails, html, canvas, printed, self.axes_of(heads.thumbnails))

    def axes_of(self, numbers: np.ndarray) -> dict[str, Sequence[Any]]:
        """Return the labels along each axis of an array over all heads, [L,H] or [L,H,S,S']."""
        names = zip(("head", "query patch", "key patch"), map(range, numbers.shape[1:]), strict=False)
        return {"layer": self.numbers or range(len(numbers)), **dict(names)}

    def all_heads(
        self, chosen: Sequence[tuple[int, int]], cells: int = HELD_CELLS, tokens: int = MAX_TOKENS
    ) -> AllHeads:
        """Return all heads as thumbnails, and as many in full as there is room for, the chosen ones first.

        cells: the most cells of all heads in full; tokens: the most queries and keys, those around the framed one.
        """
        about: dict[str, Any] = {"notes": self.notes(), "measures": self.marks()}
        about |= {"numbers": self.numbers, "across": self.across, "size": self.size}
        return all_heads(self.shown_view, *self.glance(), chosen, self.query, cells=cells, tokens=tokens, **about)

    def _picture(self, form: str, layer: int, heads: Sequence[int]) -> HeadPicture:
        views = [self.view(layer, head) for head in heads]
        names = [self.named(layer, head) for head in heads]
        about: dict[str, Any] = {"across": self.across, "first_token": self.first_token}
        return head_picture(form, names, views, self.query, self.title, **about)

    def named(self, layer: int, head: int | None = None) -> str:
        """Return the name of the head, or of the whole layer, by the network's own number of the layer."""
        return head_name(self.numbers[layer] if self.numbers else layer, head)

    def _repr_html_(self) -> str:
        return self.heads()._repr_html_()


def pairs_of(heads: Any) -> list[tuple[Any, Any]]:
    """Return heads as (layer, head) pairs, which need not exist. Raises ValueError for anything but pairs."""
    pairs = items("heads as pairs (layer, head)", heads)
    if not all(isinstance(one, Sequence | np.ndarray) and len(one) == 2 for one in pairs):
        raise ValueError(f"expected heads as pairs (layer, head), got {heads!r:.80}")
    return [tuple(one) for one in pairs]


@dataclass(frozen=True, eq=False, repr=False)
class GivenHeads(HeadSource):
    """Heads whose weights were computed elsewhere. weights: float32 [L,H,Q,K]; queries, keys: a label for each.

    blocked: for each mask that is known, bool [Q,K], True = it blocks the cell. scores: float32 [L,H,Q,K], before
    masking, if they are known. qkv: of each layer q [H,Q,D], k and v [Hkv,K,D], likewise.
    """

    title: str
    weights: np.ndarray
    queries: list[str]
    keys: list[str]
    blocked: dict[str, np.ndarray] = field(default_factory=dict)
    across: bool = False
    numbers: Sequence[int] = ()
    by: By = "tokens"
    scores: np.ndarray | None = None
    qkv: Sequence[Mapping[str, np.ndarray]] = ()

    def _heads(self, layer: int, name: Literal["q", "k", "v"]) -> np.ndarray:
        layer = index("layer", layer, len(self.weights), numbers=self.numbers)
        if layer >= len(self.qkv) or name not in self.qkv[layer]:
            raise ValueError(f"expected {name} of layer {layer} among what was given, got weights alone")
        return self.qkv[layer][name]

    def masks_of(self, layer: int, head: int) -> dict[str, np.ndarray]:
        """Return the masks that are known, by name: bool [Q,K], True = it blocks the cell."""
        return self.blocked

    @property
    def query(self) -> int:  # type: ignore[override]
        return len(self.view(0, 0).queries) - 1

    def numpy(self) -> np.ndarray:
        return self.weights if self._groups is None else merged_weights(self.weights, *self._groups)

    def merged(self, by: By) -> Self:
        groups_of_labels([], by)  # raises for any other value
        return replace(self, by=by)

    @property
    def _groups(self) -> Groups | None:
        both = (groups_of_labels(labels, self.by) for labels in (self.queries, self.keys))
        return None if self.by == "tokens" else (next(both), next(both))

    def view(self, layer: int, head: int) -> HeadView:
        """Return one head as arrays with its labels; scores that are not known are NaN."""
        layers, heads = self.weights.shape[:2]
        pair = index("layer", layer, layers, numbers=self.numbers), index("head", head, heads)
        weights = self.weights[pair]
        scores = np.full_like(weights, np.nan) if self.scores is None else self.scores[pair]
        view = HeadView(weights, scores, self.masks_of(*pair), self.queries, self.keys)
        return view if self._groups is None else merged(view, *self._groups)

    def glance(self) -> tuple[np.ndarray, np.ndarray]:
        small = thumbnails(self.numpy())
        nothing, shown = np.zeros(self.weights.shape[2:], bool), np.zeros(small.shape, bool)
        for head in np.ndindex(small.shape[:2]):
            closed = np.any([nothing, *self.masks_of(*head).values()], axis=0)
            shown[head] = blocked_thumbnail(merged_blocked(closed, self._groups), *small.shape[2:])
        return small, shown

    def __repr__(self) -> str:
        layers, heads, queries, keys = self.weights.shape
        sizes = f"{layer_count(layers)} × {head_count(heads)}, {query_count(queries)} × {key_count(keys)}"
        return f"{self.title}: {sizes}"


def attentions(
    attentions: Any,
    tokens: Sequence[str],
    *,
    keys: Sequence[str] | None = None,
    row: int = 0,
    blocked: dict[str, Any] | None = None,
) -> GivenHeads:
    """Wrap the weights that transformers returns with output_attentions=True: a tensor [B,H,Q,K] for each layer.

    attentions: those, the output that contains them, or what `generate` returns with return_dict_in_generate=True.
    tokens: a label for each query; for `generate` the last token may be among them, which was never read. keys: a label
    for each key, if these are other tokens. blocked: bool [Q,K] by the name of a mask ("causal", "padding" …), True =
    it blocks the cell; weights alone do not distinguish a blocked cell from a weight of 0.
    Raises ValueError for anything else.
    """
    weights = weights_from_attentions(attentions, row, across=keys is not None)
    queries = list(map(str, items("tokens as a list of labels", tokens)))
    steps = getattr(attentions, "attentions", attentions)
    if len(queries) == weights.shape[2] + 1 and isinstance(steps[0], tuple | list):  # from `generate`, a tuple for each
        queries = queries[:-1]
    labels = queries, queries if keys is None else list(map(str, items("keys as a list of labels", keys)))
    wanted, got = weights.shape[2:], tuple(map(len, labels))
    if wanted != got:
        both = "{} for the queries and {} for the keys".format
        raise ValueError(f"expected a label for each token, {both(*wanted)}, got {both(*got)}")
    if not (blocked is None or isinstance(blocked, dict)):
        raise ValueError(f"expected blocked cells as a dict by the name of a mask, got {type(blocked).__name__}")
    masks = {name: np.asarray(mask) for name, mask in (blocked or {}).items()}
    for name, mask in masks.items():
        if name not in MASK_COLOURS or mask.dtype != bool or mask.shape != weights.shape[2:]:
            raise ValueError(
                f"expected bool {list(weights.shape[2:])} by a name out of {', '.join(MASK_COLOURS)}, "
                f"got {mask.dtype} {list(mask.shape)} by {name!r}"
            )
    return GivenHeads("attentions", weights, *labels, masks, across=keys is not None)
