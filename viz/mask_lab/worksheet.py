"""A worksheet to print: the stages of a head with four tokens, empty or filled in, as a PDF by matplotlib."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from viz.export.fonts import families
from viz.html import rounded
from viz.mask_lab.by_hand import stages
from viz.palette import MASK_COLOURS

if TYPE_CHECKING:
    from model.mask_lab.fills import WorkedExample

PAPER = (8.27, 11.69)  # A4, inches


def worksheet(
    found: "WorkedExample", given: Sequence[np.ndarray], tokens: Sequence[str], *, title: str, task: str, answers: bool
) -> bytes:
    """Return a PDF of one page. given: queries, keys and values [T,D]. answers: whether the stages are filled in."""
    with mpl.rc_context({"pdf.fonttype": 42, "font.family": families(title + task)}):
        figure = Figure(figsize=PAPER)
        figure.text(0.08, 0.955, title, fontsize=17, weight="bold")
        figure.text(0.08, 0.938, task, fontsize=9.5, va="top", wrap=True, linespacing=1.4)
        for index, (name, numbers) in enumerate(zip(("q", "k", "v"), given, strict=True)):
            cells = [[rounded(float(one)) for one in row] for row in numbers]
            _table(figure.add_axes((0.13 + 0.29 * index, 0.72, 0.21, 0.125)), name, ["1", "2"], cells, tokens)
        for index, (name, columns, cells) in enumerate(stages(found, tokens)):
            room = (0.13 + 0.45 * (index % 2), 0.51 - 0.22 * (index // 2), 0.36, 0.15)
            shown = cells if answers else [[""] * len(row) for row in cells]
            blocked = found.allowed if index == 2 and answers else None
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
