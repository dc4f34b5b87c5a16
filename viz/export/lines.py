"""Heads of a layer for print: tokens that look on the left, tokens looked at on the right, lines by weight."""

from collections.abc import Sequence

import numpy as np
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import Patch
from matplotlib.path import Path

from i18n import say
from viz.export.fonts import width
from viz.export.paper import Paper, Sheet
from viz.heads.arcs import COLOURS, least
from viz.view import HeadView

LINE = 0.2  # inches of a token
ACROSS = 3.0  # inches of the lines


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
        paths = [_curve(query + 0.5, key + 0.5) for query, key in shown.tolist()]
        colours = [to_rgba(colour, 0.15 + 0.85 * weight**0.5) for weight in weights]
        widths = [0.5 + 2.5 * weight for weight in weights]
        panel.add_collection(PathCollection(paths, facecolors="none", edgecolors=colours, linewidths=widths))
    sheet.text(left - 0.08, 0.12, say("who looks"), 8, ha="right", va="center")
    sheet.text(left + ACROSS + 0.08, 0.12, say("who is looked at"), 8, va="center")
    for labels, x, side in ((queries, left - 0.08, "right"), (keys, left + ACROSS + 0.08, "left")):
        for place, label in enumerate(labels):
            sheet.text(x, 0.25 + (place + 0.5) * LINE, label, 9, ha=side, va="center")
    sheet.legend([], [Patch(color=colour, label=name) for name, colour in zip(names, COLOURS, strict=False)])
    return sheet


def _curve(begin: float, end: float) -> Path:
    return Path([(0, begin), (0.5, begin), (0.5, end), (1, end)], [Path.MOVETO, *[Path.CURVE4] * 3])
