"""Parts that charts of several pages share: margins, a legend above, an axis of tokens, two masks side by side."""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from i18n import N_, say
from model.heads.view import HeadView, reduced
from viz.heatmap import (
    AXIS,
    KEY_TITLE,
    LONGEST_TICK,
    MAX_TICKS,
    QUERY_TITLE,
    CachedFigure,
    Part,
    axes,
    cells,
    colour_bar,
    figure,
    heat,
)
from viz.heatmap import margin as margin_of
from viz.html import escaped, numbered, shortened
from viz.palette import ALLOWED, MARK, TWO, diverging

MAX_SIDE = 512  # most cells of a side of coloured_cells, which sends a text for each
ANY_ALLOWED = N_("Each cell shows {step} × {step} cells: blocked only if all of them are.")
MARGIN = {"l": 8, "r": 8, "t": 8, "b": 8}
SMALL_LABELS = {"tickfont": {"size": 10}}
LEGEND = {"orientation": "h", "y": 1.02, "x": 0, "yanchor": "bottom"}  # above the plot, so that it never covers a curve
ROW, MIN_HEIGHT, MAX_HEIGHT = 26, 262, 642  # pixels in layers_grid: height of a layer, limits of the figure's height
LEFT, RIGHT = (0.0, 1 / TWO), (1 - 1 / TWO, 1.0)  # x domains of two masks side by side, in shares of the width
NO_EFFECT_COLOUR = {True: "#2a2d33", False: "#e4e6eb"}  # a cell whose key has no effect on its query; True: dark theme
BLOCKED = "rgba(128,128,128,.28)"  # a cell that a mask blocks, beside ALLOWED


def token_axis(labels: Sequence[str], most: int, room: float = 0.5, first: int | None = None) -> dict:
    """Return an axis with at most `most` of the labels, each at its position; the title of a unified tooltip is x, not
    the label. room: free space at both ends, in positions. first: the first label's number; if given, labels that
    would be cut to the same text begin with their numbers."""
    every = math.ceil(len(labels) / most) or 1
    cut = {label: shortened(label, LONGEST_TICK) for label in labels[::every]}
    alike = Counter(cut.values() if first is not None else ())
    texts = [
        shortened(name, LONGEST_TICK) if alike[cut[label]] > 1 else cut[label]
        for name, label in zip(numbered(labels, first or 0)[::every], labels[::every], strict=True)
    ]
    return {
        "tickmode": "array",
        "tickvals": list(range(0, len(labels), every)),
        "ticktext": list(map(escaped, texts)),
        "tickangle": -90,
        "unifiedhovertitle": {"text": "%{x}"},
        "range": [-room, max(len(labels), 1) - 1 + room],
    }


def position_names(labels: Sequence[str], first: int = 0) -> list[str]:
    """Return a unique name for each token: its position, then the token. first: the first position."""
    return numbered(map(escaped, labels), first)


def symmetric_colours(reach: float, dark: bool) -> Part:
    """Return a diverging colour scale for numbers from -reach to reach."""
    return {"zmin": -reach, "zmax": reach, "colorscale": diverging(dark)}


def bars(x: Any, y: np.ndarray, name: str, hover: str, colour: str | list[str]) -> Part:
    """Return a trace with a bar of height y at each x. hover: the tooltip's template."""
    look = {"marker": {"color": colour, "line": {"width": 0}}, "hovertemplate": hover + "<extra></extra>"}
    return {"type": "bar", "x": x, "y": np.asarray(y, np.float32), "name": name} | look


def scatter(x: Any, y: Any, name: str, hover: str = "", *, mode: str = "markers", **look: Any) -> Part:
    """Return a trace of points, or of a line through them. hover: the tooltip's template; "" for no tooltip."""
    tooltip = {"hovertemplate": hover + "<extra></extra>"} if hover else {"hoverinfo": "skip"}
    return {"type": "scatter", "x": x, "y": y, "name": name, "mode": mode} | tooltip | look


def layers_grid(
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    framed: Collection[tuple[int, int]],
    hover: str,
    unit: str,
    *,
    dark: bool,
) -> CachedFigure:
    """Draw a heatmap of signed numbers [R,C], the first layer on top; colours follow the square root of the size.
    framed: cells to frame. hover: a cell's tooltip, where %{text} names row and column. A click sends both, from 0."""
    rows, columns = (list(map(escaped, names)) for names in (rows, columns))
    reach = max(float(np.nanmax(np.abs(values), initial=0.0)), 0.01)
    stops = [(float(at), colour) for at, colour in diverging(dark)]
    trace = heat(values, columns, rows, "effects", hover) | symmetric_colours(reach, dark)
    trace |= {"text": [[f"{row} {column}" for column in columns] for row in rows]}
    trace |= {"customdata": [[[row, column] for column in range(len(columns))] for row in range(len(rows))]}
    trace |= {"xgap": 1, "ygap": 1, "colorbar": colour_bar(unit, x=1.01)}
    trace["colorscale"] = [[0.5 + 2 * (at - 0.5) * abs(at - 0.5), colour] for at, colour in stops]
    axis, frame = AXIS | {"tickfont": {"size": 11}}, {"type": "rect", "line": {"color": MARK, "width": 2}}
    frames = [
        frame | {"x0": column - 0.5, "x1": column + 0.5, "y0": row - 0.5, "y1": row + 0.5}
        for row, column in sorted(framed)
    ]
    layout = {
        "height": min(max(ROW * len(rows) + 82, MIN_HEIGHT), MAX_HEIGHT),
        "margin": {"l": 50, "r": 70, "t": 30, "b": 32},  # t: room for plotly's buttons
        "xaxis": axis | {"side": "bottom"},
        "yaxis": axis | {"autorange": "reversed"},
        "shapes": frames,
    }
    return figure([trace], layout)


