"""One head as a plotly heatmap: rows are queries, columns are keys, blocked cells hatched.

Functions here make plain dicts, which `figure` combines without validation: plotly's validation of every property at
every rerun took 50 times as long as making them. The tests validate them.
"""

import base64
import html
import importlib
import json
import math
import sys
from collections.abc import Sequence
from functools import cache, cached_property
from operator import methodcaller
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.io import templates

from i18n import N_, say
from model.heads.view import HeadView
from viz import palette
from viz.hatch import LARGE, SMALL, data_uri, empty_runs, hatch_png, reasons
from viz.html import escaped, letters, shortened
from viz.palette import MARK, SEQUENTIAL_SCALE

QUERY_TITLE, KEY_TITLE = N_("query: the token that attends"), N_("key: the token attended to")
LAYER_TITLE = N_("layer")
MERGED_TITLES = N_("query: what attends"), N_("key: what is attended to")
MAX_TICKS = 56  # largest number of tick labels of a large picture
LONGEST_TICK, LABEL_SIZE = 12, 11  # letters of a tick label, and its font size in pixels if there are few
CLEAR = [[0, "rgba(0,0,0,0)"], [1, "rgba(0,0,0,0)"]]  # a colour scale that draws nothing
AXIS = {"type": "category", "showgrid": False, "zeroline": False, "ticks": ""}
TITLE = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "align": "left", "showarrow": False}

TYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8")  # dtypes of the arrays that plotly.js reads as bytes

Part = dict[str, Any]


class CachedFigure(go.Figure):
    """A figure that `figure` makes from plain dicts, which to_dict returns without a copy. Do not change it afterwards:
    to_dict would not include the change."""

    parts: Part | None = None

    def to_dict(self) -> Part:
        """Return the plain data, the same object each time; read-only."""
        assert self.parts is not None  # `figure` has set them
        return self.parts

    @cached_property
    def text(self) -> str:
        """The figure as JSON without the template, for chart.js."""
        plain = self.to_dict()
        layout = {name: part for name, part in plain["layout"].items() if name != "template"}
        return json.dumps({"data": plain["data"], "layout": layout}, default=methodcaller("tolist"), allow_nan=False)

    def nbytes(self) -> int:
        """Estimate the memory in bytes of its numbers and of `text`."""
        return 3 * len(self.text)


def figure(traces: list[Part], layout: Part) -> CachedFigure:
    """Make a figure from traces and a layout without validating them."""
    if "pandas" in sys.modules:
        importlib.import_module("pandas")  # wait if another thread is importing it: plotly would fail on half a module
    layout = {"hovermode": "closest"} | layout
    made = CachedFigure(data=traces, layout=layout, _validate=False)
    template = {"template": _template(templates.default)}
    made.__dict__["parts"] = _plain({"data": traces, "layout": template | layout})
    return made


@cache
def _template(_: str) -> Part:
    """Return the template that plotly gives to every new figure; cached by the name of the default template."""
    return go.Figure().to_dict()["layout"].get("template", {})


def _plain(part: Any) -> Any:
    """Encode arrays of numbers as base64 of their bytes, the fastest format for plotly.js to read."""
    if isinstance(part, dict):
        return {name: _plain(one) for name, one in part.items()}
    if isinstance(part, list | tuple) and part and isinstance(part[0], dict | np.ndarray):
        return [_plain(one) for one in part]
    if not isinstance(part, np.ndarray) or not part.size:
        return part
    if part.dtype == np.int64:
        fitting = (name for name in ("i1", "i2", "i4") if np.array_equal(part, part.astype(name)))
        part = part.astype(next(fitting, np.int64))
    if part.dtype.str[1:] not in TYPES:
        return part
    shape = {"shape": ", ".join(map(str, part.shape))} if part.ndim > 1 else {}
    return {"dtype": part.dtype.str[1:], "bdata": base64.b64encode(part.tobytes()).decode()} | shape


def enlarged(drawn: CachedFigure, size: float) -> CachedFigure:
    """Return the figure with text `size` pixels tall, margins and colour bars to fit, and lines 3 pixels wide."""
    plain, font = drawn.to_dict(), {"size": size}
    layout = plain["layout"] | {"font": font, "legend": plain["layout"].get("legend", {}) | {"font": font}}
    standoff = 0.8 * size
    for name in [name for name in layout if name[1:5] == "axis"]:
        layout[name] = layout[name] | {"tickfont": font}
        if "title" in layout[name]:
            layout[name]["title"] = layout[name]["title"] | {"font": font, "standoff": standoff}
    layout["annotations"] = [note | {"font": font} for note in layout.get("annotations", [])]
    bars = [(trace, trace.get("colorbar")) for trace in plain["data"]]
    traces = [
        trace | {"colorbar": bar | {"tickfont": font, "title": bar["title"] | {"font": font}}} if bar else trace
        for trace, bar in bars
    ]
    traces = [trace | {"line": trace["line"] | {"width": 3}} if "line" in trace else trace for trace in traces]
    if any(bar for _, bar in bars):  # a heatmap of a head, whose margins plotly does not choose
        left, below = (
            0.6 * size * max((letters(html.unescape(label)) for label in layout[name]["ticktext"]), default=0)
            for name in ("yaxis", "xaxis")
        )
        around = standoff + 1.6 * size
        layout["margin"] = {"l": left + around, "b": below + around, "t": 2.2 * size, "r": 10 + 4.2 * size}
        layout["margin"]["autoexpand"] = False
    else:
        layout["margin"] = layout.get("margin", {}) | {"autoexpand": True}
    return figure(traces, layout)


