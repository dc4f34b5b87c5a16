"""One query for print: its text, lit by how much it looks at each token, or bars for each key."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.patches import Patch, Rectangle

from i18n import say
from model.attribution.parts import Carried
from model.heads.view import HeadView
from viz.export.fonts import width
from viz.export.paper import ANY, GROUND, Paper, Sheet, blocked_by, tidy
from viz.heads.arcs import COLOURS
from viz.heads.bars import BarRow
from viz.heads.carried import shares_of
from viz.heads.cells import weight_text
from viz.heads.tokens import brightest
from viz.heatmap import axis_titles
from viz.lit_image import LitImage, composed
from viz.palette import MARK, MASK_COLOURS, NOW, STANDARD

WIDE = 7.5  # inches of a line
LINE = 0.46  # of one's height
TOKEN = 0.22  # of the lit part
NAMED = 0.005  # the smallest weight that is written below its token
BLOCKED = {"hatch": "////", "edgecolor": "#8c929e", "facecolor": GROUND, "linewidth": 0}


def lit_picture(paper: Paper, row: HeadView, own: bool) -> Sheet:
    """row: of one query, [1,K]. own: whether the keys are its own text, where its token is framed."""
    places = list(_flow([max(width(paper.said(label)), 0.08) + 0.14 for label in row.keys]))
    sheet = Sheet(paper, WIDE + 0.3, LINE * (places[-1][1] + 1) + 0.1)
    blocked, weights, most = row.any_blocked()[0], row.weights[0], brightest(row)
    for place, (left, line, wide) in enumerate(places):
        top, middle = line * LINE, left + wide / 2
        lit = {"facecolor": to_rgba(NOW, 0.75 * (float(weights[place]) / most) ** 0.5), "linewidth": 0}
        _box(sheet, left, top, wide, BLOCKED if blocked[place] else lit)
        if own and place + row.first_key == row.first:
            _box(sheet, left, top, wide, {"facecolor": "none", "edgecolor": MARK, "linewidth": 1.5})
        sheet.text(middle, top + TOKEN / 2, row.keys[place], 9, ha="center", va="center")
        if not blocked[place] and weights[place] >= NAMED:
            sheet.text(middle, top + TOKEN + 0.08, weight_text(weights[place]), 5.5, ha="center", va="center")
    looks = [Patch(facecolor="none", edgecolor=MARK, label=say("the query token"))]
    sheet.legend([ANY] if blocked.any() else [], looks if own else [])
    return sheet


def _flow(widths: list[float]) -> Iterator[tuple[float, int, float]]:
    """Where each token goes: from how many inches on, in which line, and how wide it is."""
    x, line = 0.15, 0
    for wide in widths:
        if x + wide > WIDE and x > 0.15:
            x, line = 0.15, line + 1
        yield x, line, wide
        x += wide + 0.03


def _box(sheet: Sheet, left: float, top: float, wide: float, how: dict) -> None:
    corner = sheet.at(left, top + TOKEN)
    sheet.figure.add_artist(Rectangle(corner, wide / sheet.wide, TOKEN / sheet.tall, **how))


def image_picture(paper: Paper, lit: LitImage) -> Sheet:
    """What the query attends to in an image, a panel for each layer of image tokens."""
    panels = [composed(one) for one in lit.layers()]
    wide = min(WIDE / len(panels), 4.5)
    tall = wide * panels[0].shape[0] / panels[0].shape[1]
    sheet = Sheet(paper, max(len(panels) * (wide + 0.1), 4.5) + 0.3, tall + 0.1)
    for number, pixels in enumerate(panels):
        panel = sheet.panel(0.15 + number * (wide + 0.1), 0, wide, tall)
        panel.set_axis_off()
        panel.imshow(pixels, aspect="auto", interpolation="none")
    return sheet


BAR = 0.2  # inches of a key
TALL = 2.6  # inches of a weight of 1, or of the largest
Series = tuple[str, np.ndarray, str]  # its name, a number for each key, its colour


def bars_picture(paper: Paper, row: BarRow) -> Sheet:
    """Now, and as standard where that differs."""
    if not row.standard:
        return key_bars(paper, row.view, [(say("weight"), row.view.weights[0], NOW)], say("weight"))
    now, standard = (view.weights[0] for view in (row.view, row.standard))
    series = [(say("now"), now, NOW), (say("standard masks"), standard, STANDARD)]
    return key_bars(paper, row.view, series, say("weight"))


def key_bars(paper: Paper, row: HeadView, series: Sequence[Series], measure: str) -> Sheet:
    """row: of one query, [1,K]; a key that is blocked has a cross in its mask's colour. measure: what the bars are."""
    keys = [paper.said(label) for label in row.keys]
    wide, below = max(BAR * len(keys), 3.0), max(map(width, keys)) + 0.45
    sheet = Sheet(paper, 0.65 + wide + 0.2, TALL + below)
    panel = sheet.panel(0.65, 0, wide, TALL)
    places, thick = np.arange(len(keys)), 0.8 / len(series)
    for number, (name, values, colour) in enumerate(series):
        left = places - 0.4 + thick * number
        panel.bar(left, values, thick, align="edge", color=colour, label=name, linewidth=0)
    for name, mask in row.blocked.items():
        here = np.flatnonzero(mask[0])
        if len(here):
            look: dict[str, Any] = {"color": MASK_COLOURS[name], "label": blocked_by(name), "markersize": 5}
            panel.plot(here, np.zeros(len(here)), "x", clip_on=False, **look)
    panel.set(xlim=(-0.6, len(keys) - 0.4), ylim=(0, None))
    panel.set_xticks(places, keys)
    tidy(panel, axis_titles(row)[1], measure, token_ticks="x")
    panel.tick_params(axis="x", labelsize=9, rotation=90)
    sheet.legend([], panel.get_legend_handles_labels()[0])
    return sheet


def carried_picture(paper: Paper, row: HeadView, found: Carried) -> Sheet:
    """Each measure in shares of its sum over all keys. row: of the query, [1,K], those keys of found that are shown."""
    measures = [(say("weight"), found.weights), (say("weight × |v|"), found.moved)]
    if found.added is not None:
        measures.append((say("adds"), found.added))
    shown = slice(row.first_key, row.first_key + len(row.keys))
    series = [
        (name, shares_of(values)[shown], colour) for (name, values), colour in zip(measures, COLOURS, strict=False)
    ]
    return key_bars(paper, row, series, say("share of the sum"))
