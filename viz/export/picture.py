"""Pictures for print: one head, alone or beside the standard masks and the difference; one query as a coloured text or
as bars for each key; one cell's score as strips of query, key and products, and its largest terms as bars.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.collections import PathCollection
from matplotlib.colors import Normalize, PowerNorm, to_rgba
from matplotlib.patches import Patch, Rectangle
from matplotlib.path import Path

from i18n import N_, say
from model.attribution.parts import ScoreSplit, ValueWeightedAttention
from model.heads.view import HeadView
from viz.export.fonts import width
from viz.export.paper import ANY, GROUND, Paper, Sheet, SvgSheet, blocked_by, changes, sequential, tidy
from viz.hatch import empty_runs
from viz.head import TITLES
from viz.heads.attribution import STRIPS, largest_pairs, measures_of, reaches, shares_of
from viz.heads.bars import BarRow
from viz.heads.cells import change_range, changed, weight_text
from viz.heads.colours import STANDARD_COLOURS, Colours
from viz.heads.tokens import COLOURS, brightest, least_line
from viz.heatmap import axis_titles
from viz.html import signed
from viz.images import ImageHeatmaps, composed
from viz.palette import MARK, MASK_COLOURS, NOW, STANDARD

LINE = 0.2  # height of a token in inches
ACROSS = 3.0  # width of the lines in inches
CURVE = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]


def lines_picture(paper: Paper, views: Sequence[HeadView], names: Sequence[str]) -> Sheet:
    """Draw heads over the same part of a text as lines from queries to keys, each head in its own colour."""
    queries, keys = ([paper.said(label) for label in labels] for labels in (views[0].queries, views[0].keys))
    left, right = (max(*map(width, labels), 1.0) + 0.3 for labels in (queries, keys))
    tall = LINE * max(len(queries), len(keys))
    sheet = Sheet(paper, max(left + ACROSS + right, 4.5), tall + 0.35, names)
    panel = sheet.panel(left, 0.25, ACROSS, tall)
    panel.set(xlim=(0, 1), ylim=(tall / LINE, 0))
    panel.set_axis_off()
    smallest = least_line(views[0])  # as on the page
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
        for row, label in enumerate(labels):
            sheet.text(x, 0.25 + (row + 0.5) * LINE, label, 9, ha=side, va="center")
    sheet.legend([], [Patch(color=colour, label=name) for name, colour in zip(names, COLOURS, strict=False)])
    return sheet


TOO_MANY = N_(
    "expected at most {most} queries and keys, the most that a picture can label, got {queries} and {keys}: show a "
    "part of the text"
)
MAX_SIDE = 256  # largest number of queries or keys of a picture with labels
SMALLEST = 2.0  # smallest length of the longer side in inches
PAD = 0.05  # inches between a label and the cells
LARGEST = 9  # largest font size of a label in points


@dataclass(frozen=True)
class Room:
    """The sizes of a panel in inches: a cell's side, all cells' width and height, and the space for labels on the left
    and below. size: the font size of token labels in points."""

    cell: float
    size: float
    wide: float
    tall: float
    left: float
    below: float

    @property
    def across(self) -> float:
        """The width with the labels, and with the colour bar on the right."""
        return self.left + self.wide + 0.9

    @property
    def least(self) -> float:
        """The height of the colour bar and of the query axis's title, which need more space than a few rows."""
        return max(self.tall, SMALLEST)


def head_picture(
    paper: Paper, now: HeadView, standard: HeadView | None = None, colours: Colours = STANDARD_COLOURS
) -> Sheet:
    """Draw a head and, if given, beside it the head under the standard masks and the difference.

    Raises ValueError for a head of more than MAX_SIDE queries or keys.
    """
    rows, columns = now.weights.shape
    if max(rows, columns) > MAX_SIDE:
        raise ValueError(say(TOO_MANY, most=MAX_SIDE, queries=rows, keys=columns))
    views = [now] if standard is None else [now, standard]
    sheet, room = _begin(paper, views, 1 if standard is None else 3)
    norm = PowerNorm(0.5 if colours.brightness == "root" else 1, 0, colours.top(*views))
    how = {"cmap": sequential(colours.palette), "norm": norm}
    for number, view in enumerate(views):
        name = say(TITLES[number]) if standard is not None else ""
        weights = np.ma.masked_array(view.weights, view.any_blocked())
        _panel(sheet, room, number, replace(view, weights=weights), name, say("weight"), **how)
    if standard is not None:
        _change(sheet, room, 2, changed(now, standard), say(TITLES[2]))
    sheet.legend(_blocking(views))
    return sheet


