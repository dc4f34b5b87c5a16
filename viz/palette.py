"""Colours. One sequential palette for weights, one diverging for differences, one colour for each mask.

Viridis is perceptually uniform, safe for colour blindness, and dark at 0 in both themes.
"""

from collections.abc import Iterable, Sequence
from typing import Any
from unicodedata import east_asian_width

import numpy as np
from plotly.colors import sample_colorscale

from viz.mask_styles import STYLES

MARGIN = {"l": 104, "r": 64, "t": 44, "b": 104}  # at most, for tokens and titles, a colour bar, plotly's buttons
TITLE, APART = 26, 6  # pixels of a margin: an axis title, and each gap between it, the tokens and the cells
LETTER = 0.52  # the width of a letter in font sizes, rather too large than too small
SMALL, BETWEEN = 0.42, 0.05  # sides of a small picture and of the gap, in sides of the large one
WIDE = 1 + BETWEEN + SMALL  # width of a comparison without its margins, in sides of the large picture
TWO = 2.1  # the same for two large pictures side by side


def margin(rows: Iterable[str], columns: Iterable[str], size: int) -> dict[str, int]:
    """MARGIN, but no larger on the left and below than these labels need in a font of this size."""
    needed = {"l": _longest(rows) * size, "b": _longest(columns) * size}
    return MARGIN | {side: min(round(width) + TITLE + 2 * APART, MARGIN[side]) for side, width in needed.items()}


def _longest(labels: Iterable[str]) -> float:
    """The width of the longest label in font sizes; Chinese characters are as wide as they are tall."""
    return max((sum(1 if east_asian_width(sign) in "WF" else LETTER for sign in label) for label in labels), default=0)


SEQUENTIAL = (
    "#440154", "#482475", "#414487", "#355f8d", "#2a788e", "#21918c",
    "#22a884", "#44bf70", "#7ad151", "#bddf26", "#fde725",
)  # fmt: skip

MASK_COLOURS = {name: style.colour for name, style in STYLES.items() if style.colour}
ALLOWED = "#6E86A8"  # an allowed cell of a mask, in both themes

NOW, STANDARD = "#C0504D", "#4A90C2"  # series under the current and under the standard masks
MARK = "#e6399b"  # marks what the reader picked, and what disagrees


def diverging(dark: bool) -> list[list[float | str]]:
    """A plotly colour scale, blue below 0 and red above, whose middle is the page's own ground."""
    middle = "#1b1f27" if dark else "#f7f7f7"
    return [[0.0, "#2166ac"], [0.25, "#67a9cf"], [0.5, middle], [0.75, "#ef8a62"], [1.0, "#b2182b"]]


def sequential(colours: Sequence[str] = SEQUENTIAL, power: float = 2) -> list[list[float | str]]:
    """A plotly colour scale for weights: brightness goes with the square root of the weight, or with its 1/power.

    Most of a head's weights are small; on a straight scale they are all one dark colour.
    """
    places = [step / 32 for step in range(33)]
    return [[at**power, one] for at, one in zip(places, sample_colorscale(list(colours), places), strict=True)]


def rgb(colour: str) -> tuple[int, int, int]:
    """ "#rrggbb" as three numbers from 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def rgba(colour: str, opacity: float) -> str:
    """ "#rrggbb" with an opacity from 0 to 1, as CSS and plotly have it."""
    return f"rgba({','.join(map(str, rgb(colour)))},{opacity:.4f})"


def ink_on(red: int, green: int, blue: int) -> str:
    """Black or white, whichever is read better on a colour: a contrast of 4.58 at the least (WCAG 2.2)."""
    shares = (part / 255 for part in (red, green, blue))
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "#ffffff"


def stops(entries: int, scale: Sequence[Any] = SEQUENTIAL) -> np.ndarray:
    """A plotly colour scale, or a list of colours, as so many evenly spaced RGB triples, uint8 [entries,3]."""
    places = [entry / (entries - 1) for entry in range(entries)]
    triples = sample_colorscale(list(scale), places, colortype="tuple")
    return np.rint(np.array(triples) * 255).astype(np.uint8)


LINEAR_SCALE = sequential(power=1)
SEQUENTIAL_SCALE = sequential()  # made once: every heatmap has it
