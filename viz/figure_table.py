"""The numbers of a figure as tables, for users who cannot see it or copy them; a chart's are read from the chart."""

import base64
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from i18n import N_, say
from model.heads.view import HeadView
from viz.heads.colours import numbers_table
from viz.heads.overview import TITLES
from viz.heatmap import CachedFigure, Part

if TYPE_CHECKING:
    import pandas as pd

MAX_ROWS, MAX_COLUMNS = 128, 64
DIGITS = 5  # significant digits


@dataclass(frozen=True, eq=False)
class FigureTable:
    """The numbers of one picture. title: the picture's, "" if the figure has only one. left_out: a sentence on rows and
    columns that are not shown, or ""."""

    title: str
    table: "pd.DataFrame"
    left_out: str


def figure_tables(figure: CachedFigure) -> list[FigureTable]:
    """Return the tables of a figure: one for each heatmap, for each trace of named points, and for all other bars,
    lines and points that share their x on a visible axis."""
    plain = figure.to_dict()
    traces = [
        trace
        for trace in plain["data"]
        if "z" in trace or (trace.get("x") is not None and trace.get("hoverinfo") != "skip")
    ]
    blocked = {trace.get("xaxis"): trace for trace in traces if trace.get("name") == "blocked"}
    grids = [trace for trace in traces if trace["type"] == "heatmap" and trace.get("name") != "blocked"]
    titles = _titles(plain, grids)
    layout = plain["layout"]
    found = [_grid(one, blocked.get(one.get("xaxis")), title, layout) for one, title in zip(grids, titles, strict=True)]
    series: dict[tuple[str, ...], list[Part]] = {}
    for trace in traces:
        if trace["type"] != "heatmap" and isinstance(trace.get("text"), list):
            found.append(_named(trace, layout))
        elif trace["type"] != "heatmap" and layout.get(_axis(trace, "y"), {}).get("visible", True):
            series.setdefault(tuple(_words(trace["x"])), []).append(trace)
    return found + [_columns(some, layout) for some in series.values()]


def _titles(plain: Part, grids: list[Part]) -> list[str]:
    """Return each heatmap's title: the bold annotation above it or the title of its colour bar; "" if it has none."""
    above = [str(note.get("text", "")) for note in plain["layout"].get("annotations", [])]
    bold = [text for text in above if text.startswith("<b>")]
    if len(bold) == len(grids):
        return bold
    titles = [trace.get("colorbar", {}).get("title", "") for trace in grids]
    return [str(title.get("text", "")) if isinstance(title, dict) else str(title) for title in titles]


def _grid(trace: Part, blocked: Part | None, title: str, layout: Part) -> FigureTable:
    """Return a heatmap's rows and columns; a cell without a number is empty, or blocked by a mask. If cells have texts,
    these explain the colours and replace the numbers; if there is only one colour, the tooltip becomes the title."""
    numbers = np.array(trace["hovertext"]) if "hovertext" in trace else values(trace["z"])
    numbers = numbers[None] if numbers.ndim == 1 else numbers
    if trace.get("showscale") is False and len({colour for _, colour in trace["colorscale"]}) == 1:
        numbers = np.where(np.isnan(numbers), "", say("yes"))
        words = trace["hovertemplate"].partition("<extra>")[0].replace("<br>", say("; "))
        title = words.replace("%{y}", say("row")).replace("%{x}", say("column"))
    sides = [_along(trace, axis, layout, size) for axis, size in zip("yx", numbers.shape, strict=True)]
    return grid(numbers, sides[0], sides[1], title, say("blocked") if blocked else "")


def grid(
    numbers: np.ndarray, rows: Sequence[str], columns: Sequence[str], title: str = "", empty: str = ""
) -> FigureTable:
    """Return a table of numbers or texts, of at most the first MAX_ROWS rows and MAX_COLUMNS columns. rows, columns:
    the names of all. empty: the text for NaN."""
    part = numbers[:MAX_ROWS, :MAX_COLUMNS]
    cells = [[_number(one) or empty for one in row] for row in part.tolist()]
    return _table(title, cells, rows, columns)


def head_table(view: HeadView, title: str) -> FigureTable:
    """Return a table of a head's weights; a blocked cell names the masks that block it."""
    table = numbers_table(view)
    return grid(table.to_numpy(), list(table.index), list(table.columns), title)