def change_picture(paper: Paper, change: HeadView) -> Sheet:
    """Draw one head's weights minus another's. change.blocked: the cells that are blocked in both."""
    sheet, room = _begin(paper, [change], 1)
    _change(sheet, room, 0, change, "")
    sheet.legend(_blocking([change]))
    return sheet


def _change(sheet: Sheet, room: Room, number: int, change: HeadView, name: str) -> None:
    weights = np.ma.masked_array(change.weights, change.any_blocked())
    reach = change_range(change)
    how = {"cmap": changes(), "norm": Normalize(-reach, reach)}
    _panel(sheet, room, number, replace(change, weights=weights), name, say("change"), **how)


def _blocking(views: Sequence[HeadView]) -> list[str]:
    """Return the masks that block at least one cell in any of the views."""
    return list(dict.fromkeys(name for view in views for name, mask in view.blocked.items() if mask.any()))


def _begin(paper: Paper, views: Sequence[HeadView], panels: int) -> tuple[Sheet, Room]:
    """Create a sheet with room for `panels` panels of these views' size."""
    view = views[0]
    rows, columns = view.weights.shape
    longest = max(rows, columns)
    cell = max(0.2 if longest <= 64 else 0.14, SMALLEST / longest)
    size = min(cell * 72 * 0.62, LARGEST)  # points: a label must fit beside a cell
    left, below = (
        max(width(paper.said(label)) for label in labels) * size / LARGEST + 0.45
        for labels in (view.queries, view.keys)
    )
    room = Room(cell, size, columns * cell, rows * cell, left, below)
    kind = SvgSheet if paper.kind == "svg" else Sheet
    tall, labels = max(room.tall + room.below, room.least), map(blocked_by, _blocking(views))
    return kind(paper, panels * room.across, tall, labels), room


def _panel(sheet: Sheet, room: Room, number: int, view: HeadView, name: str, measure: str, **how: Any) -> None:
    """Draw panel `number`, from 0 on the left: the view's cells and tokens, notes on rows without an allowed key, its
    name above, and a colour bar on the right. measure: the colour bar's title. how: cmap and norm.
    """
    left = number * room.across + room.left
    sheet.heatmap((left, 0, room.wide, room.tall), view.weights, view.blocked, room.least, measure, **how)
    for row, label in enumerate(view.queries):
        sheet.text(left - PAD, (row + 0.5) * room.cell, label, room.size, ha="right", va="center")
    for column, label in enumerate(view.keys):
        sheet.text(
            left + (column + 0.5) * room.cell, room.tall + PAD, label, room.size, ha="center", va="top", rotation=90
        )
    middle = left + room.wide / 2
    query, key = axis_titles(view)
    sheet.text(left - room.left + 0.1, room.least / 2, query, 8, va="center", rotation=90)
    sheet.text(middle, room.tall + room.below - 0.1, key, 8, ha="center", va="bottom")
    sheet.text(left, -0.08, name, 9, weight="bold")
    paper = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    for first, last in empty_runs(view):
        height, words = (first + last + 1) / 2 * room.cell, say("nothing to attend to")
        sheet.text(middle, height, words, 7, ha="center", va="center", bbox=paper)


LINE_WIDTH = 7.5  # width of a line in inches
LINE_HEIGHT = 0.46  # height of a line in inches
TOKEN = 0.22  # height of a token's coloured box in inches
NAMED, NUMBER = 0.005, 5.5  # the smallest weight written below its token, and the font size in points
BLOCKED = {"hatch": "////", "edgecolor": "#8c929e", "facecolor": GROUND, "linewidth": 0}


