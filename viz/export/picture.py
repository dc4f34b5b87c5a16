"""One head for print: every token on it; alone, or beside the standard masks and the difference."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.image import AxesImage

from model.language import say
from viz.export.paper import Paper, Sheet, changes, hatch, sequential
from viz.fonts import width
from viz.head import TITLES, difference
from viz.heads.colours import STANDARD_COLOURS, Colours
from viz.heatmap import KEY_TITLE, QUERY_TITLE
from viz.reasons import empty_runs
from viz.view import HeadView

MOST_SIDE = 256  # queries or keys that a picture has room to name


def head_picture(
    paper: Paper, now: HeadView, standard: HeadView | None = None, colours: Colours = STANDARD_COLOURS
) -> Sheet:
    """The head; with standard, beside it the head under the standard masks, and the difference.

    Raises ValueError for a head of more than MOST_SIDE queries or keys.
    """
    rows, columns = now.weights.shape
    if max(rows, columns) > MOST_SIDE:
        raise ValueError(
            say("expected at most {most} queries and keys, which a picture has room to name, got {queries} and {keys}: "
                "show a part of the text", most=MOST_SIDE, queries=rows, keys=columns)
        )  # fmt: skip
    views = [now] if standard is None else [now, standard]
    sheet, panels = _sheet(now, paper, 1 if standard is None else 3)
    norm = PowerNorm(0.5 if colours.brightness == "root" else 1, 0, colours.top(*views))
    palette = sequential(colours.palette)
    for panel, view, name in zip(panels, views, TITLES, strict=False):
        weights = np.ma.masked_array(view.weights, view.any_blocked())
        image = panel.imshow(weights, cmap=palette, norm=norm, interpolation="none")
        _finish(sheet, panel, view, say(name) if standard is not None else "", image, say("weight"))
        hatch(panel, view.blocked)
    if standard is not None:
        change = difference(now, standard)
        reach = max(float(np.nanmax(np.abs(change), initial=0.0)), 0.01)
        shown = np.ma.masked_invalid(change)
        image = panels[2].imshow(shown, cmap=changes(), norm=Normalize(-reach, reach), interpolation="none")
        _finish(sheet, panels[2], now, say(TITLES[2]), image, say("change"))
        hatch(panels[2], {name: mask & np.isnan(change) for name, mask in standard.blocked.items()})
    sheet.legend(name for view in views for name, mask in view.blocked.items() if mask.any())
    return sheet


def _sheet(view: HeadView, paper: Paper, count: int) -> tuple[Sheet, list[Axes]]:
    """As large as its tokens need, its panels side by side."""
    rows, columns = view.weights.shape
    cell = _cell(view)
    wide, tall = max(columns * cell, 2.0), max(rows * cell, 2.0)
    left, below = (max(width(paper.said(label)) for label in labels) + 0.45 for labels in (view.queries, view.keys))
    across = left + wide + 0.9  # a colour bar's
    sheet = Sheet(paper, count * across, tall + below)
    return sheet, [sheet.panel(left + number * across, 0, wide, tall) for number in range(count)]


def _finish(sheet: Sheet, panel: Axes, view: HeadView, name: str, image: AxesImage, measure: str) -> None:
    """Tokens on both axes, their titles, a colour bar at the picture, and what a row without keys is."""
    queries, keys = ([sheet.paper.said(label) for label in labels] for labels in (view.queries, view.keys))
    size = min(_cell(view) * 72 * 0.62, 9)
    panel.set_xticks(range(len(keys)), keys, rotation=90, fontsize=size)
    panel.set_yticks(range(len(queries)), queries, fontsize=size)
    for label in [*panel.get_xticklabels(), *panel.get_yticklabels()]:
        label.set_parse_math(False)  # a dollar is a dollar
    panel.tick_params(length=0)
    panel.set_xlabel(say(KEY_TITLE), fontsize=8)
    panel.set_ylabel(say(QUERY_TITLE), fontsize=8)
    panel.set_title(name, fontsize=9, loc="left", weight="bold")
    box = panel.get_position()
    beside = sheet.figure.add_axes((box.x1 + 0.08 / sheet.wide, box.y0, 0.1 / sheet.wide, box.height))
    sheet.figure.colorbar(image, cax=beside, label=measure)
    beside.tick_params(labelsize=7)
    for first, last in empty_runs(view):
        panel.text(len(keys) / 2 - 0.5, (first + last) / 2, say("nothing to attend to"), ha="center", va="center",
                   fontsize=7, bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85})  # fmt: skip


def _cell(view: HeadView) -> float:
    """Inches of a cell's side: a label has to fit beside it."""
    return 0.2 if max(view.weights.shape) <= 64 else 0.14
