"""Whatever has heads to show: a run of ours (runs.py), or weights that transformers gave."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from model.errors import index, items
from model.heads.survey import blocked_thumbnail, given_weights, thumbnails
from model.heads.view import HeadView, head_name
from unmask.pictures import MOST_TOKENS, HeadPicture, Picture, head_picture, heads_picture
from viz.heads.arcs import MOST_HEADS
from viz.palette import MASK_COLOURS
from viz.saved.explorer import AllHeads, all_heads

HELD_CELLS = 500_000  # of all heads in one picture of a notebook: 1 MB before it is deflated


class HeadSource(ABC):
    """Layers and heads count from 0. Shows itself as all of its heads.

    title: what it is, in a line. query: the position whose row is framed. across: the keys are another text than the
    queries. numbers: of each layer in the network, where these are not 0, 1, 2 …
    """

    title: str
    query: int
    across: bool
    numbers: Sequence[int]

    @abstractmethod
    def view(self, layer: int, head: int) -> HeadView:
        """One head as arrays with its labels. Raises ValueError for a head that is not there."""

    @abstractmethod
    def glance(self) -> tuple[np.ndarray, np.ndarray]:
        """Thumbnails float32 [L,H,S,S'], and bool [L,S,S'], patches that are blocked as a whole."""

    def first_head(self) -> tuple[int, int]:
        return len(self.glance()[0]) // 2, 0

    def notes(self) -> list[list[str]]:
        """A line for each head of each layer, or none at all."""
        return []

    def measures(self) -> dict[str, np.ndarray]:
        """Shares of each head's attention by their names, [L,H], by which an overview can be dimmed and sorted."""
        return {}

    def head(self, layer: int, head: int) -> HeadPicture:
        """One head as a heatmap."""
        return self._picture("heatmap", layer, [head])

    def tokens(self, layer: int, head: int) -> HeadPicture:
        """One head as its text: the token pointed at lights those that it looks at."""
        return self._picture("tokens", layer, [head])

    def arcs(self, layer: int, heads: int | Sequence[int]) -> HeadPicture:
        """A head of a layer, or several, as lines between the tokens."""
        some = [heads] if isinstance(heads, int) else items("a head of the layer, or several", heads)
        if not 1 <= len(some) <= MOST_HEADS:
            raise ValueError(f"expected 1 to {MOST_HEADS} heads, got {len(some)}")
        return self._picture("arcs", layer, some)

    def heads(self) -> Picture:
        """All heads at a glance, and the one that is picked, large."""
        first = self.first_head()
        return heads_picture(self.title, self.all_heads([first]), len(self.view(*first).queries))

    def all_heads(
        self, chosen: Sequence[tuple[int, int]], cells: int = HELD_CELLS, tokens: int = MOST_TOKENS
    ) -> AllHeads:
        """All heads, and in full those for which there is room, the chosen ones first.

        cells: room for so many of all heads; tokens: for so many of each side, those around the framed one.
        """
        about: dict[str, Any] = {
            "notes": self.notes(),
            "measures": self.measures(),
            "numbers": self.numbers,
            "across": self.across,
        }
        return all_heads(self.view, *self.glance(), chosen, self.query, cells=cells, tokens=tokens, **about)

    def _picture(self, form: str, layer: int, heads: Sequence[int]) -> HeadPicture:
        views = [self.view(layer, head) for head in heads]
        names = [self.named(layer, head) for head in heads]
        return head_picture(form, names, views, self.query, self.title, across=self.across)

    def named(self, layer: int, head: int) -> str:
        """The head's name, by the network's own number of the layer."""
        return head_name(self.numbers[layer] if self.numbers else layer, head)

    def _repr_html_(self) -> str:
        return self.heads()._repr_html_()


@dataclass(frozen=True, eq=False, repr=False)
class GivenHeads(HeadSource):
    """Heads whose weights somebody else computed. weights: float32 [L,H,Q,K]; queries, keys: a label each.

    blocked: for each mask that is known, bool [Q,K], True = it blocks the cell.
    """

    title: str
    weights: np.ndarray
    queries: list[str]
    keys: list[str]
    blocked: dict[str, np.ndarray] = field(default_factory=dict)
    across: bool = False
    numbers: Sequence[int] = ()

    @property
    def query(self) -> int:  # type: ignore[override]
        return len(self.queries) - 1

    def numpy(self) -> np.ndarray:
        return self.weights

    def view(self, layer: int, head: int) -> HeadView:
        """One head as arrays with its labels; what its scores were is not known."""
        weights = self.weights[index("layer", layer, len(self.weights)), index("head", head, self.weights.shape[1])]
        return HeadView(weights, np.full_like(weights, np.nan), self.blocked, self.queries, self.keys)

    def glance(self) -> tuple[np.ndarray, np.ndarray]:
        small = thumbnails(self.weights)
        whole = blocked_thumbnail(self.view(0, 0).any_blocked(), *small.shape[2:])
        return small, np.broadcast_to(whole, (len(small), *whole.shape))

    def __repr__(self) -> str:
        layers, heads, queries, keys = self.weights.shape
        return f"{self.title}: {layers} layers × {heads} heads, {queries} queries × {keys} keys"


def attentions(
    attentions: Any,
    tokens: Sequence[str],
    *,
    keys: Sequence[str] | None = None,
    row: int = 0,
    blocked: dict[str, Any] | None = None,
) -> GivenHeads:
    """The weights that transformers gives with output_attentions=True: a tensor [B,H,Q,K] for each layer.

    attentions: those, the output that holds them, or what `generate` returns with return_dict_in_generate=True.
    tokens: a label for each query; of `generate` the last token may be among them, which was never read. keys: a label
    for each key, where these are other tokens. blocked: bool [Q,K] by the name of a mask ("causal", "padding" …),
    True = it blocks the cell; weights alone do not tell a blocked cell from a weight of 0.
    Raises ValueError for anything else.
    """
    weights = given_weights(attentions, row, across=keys is not None)
    queries = list(map(str, items("tokens as a list of labels", tokens)))
    if len(queries) == weights.shape[2] + 1 and _is_generated(attentions):
        queries = queries[:-1]
    labels = queries, queries if keys is None else list(map(str, items("keys as a list of labels", keys)))
    wanted, got = weights.shape[2:], tuple(map(len, labels))
    if wanted != got:
        both = "{} for the queries and {} for the keys".format
        raise ValueError(f"expected a label for each token, {both(*wanted)}, got {both(*got)}")
    if not isinstance(blocked or {}, dict):
        raise ValueError(f"expected blocked cells as a dict by the name of a mask, got {type(blocked).__name__}")
    masks = {name: np.asarray(mask) for name, mask in (blocked or {}).items()}
    for name, mask in masks.items():
        if name not in MASK_COLOURS or mask.dtype != bool or mask.shape != weights.shape[2:]:
            raise ValueError(
                f"expected bool {list(weights.shape[2:])} by a name out of {', '.join(MASK_COLOURS)}, "
                f"got {mask.dtype} {list(mask.shape)} by {name!r}"
            )
    return GivenHeads("attentions", weights, *labels, masks, across=keys is not None)


def _is_generated(attentions: Any) -> bool:
    """Whether these are the steps of `generate`, a tuple for each."""
    found = getattr(attentions, "attentions", attentions)
    return isinstance(found[0], tuple | list)
