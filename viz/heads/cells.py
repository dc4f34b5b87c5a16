"""A head's cells as bytes for the browser (components/cells.js): exact weights, and for each cell what blocks it.

Weights go as float32, and every view writes them by one rule (`weight_text`): the same cell has the same number in the
heatmap's tooltip, in a lit token, at an arc, at a bar and in the table.
"""

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np

from i18n import N_, say
from model.heads.view import HeadView, cropped
from viz.components import packed
from viz.hatch import blocked_groups, ink
from viz.palette import MARK, NOW

MERGED = {
    "words": N_(
        "Tokens are merged into words: weights are summed over the key's tokens and averaged over the query's."
    ),
    "sentences": N_(
        "Tokens are merged into sentences: weights are summed over the key's tokens and averaged over the query's."
    ),
}
DIGITS = Decimal("0.0001")


def weight_text(weight: float) -> str:
    """Four digits, a tie rounded up, as plotly and a browser's toFixed(4) do it."""
    return str(Decimal(float(weight)).quantize(DIGITS, ROUND_HALF_UP))


def merged_words(by: str) -> str:
    """In a sentence: what tokens are merged into; "" where each stands for itself."""
    return say(MERGED[by]) if by in MERGED else ""


def window(begin: int, end: int, centre: int, most: int) -> tuple[int, int]:
    """At most `most` positions of begin up to, without, end: those around the centre."""
    if end - begin <= most:
        return begin, end
    first = min(max(centre - most // 2, begin), end - most)
    return first, first + most


def around(view: HeadView, part: tuple[int, int], query: int, most: int) -> HeadView:
    """Of a whole view at most `most` queries and keys: those of `part` around the query.

    part: the positions to choose from, from one up to, without, another. A rectangle's rows and columns are different
    texts: of its keys the first ones are taken.
    """
    rows, columns = view.weights.shape
    if rows == columns:
        both = window(*part, query, most)
        return cropped(view, both, both)
    return cropped(view, window(0, rows, query, most), (0, min(columns, most)))


def cells_packet(views: Sequence[HeadView], header: dict[str, Any], *, scored: bool = False) -> bytes:
    """Heads over the same queries and keys. The planes: weights float32 [n,Q,K], for each cell which of the header's
    reasons blocks it, uint16 [n,Q,K], 0 for none, and if scored the scaled scores, float32 [n,Q,K].

    header: what else the component is told.
    """
    about, planes = described(views)
    weights, scores = (
        np.stack([getattr(view, name) for view in views]).astype("<f4").tobytes() for name in ("weights", "scaled")
    )
    return packed(about | header | {"scored": scored}, weights, planes.tobytes(), scores if scored else b"")


def described(views: Sequence[HeadView]) -> tuple[dict[str, Any], np.ndarray]:
    """Of heads over the same queries and keys what a component is told of their cells; and the plane of what blocks
    them, uint16 [n,Q,K]."""
    one = views[0]
    reasons: dict[str, list[dict[str, Any]]] = {}  # the words of each, and its masks' hatching
    planes = np.zeros((len(views), *one.weights.shape), "<u2")
    for plane, view in zip(planes, views, strict=True):
        for words, cells in blocked_groups(view):
            reasons.setdefault(words, [ink(name) for name, mask in view.blocked.items() if mask[cells].any()])
            plane[cells] = list(reasons).index(words) + 1
    about = {
        "part": one.whole is not None,
        "first": one.first,
        "firstKey": one.first_key,
        "queries": one.queries,
        "keys": one.keys,
        "reasons": [{"words": words, "hatch": hatch} for words, hatch in reasons.items()],
        "mark": MARK,
        "tint": NOW,
    }
    return about, planes
