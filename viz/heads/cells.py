"""A head's cells as bytes for the browser (components/cells.js): exact weights, and the masks that block each cell; its
heatmap, or the difference of two, for components/heatmap.js.

Weights are sent as float32, and every view formats them the same way (`weight_text`): a cell has the same number in the
heatmap's tooltip, at a highlighted token, at an arc, at a bar and in the table.
"""

from collections.abc import Sequence
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np

from i18n import N_, say
from model.heads.view import HeadView, cropped
from viz.components import packed, words
from viz.hatch import blocked_groups, ink
from viz.head import head_range
from viz.heatmap import KEY_TITLE, QUERY_TITLE, axis_titles
from viz.palette import MARK, NOW, diverging, stops

MERGED = {
    "words": N_(
        "Tokens are merged into words: weights are summed over the key's tokens and averaged over the query's."
    ),
    "sentences": N_(
        "Tokens are merged into sentences: weights are summed over the key's tokens and averaged over the query's."
    ),
}
DIGITS = Decimal("0.0001")
MAX_CELLS = 144 * 128 * 128  # of all heads: 4.7 MB, 6.3 MB in base64, if incompressible
COLOURS = 255  # number of colours of a palette


def weight_text(weight: float) -> str:
    """Write a weight with four digits, a tie rounded up, as plotly and a browser's toFixed(4) do."""
    return str(Decimal(float(weight)).quantize(DIGITS, ROUND_HALF_UP))


def merged_words(by: str) -> str:
    """Say what tokens are merged into; "" if each stands for itself."""
    return say(MERGED[by]) if by in MERGED else ""