def coloured_text_picture(paper: Paper, row: HeadView, own: bool) -> Sheet:
    """Draw a text coloured by one query's row, [1,K]. own: whether the query's token is in this text and framed."""
    blocked, weights, most = row.any_blocked()[0], row.weights[0], brightest(row)
    named = ~blocked & (weights >= NAMED)
    below = [
        width(weight_text(one)) * NUMBER / LARGEST if some else 0 for one, some in zip(weights, named, strict=True)
    ]
    labels = zip(row.keys, below, strict=True)
    boxes = list(_flow([max(width(paper.said(label)) + 0.14, number + 0.03, 0.22) for label, number in labels]))
    sheet = Sheet(paper, LINE_WIDTH + 0.3, LINE_HEIGHT * (boxes[-1][1] + 1) + 0.1)
    for index, (left, line, wide) in enumerate(boxes):
        top, middle = line * LINE_HEIGHT, left + wide / 2
        highlight = {"facecolor": to_rgba(NOW, 0.75 * (float(weights[index]) / most) ** 0.5), "linewidth": 0}
        _box(sheet, left, top, wide, BLOCKED if blocked[index] else highlight)
        if own and index + row.first_key == row.first:
            _box(sheet, left, top, wide, {"facecolor": "none", "edgecolor": MARK, "linewidth": 1.5})
        sheet.text(middle, top + TOKEN / 2, row.keys[index], 9, ha="center", va="center")
        if named[index]:
            sheet.text(middle, top + TOKEN + 0.08, weight_text(weights[index]), NUMBER, ha="center", va="center")
    looks = [Patch(facecolor="none", edgecolor=MARK, label=say("the query token"))]
    sheet.legend([ANY] if blocked.any() else [], looks if own else [])
    return sheet


def _flow(widths: list[float]) -> Iterator[tuple[float, int, float]]:
    """Lay out tokens in lines; yield the left edge in inches, the line, and the width of each."""
    x, line = 0.15, 0
    for wide in widths:
        if x + wide > LINE_WIDTH and x > 0.15:
            x, line = 0.15, line + 1
        yield x, line, wide
        x += wide + 0.03


def _box(sheet: Sheet, left: float, top: float, wide: float, how: dict) -> None:
    corner = sheet.at(left, top + TOKEN)
    sheet.figure.add_artist(Rectangle(corner, wide / sheet.wide, TOKEN / sheet.tall, **how))


def image_picture(paper: Paper, view: ImageHeatmaps) -> Sheet:
    """Draw the query's attention to an image, with a panel for each layer of image tokens."""
    panels = [composed(one) for one in view.layers()]
    wide = min(LINE_WIDTH / len(panels), 4.5)
    tall = wide * panels[0].shape[0] / panels[0].shape[1]
    sheet = Sheet(paper, max(len(panels) * (wide + 0.1), 4.5) + 0.3, tall + 0.1)
    for number, pixels in enumerate(panels):
        panel = sheet.panel(0.15 + number * (wide + 0.1), 0, wide, tall)
        panel.set_axis_off()
        panel.imshow(pixels, aspect="auto", interpolation="none")
    return sheet


BAR = 0.2  # width of a key or a term in inches
TALL = 2.6  # height of the panel in inches
Series = tuple[str, np.ndarray, str]  # name, a number for each key, colour


def bars_picture(paper: Paper, row: BarRow) -> Sheet:
    """Draw a row's weights as bars, and those under the standard masks if they differ."""
    if not row.standard:
        return key_bars(paper, row.view, [(say("weight"), row.view.weights[0], NOW)], say("weight"))
    now, standard = (view.weights[0] for view in (row.view, row.standard))
    series = [(say("now"), now, NOW), (say("standard masks"), standard, STANDARD)]
    return key_bars(paper, row.view, series, say("weight"))


