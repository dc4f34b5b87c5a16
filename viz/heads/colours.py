"""What a heatmap's colours mean: which palette, up to which weight, and how brightness goes with it."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from plotly.colors import sequential as plotly_palettes

from i18n import N_, listed, say
from model.heads.view import HeadView
from viz.hatch import blocking
from viz.head import head_range
from viz.heads.cells import around, weight_text
from viz.heatmap import CachedFigure, Part, figure
from viz.html import numbered
from viz.mask_styles import mask_names
from viz.palette import SEQUENTIAL, sequential

MAX_ROWS = 64  # at most so many rows and columns
STEP = 32  # the part of a long text shown moves by so many queries: it stays for most moves


def shown(view: HeadView, part: tuple[int, int], query: int) -> HeadView:
    """The part of a whole view that the table holds: around the query."""
    steps = (query - part[0] + STEP // 2) // STEP
    return around(view, part, part[0] + steps * STEP, MAX_ROWS)


def numbers_table(view: HeadView) -> pd.DataFrame:
    """A table of weights as text: a row for each query and a column for each key, named "position: token"."""
    cells = np.array([[weight_text(weight) for weight in row] for row in view.weights], object)
    for names, blocked in blocking(view):
        cells[blocked] = mask_names(names)
    queries = pd.Index(numbered(view.queries, view.first), name=say("query \\ key"))
    return pd.DataFrame(cells, queries, key_names(view))


def key_names(view: HeadView) -> list[str]:
    """The names of the columns in numbers_table."""
    return numbered(view.keys, view.first_key)


PALETTES = {  # all perceptually uniform and safe for colour blindness
    "viridis": list(SEQUENTIAL),
    "cividis": plotly_palettes.Cividis,
    "magma": plotly_palettes.Magma,
    "inferno": plotly_palettes.Inferno,
}
PERCENT = 99

Range = Literal["largest", "one", "percentile"]
Brightness = Literal["root", "linear"]


@dataclass(frozen=True)
class Colours:
    """palette: a key of PALETTES. range: whether the upper end is the largest weight, 1, or the 99th percentile of
    weights that are not blocked. brightness: whether it goes with the weight's square root or the weight itself."""

    palette: str = "viridis"
    range: Range = "largest"
    brightness: Brightness = "root"

    def top(self, *views: HeadView) -> float:
        """The weight of the brightest colour, in all pictures of these views."""
        if self.range == "one":
            return 1.0
        if self.range == "largest":
            return head_range(*views)
        free = np.concatenate([view.weights[~view.any_blocked()] for view in views])
        return max(math.ceil(float(np.percentile(free, PERCENT)) * 1000) / 1000, 0.001) if free.size else 1.0

    def scale(self) -> list[list[float | str]]:
        """A plotly colour scale."""
        return sequential(PALETTES[self.palette], 2 if self.brightness == "root" else 1)

    def words(self, top: float) -> str:
        """What the colours mean, in a sentence."""
        digits = 3 if self.range == "percentile" else 2
        parts = [say("Colours run from 0 to {most}", most=f"{top:.{digits}f}")]
        if self.range == "percentile":
            parts.append(say("the {percent}% of weights above it all look the same", percent=100 - PERCENT))
        root = self.brightness == "root"
        parts.append(say("brightness is the square root of the weight") if root else say("brightness is the weight"))
        return say("{clauses}.", clauses=listed(parts, N_("; ")))

    def recolour(self, picture: CachedFigure, *views: HeadView) -> CachedFigure:
        """Recolour the heatmaps of weights in viz.head's picture of these views."""
        if self == STANDARD_COLOURS:
            return picture  # it has these colours already
        parts = [say("weight")]
        if self.brightness == "linear":
            parts.append(say("linear"))
        if self.range == "percentile":
            parts.append(say("{percent}th percentile", percent=PERCENT))
        title = listed(parts)
        plain, colours = picture.to_dict(), {"zmax": self.top(*views), "colorscale": self.scale()}

        def recoloured(trace: Part) -> Part:
            bar = trace["colorbar"] | {"title": trace["colorbar"]["title"] | {"text": title}}
            return trace | colours | {"colorbar": bar}

        traces = [recoloured(trace) if trace["name"] == "weights" else trace for trace in plain["data"]]
        return figure(traces, plain["layout"])


STANDARD_COLOURS = Colours()
