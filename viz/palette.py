"""Colours: a sequential palette for weights, a diverging one for differences, a colour for each mask; and margins.

Viridis is perceptually uniform, safe for colour blindness, and dark at 0 in both themes.
"""

from collections.abc import Iterable, Sequence
from typing import Any
from unicodedata import east_asian_width

import numpy as np
from plotly.colors import sample_colorscale

from viz.mask_styles import STYLES

MARGIN = {"l": 104, "r": 64, "t": 44, "b": 104}  # largest, in pixels: tokens and titles, colour bar, plotly's buttons
TITLE, APART = 26, 6  # pixels in a margin: an axis title; each gap, between title and tokens, and tokens and cells
LETTER = 0.52  # the width of a letter in units of the font size; an upper estimate
SMALL, BETWEEN = 0.42, 0.05  # side of a small picture, and the gap, in units of the large picture's side
WIDE = 1 + BETWEEN + SMALL  # width of a comparison without its margins, in the same unit
TWO = 2.1  # width of two large pictures side by side, in the same unit


def margin(rows: Iterable[str], columns: Iterable[str], size: int) -> dict[str, int]:
    """Return MARGIN, reduced on the left and below to what these labels need. size: the font size in pixels."""
    needed = {"l": _longest(rows) * size, "b": _longest(columns) * size}
    return MARGIN | {side: min(round(width) + TITLE + 2 * APART, MARGIN[side]) for side, width in needed.items()}


def _longest(labels: Iterable[str]) -> float:
    """Return the width of the longest label in units of the font size; Chinese characters are as wide as tall."""
    return max((sum(1 if east_asian_width(sign) in "WF" else LETTER for sign in label) for label in labels), default=0)


SEQUENTIAL = (
    "#440154", "#482475", "#414487", "#355f8d", "#2a788e", "#21918c",
    "#22a884", "#44bf70", "#7ad151", "#bddf26", "#fde725",
)  # fmt: skip

MASK_COLOURS = {name: style.colour for name, style in STYLES.items() if style.colour}
ALLOWED = "#6E86A8"  # an allowed cell of a mask, in both themes

NOW, STANDARD = "#C0504D", "#4A90C2"  # series under the current and under the standard masks
MARK = "#e6399b"  # marks the user's selection, and cells that disagree


def diverging(dark: bool) -> list[list[float | str]]:
    """Return a plotly colour scale, blue below 0 and red above, whose middle is the page's background."""
    middle = "#1b1f27" if dark else "#f7f7f7"
    return [[0.0, "#2166ac"], [0.25, "#67a9cf"], [0.5, middle], [0.75, "#ef8a62"], [1.0, "#b2182b"]]


def sequential(colours: Sequence[str] = SEQUENTIAL, power: float = 2) -> list[list[float | str]]:
    """Return a plotly colour scale whose brightness grows with weight ** (1 / power), by default the square root.

    Most of a head's weights are small; on a linear scale they would all have one dark colour.
    """
    points = [step / 32 for step in range(33)]
    return [[at**power, one] for at, one in zip(points, sample_colorscale(list(colours), points), strict=True)]


def rgb(colour: str) -> tuple[int, int, int]:
    """Convert "#rrggbb" to three numbers from 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def rgba(colour: str, opacity: float) -> str:
    """Convert "#rrggbb" and an opacity from 0 to 1 to "rgba(…)", which CSS and plotly accept."""
    return f"rgba({','.join(map(str, rgb(colour)))},{opacity:.4f})"


def ink_on(red: int, green: int, blue: int) -> str:
    """Return black or white, whichever has the higher contrast on a colour: at least 4.58 (WCAG 2.2)."""
    shares = (part / 255 for part in (red, green, blue))
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "#ffffff"


def stops(entries: int, scale: Sequence[Any] = SEQUENTIAL) -> np.ndarray:
    """Sample a plotly colour scale, or a list of colours, at evenly spaced points: RGB triples, uint8 [entries,3]."""
    points = [entry / (entries - 1) for entry in range(entries)]
    triples = sample_colorscale(list(scale), points, colortype="tuple")
    return np.rint(np.array(triples) * 255).astype(np.uint8)


LINEAR_SCALE = sequential(power=1)
SEQUENTIAL_SCALE = sequential()  # computed once: every heatmap uses it
