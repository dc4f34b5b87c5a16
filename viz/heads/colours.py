"""Colour settings of a heatmap: the palette, the weight of the last colour, and brightness as a function of weight."""

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

MAX_ROWS = 64  # largest number of rows and of columns
STEP = 32  # queries by which the shown part of a long text moves, so that it stays for most moves of the query


def shown(view: HeadView, part: tuple[int, int], query: int) -> HeadView:
    """Return the part of a whole view around the query that the table shows. part: as in `around`."""
    steps = (query - part[0] + STEP // 2) // STEP
    return around(view, part, part[0] + steps * STEP, MAX_ROWS)


def numbers_table(view: HeadView) -> pd.DataFrame:
    """Return a table of weights as text, with a row for each query and a column for each key, named "position: token";
    a blocked cell has the names of its masks."""
    cells = np.array([[weight_text(weight) for weight in row] for row in view.weights], object)
    for names, blocked in blocking(view):
        cells[blocked] = mask_names(names)
    queries = pd.Index(numbered(view.queries, view.first), name=say("query \\ key"))
    return pd.DataFrame(cells, queries, key_names(view))


def key_names(view: HeadView) -> list[str]:
    """Return the names of the columns in numbers_table."""
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
    """Colour settings. palette: a key of PALETTES. range: whether the upper end is the largest weight, 1, or the 99th
    percentile of allowed weights. brightness: whether it grows with the weight's square root or the weight itself."""

    palette: str = "viridis"
    range: Range = "largest"
    brightness: Brightness = "root"

    def top(self, *views: HeadView) -> float:
        """Return the weight of the brightest colour in all pictures of these views."""
        if self.range == "one":
            return 1.0
        if self.range == "largest":
            return head_range(*views)
        free = np.concatenate([view.weights[~view.any_blocked()] for view in views])
        return max(math.ceil(float(np.percentile(free, PERCENT)) * 1000) / 1000, 0.001) if free.size else 1.0

    def scale(self) -> list[list[float | str]]:
        """Return the plotly colour scale."""
        return sequential(PALETTES[self.palette], 2 if self.brightness == "root" else 1)

    def words(self, top: float) -> str:
        """Explain the colours in a sentence. top: the weight of the brightest colour."""
        digits = 3 if self.range == "percentile" else 2
        parts = [say("Colours run from 0 to {most}", most=f"{top:.{digits}f}")]
        if self.range == "percentile":
            parts.append(say("the {percent}% of weights above it all look the same", percent=100 - PERCENT))
        root = self.brightness == "root"
        parts.append(say("brightness is the square root of the weight") if root else say("brightness is the weight"))
        return say("{clauses}.", clauses=listed(parts, N_("; ")))

    def recolour(self, picture: CachedFigure, *views: HeadView) -> CachedFigure:
        """Recolour the heatmaps of weights in viz.head's figure of these views."""
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