def weights_trace(view: HeadView, zmax: float, axis: str = "", **bar: Any) -> Part:
    """Return a trace of the head's weights on the axes x{axis}, y{axis}, colours 0 to zmax; blocked cells are gaps.

    bar: the position of the colour bar; without it there is none.
    """
    weights = np.where(view.any_blocked(), np.nan, view.weights)
    words = N_("weight {weight}") if view.step == 1 else N_("largest weight {weight}")  # of a patch of cells
    hover = tooltip(say(words, weight="%{z:.4f}"), _score(view, "%{customdata:.3f}"))
    return cells(view, weights, "weights", hover, axis) | {
        "zmin": 0,
        "zmax": zmax,
        "colorscale": SEQUENTIAL_SCALE,
        "showscale": bool(bar),
        "colorbar": colour_bar(say("weight"), **bar),
        "customdata": view.scaled,
    }


def blocked_traces(view: HeadView, axis: str = "") -> list[Part]:
    """Return an invisible trace over the blocked cells whose tooltips name the masks; [] if no cell is blocked.

    It must come before traces with gaps at these cells, since plotly shows the tooltip of the last trace.
    """
    if not view.any_blocked().any():
        return []
    words, text = reasons(view)
    trace = cells(view, view.scaled, "blocked", tooltip(words, _score(view, "%{z:.3f}")), axis)
    return [trace | {"colorscale": CLEAR, "showscale": False, "text": text}]


def heat(z: np.ndarray, x: Any, y: Any, name: str, hover: str, axis: str = "") -> Part:
    """Return a heatmap trace of z [R,C] on the axes x{axis}, y{axis}; cells that are NaN have no tooltip. x, y: names
    of columns and rows. hover: the tooltip's template."""
    axes = {"xaxis": "x" + axis, "yaxis": "y" + axis, "x": x, "y": y}
    look = {"hovertemplate": hover + "<extra></extra>", "hoverongaps": False, "name": name}
    return {"type": "heatmap", "z": z.astype(np.float32)} | axes | look


def cells(view: HeadView, z: np.ndarray, name: str, hover: str, axis: str = "") -> Part:
    """Return a heatmap trace of z [Q,K] over the view's queries and keys."""
    return heat(z, name=name, hover=hover, axis=axis, **axis_names(view))


def hatching(blocked: dict[str, np.ndarray], *, dark: bool, axis: str = "") -> list[Part]:
    """Return at most one layout image, which hatches blocked cells, gaps in the heatmap above it. blocked: bool [Q,K]
    by mask."""
    if not any(mask.any() for mask in blocked.values()):
        return []
    rows, columns = next(iter(blocked.values())).shape
    source = data_uri(hatch_png(blocked, dark, SMALL if axis else LARGE))
    where = {"xref": "x" + axis, "yref": "y" + axis, "x": -0.5, "y": -0.5, "sizex": columns, "sizey": rows}
    return [{"source": source, "sizing": "stretch", "layer": "below", **where}]


def empty_notes(view: HeadView, axis: str = "") -> list[Part]:
    """Return annotations on the rows without an allowed key, in the middle of what is drawn of the x axis: Plotly would
    widen an axis for a text that stands at a number and is wider than a small picture."""
    rows = len(view.weights)
    return [
        {
            "text": say("nothing to attend to") if last > first or rows <= MAX_TICKS else say("nothing"),
            "xref": f"x{axis} domain",
            "yref": "y" + axis,
            "x": 0.5,
            "y": (first + last) / 2,
            "showarrow": False,
            "font": {"size": 11},
            "bgcolor": "white",  # viz/components/chart.js replaces it with the theme's
        }
        for first, last in empty_runs(view)
    ]


def title(text: str, x: float, y: float) -> Part:
    """Return an annotation whose lower left corner is at x, y, in plotly's "paper" coordinates."""
    return TITLE | {"text": text, "x": x, "y": y}


def colour_range(*weights: np.ndarray) -> float:
    """Return the shared upper end of the colour range of these weights: the largest one, rounded up to hundredths."""
    largest = max(float(w.max(initial=0.0)) for w in weights)
    return max(math.ceil(round(largest * 100, 3)) / 100, 0.01)  # float32(0.3) > 0.3: not 0.31


