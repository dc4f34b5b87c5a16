"""The numbers of a picture as tables, a chart's made of the chart itself: for whoever cannot see it, or copies them."""

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

MOST_ROWS, MOST_COLUMNS = 128, 64
DIGITS = 5  # significant ones


@dataclass(frozen=True, eq=False)
class FigureTable:
    """title: of one picture of the figure, "" where it has one alone. left_out: what the table has no room for, in a
    sentence, or ""."""

    title: str
    table: "pd.DataFrame"
    left_out: str


def figure_tables(figure: CachedFigure) -> list[FigureTable]:
    """A table for each heatmap and for points that have names, and one for all other bars, lines and points with the
    same x on an axis that is seen. At least one."""
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
    """Of each heatmap: what stands above it, or beside its colours; none above one alone."""
    above = [str(note.get("text", "")) for note in plain["layout"].get("annotations", [])]
    bold = [text for text in above if text.startswith("<b>")]
    if len(bold) == len(grids):
        return bold
    beside = [trace.get("colorbar", {}).get("title", "") for trace in grids]
    return [str(title.get("text", "")) if isinstance(title, dict) else str(title) for title in beside]


def _grid(trace: Part, blocked: Part | None, title: str, layout: Part) -> FigureTable:
    """A heatmap, rows by columns; a cell without a number is empty, or blocked by a mask. Where cells have texts, these
    are what its colours stand for; of one colour alone, the tooltip says what is true of its cells."""
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
    """numbers, or texts, of all rows and columns, or of the first ones; rows, columns: what all of them are called.
    empty: what stands for NaN."""
    part = numbers[:MOST_ROWS, :MOST_COLUMNS]
    cells = [[_number(one) or empty for one in row] for row in part.tolist()]
    return _table(title, cells, rows, columns, (len(rows), len(columns)))


def head_table(view: HeadView, title: str) -> FigureTable:
    """A head's weights; a blocked cell names its masks."""
    table = numbers_table(view)
    return grid(table.to_numpy(), list(table.index), list(table.columns), title)


def measures_tables(
    thumbnails: np.ndarray, shares: Mapping[str, np.ndarray], layers: Sequence[str]
) -> list[FigureTable]:
    """Of every head [L,H]: its largest weight, from thumbnails [L,H,S,S'], and each share by its name in TITLES.
    layers: their names."""
    heads = [f"H{head}" for head in range(thumbnails.shape[1])]
    most = {say("largest weight"): thumbnails.max((2, 3), initial=0)}
    some = {say(TITLES[name]): share for name, share in shares.items() if np.nan_to_num(share).any()}
    return [grid(numbers, layers, heads, title) for title, numbers in (some | most).items()]


def _named(trace: Part, layout: Part) -> FigureTable:
    """Points by their names: where they are on both axes."""
    places = np.stack([values(trace[axis]) for axis in "xy"], 1)
    axes = [layout.get(f"{axis}axis", {}).get("title", {}).get("text", axis) for axis in "xy"]
    return grid(places, list(map(_plain, trace["text"])), axes)


def _columns(traces: list[Part], layout: Part) -> FigureTable:
    """Bars, lines or points over the same x, a column each."""
    x = _along(traces[0], "x", layout)
    each = [values(trace.get("y", [])) for trace in traces]
    names = [_plain(str(trace.get("name") or number)) for number, trace in enumerate(traces)]
    cells = [[_number(column[row]) if row < len(column) else "" for column in each] for row in range(len(x))]
    shown = [row[:MOST_COLUMNS] for row in cells[:MOST_ROWS]]
    return _table("", shown, x, names, (len(x), len(names)))


def _table(title: str, cells: list[list[str]], rows: Any, columns: Any, size: tuple[int, ...]) -> FigureTable:
    import pandas as pd

    shown = len(cells), min(size[1], MOST_COLUMNS)
    index, found = list(rows)[: shown[0]], list(columns)[: shown[1]]
    names = [name if name not in found[:place] else f"{name} ({place})" for place, name in enumerate(found)]
    sizes = {"rows": shown[0], "columns": shown[1], "all_rows": size[0], "all_columns": size[1]}
    words = N_("{rows} of {all_rows:,} rows and {columns} of {all_columns:,} columns are shown.")
    left_out = "" if shown == size else say(words, **sizes)
    return FigureTable(_plain(title), pd.DataFrame(cells, index=pd.Index(index), columns=names), left_out)


def _along(trace: Part, letter: str, layout: Part, size: int = 0) -> list[str]:
    """What stands along an axis of a trace: the names of its ticks where each place has one."""
    words, axis = _words(trace.get(letter), size), layout.get(_axis(trace, letter), {})
    ticks = dict(zip(_words(axis.get("tickvals", [])), axis.get("ticktext", []), strict=False))
    return [_plain(str(ticks[word])) for word in words] if all(word in ticks for word in words) else words


def _axis(trace: Part, letter: str) -> str:
    """Its name in the layout: "xaxis", "xaxis2" …"""
    return f"{letter}axis{str(trace.get(f'{letter}axis', letter))[1:]}"


def _words(some: Any, size: int = 0) -> list[str]:
    """What stands along an axis, as plain text; numbers from 0 where nothing does."""
    return [str(place) for place in range(size)] if some is None else list(map(_number, values(some).tolist()))


def _plain(text: str) -> str:
    """A label of plotly's, which reads a little HTML."""
    return html.unescape(re.sub(r"<[^<>]*>", "", text.replace("<br>", " ")))


def _number(value: Any) -> str:
    if isinstance(value, str):
        return _plain(value)
    return "" if value is None or value != value else f"{value:.{DIGITS}g}"


def values(part: Any) -> np.ndarray:
    """Of a figure's plain data: numbers as viz.heatmap writes them, in base64, or as they are."""
    if not isinstance(part, dict):
        return np.asarray(part)
    found = np.frombuffer(base64.b64decode(part["bdata"]), np.dtype("<" + part["dtype"]))
    return found.reshape([int(size) for size in part["shape"].split(",")]) if "shape" in part else found