def upright(x: float, **line: Any) -> Part:
    """Return a shape: a vertical line at x over the plot's height. line: its style."""
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "line": line}


def zero_weights_view(blocked: dict[str, np.ndarray], tokens: list[str]) -> HeadView:
    """Return a HeadView of these tokens with all weights 0, to give other heatmaps the same axes and coarseness."""
    none = np.zeros((len(tokens), len(tokens)), np.float32)
    return HeadView(none, none, blocked, tokens, tokens)


def two_masks(view: HeadView) -> Part:
    """Return the layout of two pictures of this size, side by side, that zoom together, on axes "" and "2"."""
    layout = axes(view) | axes(view, "2", tokens=False)
    layout["xaxis"]["domain"] = LEFT
    layout["yaxis"]["scaleanchor"] = None
    layout["xaxis2"] |= {"domain": RIGHT, "matches": "x"}
    layout["yaxis2"]["matches"] = "y"
    return layout | {"margin": margin_of(view.queries, view.keys, step=view.step) | {"autoexpand": False}}


def flat(view: HeadView, shown: np.ndarray, colour: str, name: str, words: str, axis: str = "") -> Part:
    """Return a heatmap trace of the cells in `shown`, bool [Q,K], in one colour. words: their tooltip."""
    look = {"zmin": 0, "zmax": 1, "colorscale": [[0, colour], [1, colour]], "showscale": False}
    return cells(view, np.where(shown, 0.0, np.nan), name, words, axis) | look


def coloured_cells(
    values: np.ndarray,
    colours: Sequence[str],
    names: Sequence[str],
    x: Part,
    y: Part,
    *,
    coarse: str = ANY_ALLOWED,
    first: int = 0,
    **more: Any,
) -> CachedFigure:
    """Draw a heatmap of whole numbers [Q,K], −1 for an empty cell. names: of each number, for tooltips. colours: of
    each number; they repeat. x, y: axes of these cells. first: the position of the first row and column, if those
    before are left out. coarse: a sentence marked by N_ for more than MAX_SIDE rows or columns, where a cell shows the
    largest of {step} × {step} numbers."""
    count, every = len(values), -(-max(values.shape) // MAX_SIDE)
    note = say("The last {count} of {all:,} positions.", count=count, all=first + count) if first else ""
    if every > 1:
        values, note = reduced(values, every, np.maximum, -1), say(coarse, step=every)
    x, y = (side | {"tickvals": [first + at for at in side["tickvals"]]} if first else side for side in (x, y))
    steps = len(colours)
    scale = [[(step + end) / steps, colours[step]] for step in range(steps) for end in (0, 1)]
    shown = np.where(values >= 0, values % steps, np.nan).astype(np.float32)
    text = np.array([*names, ""], dtype=object)[values]
    gap = int(len(values) <= MAX_TICKS)
    trace: Part = {
        "type": "heatmap", "z": shown, "zmin": -0.5, "zmax": steps - 0.5, "colorscale": scale, "showscale": False,
        "hovertext": text.tolist(), "hovertemplate": "%{y}, %{x}: %{hovertext}<extra></extra>",
        "x0": first, "y0": first, "dx": every, "dy": every,
    }  # fmt: skip
    square = {"constrain": "domain", "showgrid": False, "zeroline": False, "ticks": "", "automargin": True}
    layout: Part = {
        "xaxis": square | x | {"tickangle": -90}, "yaxis": square | y | {"autorange": "reversed", "scaleanchor": "x"},
        "margin": MARGIN | {"t": 30 if note else 8}, "height": 470, **more,
    }  # fmt: skip
    if note:
        layout["title"] = {"text": note, "font": {"size": 11}, "x": 0.5, "y": 1, "yanchor": "top", "pad": {"t": 8}}
    return figure([trace | {"xgap": gap, "ygap": gap}], layout)


def mask_figure(allowed: np.ndarray, labels: Sequence[str]) -> CachedFigure:
    """Draw a mask as a heatmap. allowed: bool [T,T], True = allowed."""
    names = [say("blocked"), say("allowed")]
    return coloured_cells(allowed.astype(int), (BLOCKED, ALLOWED), names, *of_tokens(labels))


def labelled(labels: Sequence[str], title: str) -> Part:
    """Return an axis of tokens that labels at most MAX_TICKS of them, evenly spaced."""
    axis = token_axis(labels, MAX_TICKS)
    ticks = {name: axis[name] for name in ("tickvals", "ticktext")}
    # all labels, for viz.export.chart.as_csv: an axis of numbers has no categories
    return ticks | {"title": {"text": say(title)}, "categoryarray": list(labels)}


def of_tokens(labels: Sequence[str]) -> tuple[Part, Part]:
    """Return the axis of the keys (x) and that of the queries (y)."""
    return labelled(labels, KEY_TITLE), labelled(labels, QUERY_TITLE)