def key_bars(paper: Paper, row: HeadView, series: Sequence[Series], measure: str) -> Sheet:
    """Draw bars for each key of one row, [1,K]; a blocked key has a cross in its mask's colour. measure: axis title."""
    keys = [paper.said(label) for label in row.keys]
    wide, below = max(BAR * len(keys), 3.0), max(map(width, keys)) + 0.45
    labels = [*(name for name, *_ in series), *map(blocked_by, _blocking([row]))]
    sheet = Sheet(paper, 0.65 + wide + 0.2, TALL + below, labels)
    panel = sheet.panel(0.65, 0, wide, TALL)
    x, thick = np.arange(len(keys)), 0.8 / len(series)
    for number, (name, values, colour) in enumerate(series):
        left = x - 0.4 + thick * number
        panel.bar(left, values, thick, align="edge", color=colour, label=name, linewidth=0)
    for name, mask in row.blocked.items():
        here = np.flatnonzero(mask[0])
        if len(here):
            look: dict[str, Any] = {"color": MASK_COLOURS[name], "label": blocked_by(name), "markersize": 5}
            panel.plot(here, np.zeros(len(here)), "x", clip_on=False, **look)
    panel.set(xlim=(-0.6, len(keys) - 0.4), ylim=(0, None))
    panel.set_xticks(x, keys)
    tidy(panel, axis_titles(row)[1], measure, token_ticks="x")
    panel.tick_params(axis="x", labelsize=9, rotation=90)
    sheet.legend([], panel.get_legend_handles_labels()[0])
    return sheet


def contributions_picture(paper: Paper, row: HeadView, found: ValueWeightedAttention) -> Sheet:
    """Draw each measure as shares of its sum over all keys. row: the query's, [1,K], with the keys to show."""
    shown = slice(row.first_key, row.first_key + len(row.keys))
    measures = zip(measures_of(found), COLOURS, strict=False)
    series = [(name, shares_of(values)[shown], colour) for (name, values), colour in measures]
    return key_bars(paper, row, series, say("share of the sum"))


STRIP_WIDE, STRIP = 4.6, 0.28  # width of a strip, and its height with the gap to the next, in inches
BETWEEN = 0.65  # inches between the strips and the bars


def score_picture(paper: Paper, found: ScoreSplit) -> Sheet:
    """Draw a score's strips, and bars of its largest terms if the sources of query and key are known."""
    names = [say(name) for name, *_ in STRIPS]
    pairs = largest_pairs(found) if found.sources else []
    writers = [paper.said(f"{one} · {other}") for one, other, _ in pairs]
    left = max(map(width, [*names, *writers])) + 0.25
    below = BETWEEN + BAR * len(pairs) if pairs else 0.0
    sheet = Sheet(paper, left + STRIP_WIDE + 0.6, STRIP * len(STRIPS) + below + 0.45)
    rows = zip(names, (found.q, found.k, found.by_dimension), reaches(found), strict=True)
    for number, (name, values, most) in enumerate(rows):
        panel = sheet.panel(left, STRIP * number, STRIP_WIDE, STRIP - 0.04)
        panel.imshow(values[None], cmap=changes(), norm=Normalize(-most, most), aspect="auto", interpolation="none")
        panel.spines[:].set(color="#8c929e", linewidth=0.4)
        panel.set_yticks([0], [name], fontsize=8)
        panel.tick_params(length=0, labelsize=7, labelbottom=number == len(STRIPS) - 1)
    panel.set_xlabel(say("dimension of the head"), fontsize=8)
    if pairs:
        _draw_terms(sheet, left, [term for *_, term in pairs], writers)
    return sheet


def _draw_terms(sheet: Sheet, left: float, terms: list[float], writers: list[str]) -> None:
    panel = sheet.panel(left, STRIP * len(STRIPS) + BETWEEN, STRIP_WIDE, BAR * len(terms))
    rows, longest = range(len(terms)), max(1e-9, *map(abs, terms))
    panel.barh(rows, terms, 0.7, color=[NOW if term > 0 else STANDARD for term in terms], linewidth=0)
    for row, term in zip(rows, terms, strict=True):
        panel.text(max(term, 0.0) + 0.01 * longest, row, signed(term), va="center", fontsize=7)
    panel.axvline(0, color="#8c929e", linewidth=0.6)
    panel.set_yticks(rows, writers)
    panel.set(ylim=(len(terms) - 0.5, -0.5), xlim=(min(0.0, *terms) - 0.02 * longest, max(0.0, *terms) + 0.2 * longest))
    tidy(panel, say("term"), token_ticks="y")
    panel.tick_params(axis="y", labelsize=8)
    panel.spines["left"].set_visible(False)