def measures_tables(
    thumbnails: np.ndarray, shares: Mapping[str, np.ndarray], layers: Sequence[str]
) -> list[FigureTable]:
    """Return a table for each measure of all heads [L,H]: the largest weight, from thumbnails [L,H,S,S'], and the
    shares, by their names in TITLES. layers: their names."""
    heads = [f"H{head}" for head in range(thumbnails.shape[1])]
    most = {say("largest weight"): thumbnails.max((2, 3), initial=0)}
    some = {say(TITLES[name]): share for name, share in shares.items() if np.nan_to_num(share).any()}
    return [grid(numbers, layers, heads, title) for title, numbers in (some | most).items()]


def _named(trace: Part, layout: Part) -> FigureTable:
    """Return a table of named points: the coordinates of each."""
    coordinates = np.stack([values(trace[axis]) for axis in "xy"], 1)
    axes = [layout.get(f"{axis}axis", {}).get("title", {}).get("text", axis) for axis in "xy"]
    return grid(coordinates, list(map(_plain, trace["text"])), axes)


def _columns(traces: list[Part], layout: Part) -> FigureTable:
    """Return a table of bars, lines or points over the same x, with a column for each trace."""
    x = _along(traces[0], "x", layout)
    each = [values(trace.get("y", [])) for trace in traces]
    names = [_plain(str(trace.get("name") or number)) for number, trace in enumerate(traces)]
    cells = [[_number(column[row]) if row < len(column) else "" for column in each] for row in range(len(x))]
    return _table("", [row[:MAX_COLUMNS] for row in cells[:MAX_ROWS]], x, names)


def _table(title: str, cells: list[list[str]], rows: Sequence[str], columns: Sequence[str]) -> FigureTable:
    """Return a table. cells: of the first rows and columns. rows, columns: the names of all, which may be more."""
    import pandas as pd

    index, found = list(rows[:MAX_ROWS]), list(columns[:MAX_COLUMNS])
    names = [name if name not in found[:number] else f"{name} ({number})" for number, name in enumerate(found)]
    shown, every = {"rows": len(index), "columns": len(found)}, {"all_rows": len(rows), "all_columns": len(columns)}
    words = N_("{rows} of {all_rows:,} rows and {columns} of {all_columns:,} columns are shown.")
    left_out = "" if [*shown.values()] == [*every.values()] else say(words, **shown, **every)
    return FigureTable(_plain(title), pd.DataFrame(cells, index=pd.Index(index), columns=names), left_out)


def _along(trace: Part, letter: str, layout: Part, size: int = 0) -> list[str]:
    """Return the labels along an axis of a trace: its tick texts if each position has one. size: their number if the
    trace has no labels."""
    first, step = trace.get(f"{letter}0", 0), trace.get(f"d{letter}", 1)
    words = _words(trace.get(letter), range(first, first + size * step, step))
    axis = layout.get(_axis(trace, letter), {})
    ticks = dict(zip(_words(axis.get("tickvals", [])), axis.get("ticktext", []), strict=False))
    return [_plain(str(ticks[word])) for word in words] if all(word in ticks for word in words) else words


def _axis(trace: Part, letter: str) -> str:
    """Return the name of a trace's axis in the layout: "xaxis", "xaxis2" …"""
    return f"{letter}axis{str(trace.get(f'{letter}axis', letter))[1:]}"


def _words(some: Any, places: Sequence[int] = ()) -> list[str]:
    """Return axis labels as plain text; if there are none, the positions `places`."""
    return list(map(str, places)) if some is None else list(map(_number, values(some).tolist()))


def _plain(text: str) -> str:
    """Convert a plotly label, which may contain HTML, to plain text."""
    return html.unescape(re.sub(r"<[^<>]*>", "", text.replace("<br>", " ")))


def _number(value: Any) -> str:
    if isinstance(value, str):
        return _plain(value)
    return "" if value is None or value != value else f"{value:.{DIGITS}g}"


def values(part: Any) -> np.ndarray:
    """Return an array of a figure's data, which viz.heatmap may have encoded in base64."""
    if not isinstance(part, dict):
        return np.asarray(part)
    found = np.frombuffer(base64.b64decode(part["bdata"]), np.dtype("<" + part["dtype"]))
    return found.reshape([int(size) for size in part["shape"].split(",")]) if "shape" in part else found
