"""Every head of an atlas as a point, for print."""

from matplotlib.collections import PathCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import MaxNLocator

from i18n import say
from model.atlas.result import Atlas
from viz.export.paper import Paper, Sheet
from viz.head_atlas.scatter import GREY, axis_range, axis_title, even_at, labelled, measured
from viz.palette import SEQUENTIAL

LEFT, WIDE, TALL, BAR = 0.7, 5.6, 4.2, 0.9  # inches: left of the picture, the picture, and its colour bar with its name
ABOVE = 0.018  # of the picture's height: from a point to its name


def atlas_picture(paper: Paper, atlas: Atlas, x: str, y: str, chosen: tuple[int, int]) -> Sheet:
    """x, y: names of measures; the heads that stand out are named, and the chosen one."""
    across, up = atlas.measure(x), atlas.measure(y)
    places = measured(across, up)
    sheet = Sheet(paper, LEFT + WIDE + BAR, TALL + 0.5)
    panel = sheet.panel(LEFT, 0, WIDE, TALL)
    points = panel.scatter(
        [across[place] for place in places], [up[place] for place in places], s=40, zorder=2,
        c=[atlas.numbers[layer] for layer, _ in places], vmin=min(atlas.numbers), vmax=max(*atlas.numbers, 1),
        cmap=LinearSegmentedColormap.from_list("layers", list(SEQUENTIAL)), edgecolors=GREY, linewidths=0.6,
    )  # fmt: skip
    for line, at in ((panel.axvline, even_at(atlas, x)), (panel.axhline, even_at(atlas, y))):
        if at is not None:
            line(at, color=GREY, linewidth=0.8, linestyle=":", zorder=1)
    panel.set(xlim=axis_range(x, across), ylim=axis_range(y, up))
    low, high = panel.get_ylim()
    for place in labelled(places, across, up, chosen):
        panel.text(across[place], up[place] + ABOVE * (high - low), atlas.name(place), fontsize=7.5, ha="center",
                   va="bottom", parse_math=False)  # fmt: skip
    panel.set_xlabel(axis_title(x), fontsize=8)
    panel.set_ylabel(axis_title(y), fontsize=8)
    panel.tick_params(labelsize=7)
    panel.spines[["top", "right"]].set_visible(False)
    _draw_key(sheet, points)
    return sheet


def _draw_key(sheet: Sheet, points: PathCollection) -> None:
    beside = sheet.panel(LEFT + WIDE + 0.15, 0, 0.12, TALL)
    sheet.figure.colorbar(points, cax=beside, ticks=MaxNLocator(integer=True)).set_label(say("layer"), fontsize=8)
    beside.tick_params(labelsize=7)
