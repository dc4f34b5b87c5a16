"""One query for print: the text, each token lit by how much the query looks at it."""

from collections.abc import Iterator

from matplotlib.colors import to_rgba
from matplotlib.patches import Patch, Rectangle

from i18n import say
from model.heads.view import HeadView
from viz.export.fonts import width
from viz.export.paper import ANY, GROUND, Paper, Sheet
from viz.heads.cells import weight_text
from viz.heads.tokens import brightest
from viz.palette import MARK, NOW

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
