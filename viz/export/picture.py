"""One head for print: every token on it; alone, or beside the standard masks and the difference."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.collections import PathCollection
from matplotlib.colors import Normalize, PowerNorm, to_rgba
from matplotlib.patches import Patch
from matplotlib.path import Path

from i18n import N_, say
from model.heads.view import HeadView
from viz.export.fonts import width
from viz.export.paper import Paper, Sheet, changes, sequential
from viz.export.svg import SvgSheet
from viz.head import TITLES
from viz.heads.arcs import COLOURS, least
from viz.heads.colours import STANDARD_COLOURS, Colours
from viz.heads.picture import change_range, changed
from viz.heatmap import axis_titles
from viz.reasons import empty_runs

LINE = 0.2  # inches of a token
ACROSS = 3.0  # inches of the lines
CURVE = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]


def lines_picture(paper: Paper, views: Sequence[HeadView], names: Sequence[str]) -> Sheet:
    """Heads over the same part of a text, each with its name in a colour of its own."""
    queries, keys = ([paper.said(label) for label in labels] for labels in (views[0].queries, views[0].keys))
    left, right = (max(*map(width, labels), 1.0) + 0.3 for labels in (queries, keys))
    tall = LINE * max(len(queries), len(keys))
    sheet = Sheet(paper, max(left + ACROSS + right, 4.5), tall + 0.35)
    panel = sheet.panel(left, 0.25, ACROSS, tall)
    panel.set(xlim=(0, 1), ylim=(tall / LINE, 0))
    panel.set_axis_off()
    smallest = least(views[0])  # as on the page
    for view, colour in zip(views, COLOURS, strict=False):
        shown = np.argwhere((view.weights >= smallest) & ~view.any_blocked())
        weights = [float(view.weights[query, key]) for query, key in shown]
        ends = (shown + 0.5).tolist()
        paths = [Path([(0, one), (0.5, one), (0.5, other), (1, other)], CURVE) for one, other in ends]
        colours = [to_rgba(colour, 0.15 + 0.85 * weight**0.5) for weight in weights]
        widths = [0.5 + 2.5 * weight for weight in weights]
        panel.add_collection(PathCollection(paths, facecolors="none", edgecolors=colours, linewidths=widths))
    sheet.text(left - 0.08, 0.12, say("query"), 8, ha="right", va="center")
    sheet.text(left + ACROSS + 0.08, 0.12, say("key"), 8, va="center")
    for labels, x, side in ((queries, left - 0.08, "right"), (keys, left + ACROSS + 0.08, "left")):
        for place, label in enumerate(labels):
            sheet.text(x, 0.25 + (place + 0.5) * LINE, label, 9, ha=side, va="center")
    sheet.legend([], [Patch(color=colour, label=name) for name, colour in zip(names, COLOURS, strict=False)])
    return sheet


TOO_MANY = N_(
    "expected at most {most} queries and keys, the most that a picture can label, got {queries} and {keys}: show a "
    "part of the text"
)
MOST_SIDE = 256  # queries or keys that a picture has room to name
SMALLEST = 2.0  # inches of the longer side
PAD = 0.05  # between a label and the cells
LARGEST = 9  # points of a label


@dataclass(frozen=True)
class Room:
    """Of a panel, in inches: a cell's side, that of all cells, and what tokens' names take on the left and below. size:
    the names', in points."""

    cell: float
    size: float
    wide: float
    tall: float
    beside: float
    below: float

    @property
    def across(self) -> float:
        """With the names, and with the colour bar on the right."""
        return self.beside + self.wide + 0.9

    @property
    def least(self) -> float:
        """The height of the colour bar and of the queries' title, which need more than a few rows."""
        return max(self.tall, SMALLEST)


