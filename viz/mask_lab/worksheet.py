"""A worksheet to print: a head of four tokens, its stages to be filled in, or filled in. PDF by matplotlib.

A PDF holds its letters' outlines: Chinese needs a font with Chinese that is installed where the program runs.
"""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontEntry
from matplotlib.transforms import Bbox

from viz.mask_lab.by_hand import rounded, stages
from viz.palette import MASK_COLOURS

if TYPE_CHECKING:
    from model.mask_lab.by_hand import ByHand

PAPER = (8.27, 11.69)  # A4, inches
OWN = "DejaVu Sans"  # not shown: matplotlib brings it; it has Latin letters and the signs of mathematics
CHINESE = (
    "Noto Sans CJK", "Noto Sans SC", "Source Han Sans", "WenQuanYi", "Droid Sans Fallback",  # not shown
    "PingFang", "Heiti", "Microsoft YaHei", "SimHei", "AR PL",  # not shown
)  # fmt: skip


def font_with(text: str) -> FontEntry | None:
    """Of the fonts installed here one that, together with matplotlib's own, has every letter of the text; None if none
    has."""
    fonts = [font for font in font_manager.fontManager.ttflist if font.name.startswith((OWN, *CHINESE))]
    own = next(font for font in fonts if font.name == OWN)
    left = _missing(own, text)
    return next((font for font in (own, *fonts) if not _missing(font, left)), None)


def _missing(font: FontEntry, text: str) -> str:
    letters = font_manager.get_font(font.fname)
    return "".join(letter for letter in text if letter.isprintable() and not letters.get_char_index(ord(letter)))


def worksheet(
    found: "ByHand", given: Sequence[np.ndarray], tokens: Sequence[str], *, title: str, task: str, answers: bool
) -> bytes:
    """A PDF of one page. given: queries, keys and values [T,D]. answers: whether the stages are filled in."""
    font = font_with(title + task)
    family = [font.name, OWN] if font else [OWN]
    kind = 42 if family[0] == OWN else 3  # 42: text stays text, but with TrueType's outlines, which not all fonts have
    with mpl.rc_context({"pdf.fonttype": kind, "font.family": family}):
        return _drawn(found, given, tokens, title, task, answers=answers)


def _drawn(
    found: "ByHand", given: Sequence[np.ndarray], tokens: Sequence[str], title: str, task: str, *, answers: bool
) -> bytes:
    figure = Figure(figsize=PAPER)
    figure.text(0.08, 0.955, title, fontsize=17, weight="bold")
    figure.text(0.08, 0.938, task, fontsize=9.5, va="top", wrap=True, linespacing=1.4)
    for place, (name, numbers) in enumerate(zip(("q", "k", "v"), given, strict=True)):
        cells = [[rounded(float(one)) for one in row] for row in numbers]
        _table(figure.add_axes((0.13 + 0.29 * place, 0.72, 0.21, 0.125)), name, ["1", "2"], cells, tokens)
    for place, (name, columns, cells) in enumerate(stages(found, tokens)):
        room = (0.13 + 0.45 * (place % 2), 0.51 - 0.22 * (place // 2), 0.36, 0.15)
        shown = cells if answers else [[""] * len(row) for row in cells]
        blocked = found.allowed if place == 2 and answers else None
        _table(figure.add_axes(room), name, columns, shown, tokens, blocked)
    file = io.BytesIO()
    figure.savefig(file, format="pdf", metadata={"CreationDate": None})
    return file.getvalue()


def _table(
    axes: Axes, name: str, columns: Sequence[str], cells: Sequence[Sequence[str]], tokens: Sequence[str],
    allowed: np.ndarray | None = None,
) -> None:  # fmt: skip
    axes.set_axis_off()
    axes.set_title(name, fontsize=11, loc="left", weight="bold")
    drawn = axes.table([list(row) for row in cells], rowLabels=list(tokens), colLabels=list(columns), bbox=Bbox.unit())
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(10)
    if allowed is not None:
        for row, column in zip(*np.nonzero(~allowed), strict=True):
            drawn[row + 1, column].set_facecolor(f"{MASK_COLOURS['causal']}55")
