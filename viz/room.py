"""The room of a head's pictures: a square as large as the reader's column and window let it be (ui/page.py), margins in
pixels around it, and for a comparison two small squares beside it.
"""

from collections.abc import Iterable
from unicodedata import east_asian_width

MARGIN = {"l": 104, "r": 64, "t": 44, "b": 104}  # at most: tokens and titles, a colour bar, and plotly's buttons
TITLE, APART = 26, 6  # of a margin: an axis title, and what lies between it, the tokens and the cells
LETTER = 0.52  # of a font's size: a letter's width, rather more than less
SMALL, BETWEEN = 0.42, 0.05  # of the large picture's side: the small ones' side, and what lies beside the large one
WIDE = 1 + BETWEEN + SMALL  # of a comparison, without its margins, in sides of the large picture
TWO = 2.1  # likewise of two large pictures side by side


def margin(rows: Iterable[str], columns: Iterable[str], size: int) -> dict[str, int]:
    """MARGIN, but for the labels beside rows and below columns no more than they need in a font of this size."""
    needed = {"l": _longest(rows) * size, "b": _longest(columns) * size}
    return MARGIN | {side: min(round(width) + TITLE + 2 * APART, MARGIN[side]) for side, width in needed.items()}


def _longest(labels: Iterable[str]) -> float:
    """The width of the longest label in font sizes; Chinese characters are as wide as they are tall."""
    return max((sum(1 if east_asian_width(sign) in "WF" else LETTER for sign in label) for label in labels), default=0)
