"""One head's heatmap, or the difference of two, as bytes for components/heatmap.js."""

from dataclasses import replace
from typing import Any

import numpy as np

from i18n import say
from model.heads.view import HeadView
from viz.components import words
from viz.head import head_range
from viz.heads.cells import cells_packet
from viz.heatmap import KEY_TITLE, QUERY_TITLE, axis_titles
from viz.palette import diverging, stops, table

MOST_CELLS = 144 * 128 * 128  # of all heads: 4.7 MB, 6.3 MB in base64, should they not deflate at all


def ten_thousandths(numbers: np.ndarray) -> np.ndarray:
    """float32, -1 to 1 -> int, -10,000 to 10,000: the digits of viz.heads.cells.weight_text, a tie away from 0.

    float64 holds the product exactly: 24 binary digits times 14.
    """
    return (np.sign(numbers) * np.floor(np.abs(numbers, dtype=np.float64) * 10_000 + 0.5)).astype(np.int32)


def room_for(view: HeadView, cells: int = MOST_CELLS) -> int:
    """How many heads like this one are held where there is room for so many cells; 1 at the least."""
    return max(cells // view.weights.size, 1)


COLOURS = 255


def picture_packet(view: HeadView, *, name: str, query: int, small: bool = False) -> bytes:
    """The head of this name; query: the position whose row is framed. small: without the tokens' names."""
    about = {"name": name, "most": head_range(view), "small": small, "titles": axis_titles(view)}
    return cells_packet([view], picture_header(query) | about)


def growing_packet(view: HeadView, *, name: str, query: int, alt: str) -> bytes:
    """A head that gets a row at every token: of one size whatever their number, and with scores. alt: in words."""
    header = picture_header(query) | {"name": name, "most": head_range(view), "grows": True, "alt": alt}
    return cells_packet([view], header, scored=True)


def difference_packet(change: HeadView, *, name: str, query: int, small: bool = False) -> bytes:
    """Likewise of a change, as `changed` gives it."""
    about = {"name": name, "most": change_range(change), "small": small, "titles": axis_titles(change)}
    return cells_packet([change], difference_header(query) | about)


def picture_header(query: int) -> dict[str, Any]:
    """What heatmap.js is told of weights, beside a head's name and `most`, the number of the last colour."""
    return _header("weight", query, [table(COLOURS)] * 2)


def difference_header(query: int) -> dict[str, Any]:
    """Likewise of changes."""
    return _header("change", query, [stops(diverging(dark), COLOURS) for dark in (False, True)])


def change_range(change: HeadView) -> float:
    """The change that gets the last colour, to either side."""
    return max(float(np.abs(change.weights).max(initial=0.0)), 0.01)


def changed(now: HeadView, other: HeadView) -> HeadView:
    """The weights of now less those of the other, float32 [Q,K]; blocked are the cells that both block.

    Raises ValueError for heads over other tokens.
    """
    if (now.queries, now.keys) != (other.queries, other.keys):
        tokens = {"now": _tokens(now), "other": _tokens(other)}
        raise ValueError(say("expected two heads over the same tokens, got {now} and {other}", **tokens))
    both = now.any_blocked() & other.any_blocked()
    none = np.zeros_like(both)
    blocked = {
        name: both & (now.blocked.get(name, none) | other.blocked.get(name, none))
        for name in {**now.blocked, **other.blocked}
    }
    whole = changed(now.whole, other.whole) if now.whole and other.whole else None
    differences = {"weights": now.weights - other.weights, "scaled": now.scaled - other.scaled}
    return replace(now, **differences, blocked=blocked, whole=whole)


def _header(what: str, query: int, palettes: list[bytes]) -> dict[str, Any]:
    return {
        "what": what,
        "query": query,
        "palettes": [colours.hex() for colours in palettes],
        "titles": [say(QUERY_TITLE), say(KEY_TITLE)],
        "words": words("cells", "heatmap"),
    }


def _tokens(view: HeadView) -> str:
    return f"{len(view.queries)} × {len(view.keys)} ({' '.join(view.queries[:4])} …)"