def colour_bar(name: str, **where: Any) -> Part:
    """Return a thin colour bar. where: its position and other properties."""
    return {"title": {"text": name, "side": "right"}, "thickness": 10, "outlinewidth": 0, **where}


def axis_names(view: HeadView) -> dict[str, list[str]]:
    """Return a unique name for every column (x) and row (y): its position, then its token.

    Without the position, plotly would merge the columns of a repeated token. The tooltip shows the whole name.
    """
    rows, columns = view.size
    return {
        "x": _names(view.keys, view.first_key, view.step, columns),
        "y": _names(view.queries, view.first, view.step, rows),
    }


def margin(
    queries: Sequence[str], keys: Sequence[str], first: int = 0, first_key: int = 0, step: int = 1
) -> dict[str, int]:
    """Return the margins around a picture whose axes show these tokens; first, first_key and step as in HeadView."""
    rows, columns = _labels(queries, first, step), _labels(keys, first_key, step)
    return palette.margin(rows.values(), columns.values(), LABEL_SIZE)


def axes(view: HeadView, axis: str = "", *, tokens: bool = True) -> dict[str, Part]:
    """Return axes with the first query on top. tokens: whether they have tokens, titles and square cells."""
    x = AXIS | {"anchor": "y" + axis, "constraintoward": "left"}
    y = AXIS | {"anchor": "x" + axis, "constraintoward": "top", "autorange": "reversed"}
    if tokens:  # axes that match these inherit the rest: plotly cannot make both square
        square = {"constrain": "domain", "scaleanchor": "x" + axis}
        query, key = axis_titles(view)
        x |= {"tickangle": -90, "constrain": "domain"} | _ticks(view.keys, key, view.first_key, view.step)
        y |= square | _ticks(view.queries, query, view.first, view.step)
    else:
        x["showticklabels"] = y["showticklabels"] = False
    return {f"xaxis{axis}": x, f"yaxis{axis}": y}


def axis_titles(view: HeadView) -> tuple[str, str]:
    """Return the titles of the query axis and of the key axis."""
    query, key = MERGED_TITLES if view.merged else (QUERY_TITLE, KEY_TITLE)
    return say(LAYER_TITLE if view.layers else query), say(key)


def _ticks(labels: list[str], name: str, first: int, step: int) -> Part:
    """Return tick labels for all tokens or, if these are too many, for evenly spaced ones with their positions."""
    shown = _labels(labels, first, step)
    return {
        "tickmode": "array",
        "tickvals": list(shown),
        "ticktext": [escaped(text) for text in shown.values()],
        "tickfont": {"size": LABEL_SIZE if len(labels) <= 32 else 9},
        "title": {"text": name, "standoff": 18},
    }


def _labels(labels: Sequence[str], first: int, step: int) -> dict[int, str]:
    """Return the label of each row or column that has one, by its index."""
    every = math.ceil(len(labels) / (MAX_TICKS if step == 1 else MAX_TICKS // 3))
    indices = range(0, len(labels), every)
    if every == 1 and step == 1:
        return {index: shortened(labels[index], LONGEST_TICK) for index in indices}
    return {index: f"{index * step + first} {shortened(labels[index], LONGEST_TICK)}" for index in indices}


def tooltip(*lines: str) -> str:
    """Return a cell's tooltip: its query and key, then these lines."""
    return "<br>".join((attends_to_line("%{y}"), *lines))


def attends_to_line(query: str) -> str:
    """Return the first line of a tooltip, which names the cell. query: a name, or plotly's "%{y}"."""
    return say("{query} attends to {key}", query=f"<b>{query}</b>", key="<b>%{x}</b>")


def _score(view: HeadView, shown: str) -> str:
    if view.merged:
        return say("log-sum-exp of the scaled scores {score}", score=shown)
    if view.step == 1:
        return say("scaled score {score}", score=shown)
    return say("largest scaled score {score}", score=shown)


def _names(labels: list[str], first: int, step: int, positions: int) -> list[str]:
    starts = range(first, first + len(labels) * step, step)
    ends = [start if step == 1 else min(start + step, first + positions) - 1 for start in starts]
    numbers = [f"{start}–{end}" if end > start else str(start) for start, end in zip(starts, ends, strict=True)]
    return [f"{number}: {escaped(label)}" for number, label in zip(numbers, labels, strict=True)]


def frames(view: HeadView, query: int | None, *axes: str) -> list[Part]:
    """Return layout shapes: a frame around the row of a query in each picture of the view. axes: the pictures' axes.

    Empty if the query is None or not among the view's rows. query: its position.
    """
    if query is None or not 0 <= (row := (query - view.first) // view.step) < len(view.queries):
        return []
    side = {"type": "rect", "x0": 0, "x1": 1, "y0": row - 0.5, "y1": row + 0.5, "line": {"color": MARK, "width": 1.5}}
    return [side | {"xref": f"x{axis} domain", "yref": f"y{axis}"} for axis in axes]