def head_picture(
    paper: Paper, now: HeadView, standard: HeadView | None = None, colours: Colours = STANDARD_COLOURS
) -> Sheet:
    """The head; with standard, beside it the head under the standard masks, and the difference.

    Raises ValueError for a head of more than MOST_SIDE queries or keys.
    """
    rows, columns = now.weights.shape
    if max(rows, columns) > MOST_SIDE:
        raise ValueError(say(TOO_MANY, most=MOST_SIDE, queries=rows, keys=columns))
    views = [now] if standard is None else [now, standard]
    panels = 1 if standard is None else 3
    room = _room(now, paper)
    sheet = _sheet(paper, panels * room.across, max(room.tall + room.below, room.least))
    norm = PowerNorm(0.5 if colours.brightness == "root" else 1, 0, colours.top(*views))
    how = {"cmap": sequential(colours.palette), "norm": norm}
    for number, view in enumerate(views):
        name = say(TITLES[number]) if standard is not None else ""
        weights = np.ma.masked_array(view.weights, view.any_blocked())
        _panel(sheet, room, number, replace(view, weights=weights), name, say("weight"), **how)
    if standard is not None:
        _change(sheet, room, 2, changed(now, standard), say(TITLES[2]))
    sheet.legend(name for view in views for name, mask in view.blocked.items() if mask.any())
    return sheet


def change_picture(paper: Paper, change: HeadView) -> Sheet:
    """One head's weights less another's; blocked: the cells that both block."""
    room = _room(change, paper)
    sheet = _sheet(paper, room.across, max(room.tall + room.below, room.least))
    _change(sheet, room, 0, change, "")
    sheet.legend(name for name, mask in change.blocked.items() if mask.any())
    return sheet


def _sheet(paper: Paper, wide: float, tall: float) -> Sheet:
    return (SvgSheet if paper.kind == "svg" else Sheet)(paper, wide, tall)


def _change(sheet: Sheet, room: Room, number: int, change: HeadView, name: str) -> None:
    weights = np.ma.masked_array(change.weights, change.any_blocked())
    reach = change_range(change)
    how = {"cmap": changes(), "norm": Normalize(-reach, reach)}
    _panel(sheet, room, number, replace(change, weights=weights), name, say("change"), **how)


def _room(view: HeadView, paper: Paper) -> Room:
    rows, columns = view.weights.shape
    most = max(rows, columns)
    cell = max(0.2 if most <= 64 else 0.14, SMALLEST / most)
    size = min(cell * 72 * 0.62, LARGEST)  # points: a label has to fit beside a cell
    beside, below = (
        max(width(paper.said(label)) for label in labels) * size / LARGEST + 0.45
        for labels in (view.queries, view.keys)
    )
    return Room(cell, size, columns * cell, rows * cell, beside, below)


def _panel(sheet: Sheet, room: Room, number: int, view: HeadView, name: str, measure: str, **how: Any) -> None:
    """The panel of this number, from 0 on the left: the view's cells, its tokens, what a row without keys is, its name
    above and its colours, how, on the right with what they measure.
    """
    left = number * room.across + room.beside
    sheet.heatmap((left, 0, room.wide, room.tall), view.weights, view.blocked, room.least, measure, **how)
    for row, label in enumerate(view.queries):
        sheet.text(left - PAD, (row + 0.5) * room.cell, label, room.size, ha="right", va="center")
    for column, label in enumerate(view.keys):
        sheet.text(
            left + (column + 0.5) * room.cell, room.tall + PAD, label, room.size, ha="center", va="top", rotation=90
        )
    middle = left + room.wide / 2
    query, key = axis_titles(view)
    sheet.text(left - room.beside + 0.1, room.least / 2, query, 8, va="center", rotation=90)
    sheet.text(middle, room.tall + room.below - 0.1, key, 8, ha="center", va="bottom")
    sheet.text(left, -0.08, name, 9, weight="bold")
    paper = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    for first, last in empty_runs(view):
        height, words = (first + last + 1) / 2 * room.cell, say("nothing to attend to")
        sheet.text(middle, height, words, 7, ha="center", va="center", bbox=paper)
