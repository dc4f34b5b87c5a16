"""One query for print: a bar for each key, in the order of the text."""

import numpy as np

from viz.export.fonts import families, width
from viz.export.paper import Paper, Sheet
from viz.heads.bars import Row
from viz.heatmap import KEY_TITLE
from viz.palette import MASK_COLOURS, NOW, STANDARD

BAR = 0.2  # inches of a key
TALL = 2.6  # inches of a weight of 1, or of the largest


def bars_picture(paper: Paper, row: Row) -> Sheet:
    """Now, and as standard where that differs; a key that is blocked now has a cross in its mask's colour."""
    keys = [paper.said(label) for label in row.view.keys]
    wide, below = max(BAR * len(keys), 3.0), max(map(width, keys)) + 0.45
    sheet = Sheet(paper, 0.65 + wide + 0.2, TALL + below)
    panel = sheet.panel(0.65, 0, wide, TALL)
    series = [("weight", row.view, NOW)]
    if row.standard:
        series = [("now", row.view, NOW), ("standard masks", row.standard, STANDARD)]
    places, thick = np.arange(len(keys)), 0.8 / len(series)
    for number, (name, view, colour) in enumerate(series):
        left = places - 0.4 + thick * number
        panel.bar(left, view.weights[0], thick, align="edge", color=colour, label=name, linewidth=0)
    for name, mask in row.view.blocked.items():
        here = np.flatnonzero(mask[0])
        if len(here):
            panel.plot(here, np.zeros(len(here)), "x", color=MASK_COLOURS[name], label=f"blocked: {name}",
                       clip_on=False, markersize=5)  # fmt: skip
    panel.set_xticks(places, keys, rotation=90, fontsize=9, family=families("".join(keys)))
    for label in panel.get_xticklabels():
        label.set_parse_math(False)
    panel.set(xlim=(-0.6, len(keys) - 0.4), ylim=(0, None))
    panel.set_xlabel(KEY_TITLE, fontsize=8)
    panel.set_ylabel("weight", fontsize=8)
    panel.tick_params(axis="x", length=0)
    panel.tick_params(axis="y", labelsize=7)
    panel.spines[["top", "right"]].set_visible(False)
    sheet.legend([], panel.get_legend_handles_labels()[0])
    return sheet