def window(begin: int, end: int, centre: int, most: int) -> tuple[int, int]:
    """Return a range of at most `most` positions around the centre, within [begin, end)."""
    if end - begin <= most:
        return begin, end
    first = min(max(centre - most // 2, begin), end - most)
    return first, first + most


def around(view: HeadView, part: tuple[int, int], query: int, most: int) -> HeadView:
    """Crop a whole view to at most `most` queries and keys of `part` around the query.

    part: the first available position, and the one after the last. If the numbers of queries and keys differ, they are
    different texts: the view is cropped to its first keys.
    """
    rows, columns = view.weights.shape
    if rows == columns:
        both = window(*part, query, most)
        return cropped(view, both, both)
    return cropped(view, window(0, rows, query, most), (0, min(columns, most)))


def cells_packet(views: Sequence[HeadView], header: dict[str, Any], *, scored: bool = False) -> bytes:
    """Return the packet of heads over the same queries and keys. Its planes: weights float32 [n,Q,K]; which of the
    header's reasons blocks each cell, uint16 [n,Q,K], 0 for none; and, if scored, the scaled scores, float32 [n,Q,K].

    header: further entries of the packet's header.
    """
    about, planes = described(views)
    weights, scores = (
        np.stack([getattr(view, name) for view in views]).astype("<f4").tobytes() for name in ("weights", "scaled")
    )
    return packed(about | header | {"scored": scored}, weights, planes.tobytes(), scores if scored else b"")


def described(views: Sequence[HeadView]) -> tuple[dict[str, Any], np.ndarray]:
    """Return the header entries on the cells of heads over the same queries and keys, and which of its reasons blocks
    each cell, uint16 [n,Q,K], 0 for none."""
    one = views[0]
    reasons: dict[str, list[dict[str, Any]]] = {}  # text of a reason -> hatching of its masks
    planes = np.zeros((len(views), *one.weights.shape), "<u2")
    for plane, view in zip(planes, views, strict=True):
        for reason, cells in blocked_groups(view):
            reasons.setdefault(reason, [ink(name) for name, mask in view.blocked.items() if mask[cells].any()])
            plane[cells] = list(reasons).index(reason) + 1
    about = {
        "part": one.whole is not None,
        "first": one.first,
        "firstKey": one.first_key,
        "queries": one.queries,
        "keys": one.keys,
        "reasons": [{"words": reason, "hatch": hatch} for reason, hatch in reasons.items()],
        "mark": MARK,
        "tint": NOW,
    }
    return about, planes


def weight_digits(numbers: np.ndarray) -> np.ndarray:
    """Convert float32, -1 to 1, to int, -10,000 to 10,000: the digits of weight_text, a tie rounded away from 0.

    float64 represents the product exactly: 24 binary digits times 14.
    """
    return (np.sign(numbers) * np.floor(np.abs(numbers, dtype=np.float64) * 10_000 + 0.5)).astype(np.int32)


def heads_that_fit(view: HeadView, cells: int = MAX_CELLS) -> int:
    """Return how many heads of this size fit into `cells` cells; at least 1."""
    return max(cells // view.weights.size, 1)


def picture_packet(view: HeadView, *, name: str, query: int, small: bool = False, most: float | None = None) -> bytes:
    """Return a head's packet for heatmap.js. query: the position whose row is framed, -1 for none. small: leave out the
    tokens' names. most: the weight of the last colour, by default head_range(view)."""
    about = {
        "name": name,
        "most": head_range(view) if most is None else most,
        "small": small,
        "titles": axis_titles(view),
    }
    return cells_packet([view], picture_header(query) | about)


def growing_packet(view: HeadView, *, name: str, query: int, alt: str) -> bytes:
    """Return the packet of a head that grows by a row with every token, at a fixed size, with scores. alt: alternative
    text."""
    header = picture_header(query) | {"name": name, "most": head_range(view), "grows": True, "alt": alt}
    return cells_packet([view], header, scored=True)


def difference_packet(change: HeadView, *, name: str, query: int, small: bool = False) -> bytes:
    """Return the packet of a change, as `changed` returns it, for heatmap.js. Arguments: see picture_packet."""
    about = {"name": name, "most": change_range(change), "small": small, "titles": axis_titles(change)}
    return cells_packet([change], difference_header(query) | about)


def picture_header(query: int) -> dict[str, Any]:
    """Return the header of weights for heatmap.js, without a head's name and `most`, the value of the last colour."""
    return _header("weight", query, [stops(COLOURS)] * 2)


def difference_header(query: int) -> dict[str, Any]:
    """Return the header of changes for heatmap.js, without a head's name and `most`."""
    return _header("change", query, [stops(COLOURS, diverging(dark)) for dark in (False, True)])


def change_range(change: HeadView) -> float:
    """Return the absolute change that has the last colour at either end."""
    return max(float(np.abs(change.weights).max(initial=0.0)), 0.01)


def changed(now: HeadView, other: HeadView) -> HeadView:
    """Return the weights of `now` minus those of `other`, float32 [Q,K]; blocked: the cells blocked in both.

    Raises ValueError for heads over different tokens.
    """
    if (now.queries, now.keys) != (other.queries, other.keys):
        one, two = (f"{len(view.queries)} × {len(view.keys)} ({' '.join(view.queries[:4])} …)" for view in (now, other))
        raise ValueError(say("expected two heads over the same tokens, got {now} and {other}", now=one, other=two))
    both = now.any_blocked() & other.any_blocked()
    none = np.zeros_like(both)
    blocked = {
        name: both & (now.blocked.get(name, none) | other.blocked.get(name, none))
        for name in {**now.blocked, **other.blocked}
    }
    whole = changed(now.whole, other.whole) if now.whole and other.whole else None
    differences = {"weights": now.weights - other.weights, "scaled": now.scaled - other.scaled}
    return replace(now, **differences, blocked=blocked, whole=whole)


def _header(what: str, query: int, palettes: list[np.ndarray]) -> dict[str, Any]:
    look = {"palettes": [colours.tobytes().hex() for colours in palettes], "titles": [say(QUERY_TITLE), say(KEY_TITLE)]}
    return {"what": what, "query": query, "words": words("cells", "heatmap")} | look
