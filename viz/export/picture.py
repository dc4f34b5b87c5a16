"""A head as a picture for print: SVG, PNG or PDF, every token on it, light whatever the page's theme.

Made by matplotlib, which needs no browser. Text stays text in SVG and PDF.
"""

import io
import textwrap
import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PatchCollection
from matplotlib.colors import Colormap, LinearSegmentedColormap, ListedColormap, Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.patches import Patch, Rectangle
from matplotlib.text import Text

from viz.head import TITLES, difference, head_range
from viz.heatmap import KEY_TITLE, QUERY_TITLE
from viz.palette import MASK_COLOURS, diverging, rgb, table
from viz.reasons import empty_runs
from viz.view import HeadView

KINDS = {"svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf"}
MOST_SIDE = 256  # queries or keys that a picture has room to name
MOST_PIXELS = 12_000  # a side, of a PNG
DOTS = 96  # to the inch, of a PNG at 1×
HATCHES = {
    "causal": "////",
    "padding": "\\\\\\\\",
    "window": "||||",
    "chunk": "++++",
    "sliding": "----",
    "stride": "xxxx",
    "documents": "....",
    "drawn": "oooo",
}
GROUND = (0.93, 0.93, 0.94)
FONT = "DejaVu Sans"  # comes with matplotlib

mpl.rcParams["svg.fonttype"] = "none"  # text, not outlines: it can be searched, and the reader's fonts draw it
mpl.rcParams["pdf.fonttype"] = 42


@dataclass(frozen=True)
class Words:
    """What stands around a picture: above it, and below it in full sentences."""

    title: str
    caption: str


def head_picture(now: HeadView, words: Words, standard: HeadView | None = None) -> Figure:
    """The head; with standard, beside it the head under the standard masks, and the difference.

    Raises ValueError for a head of more than MOST_SIDE queries or keys.
    """
    rows, columns = now.weights.shape
    if max(rows, columns) > MOST_SIDE:
        raise ValueError(
            f"expected at most {MOST_SIDE} queries and keys, which a picture has room to name, got {rows} and "
            f"{columns}: show a part of the text"
        )
    views = [now] if standard is None else [now, standard]
    figure, panels = _page(now, words, 1 if standard is None else 3)
    top = head_range(*views)
    for panel, view, name in zip(panels, views, TITLES, strict=False):
        picture = panel.imshow(
            np.ma.masked_array(view.weights, view.any_blocked()),
            cmap=_sequential(),
            norm=PowerNorm(0.5, 0, top),
            interpolation="none",
        )
        _finish(panel, view, name if standard is not None else "", picture, "weight")
        _hatch(panel, view.blocked)
    if standard is not None:
        change = difference(now, standard)
        reach = max(float(np.nanmax(np.abs(change), initial=0.0)), 0.01)
        shown = np.ma.masked_invalid(change)
        picture = panels[2].imshow(shown, cmap=_diverging(), norm=Normalize(-reach, reach), interpolation="none")
        _finish(panels[2], now, TITLES[2], picture, "change")
        _hatch(panels[2], {name: mask & np.isnan(change) for name, mask in standard.blocked.items()})
    _legend(figure, views)
    return figure


def save(figure: Figure, kind: str, scale: int = 1) -> bytes:
    """The figure as a file; scale: of a PNG, 1, 2 or 4, less where it would get more than MOST_PIXELS a side."""
    file = io.BytesIO()
    dots = min(DOTS * scale, MOST_PIXELS / max(figure.get_size_inches()))
    if kind != "svg":
        for text in figure.findobj(Text):
            text.set_text(drawable(text.get_text()))
    figure.savefig(file, format=kind, dpi=dots, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()


def head_svg(now: HeadView, words: Words, standard: HeadView | None = None) -> str:
    """`head_picture` as SVG text."""
    return save(head_picture(now, words, standard), "svg").decode()


def drawable(label: str) -> str:
    """The label with every character that no font of this machine has as its code point, ⟨U+4E2D⟩."""
    return "".join(one if one in "\n " or _has(one) else f"⟨U+{ord(one):04X}⟩" for one in label)


def _page(view: HeadView, words: Words, panels: int) -> tuple[Figure, list[Axes]]:
    """A page as large as its tokens need, its panels side by side."""
    rows, columns = view.weights.shape
    cell = _cell(max(rows, columns))
    labels = [_width(view.queries), _width(view.keys)]  # inches
    wide, tall = max(columns * cell, 2.0), max(rows * cell, 2.0)
    left, below = labels[0] + 0.45, labels[1] + 0.45
    gap, bar = left + 0.9, 0.9
    width = left + panels * wide + (panels - 1) * gap + bar
    lines = textwrap.wrap(words.caption, max(int(width * 13), 40))
    foot = 0.17 * len(lines) + 0.3
    height = 0.75 + tall + below + foot
    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    axes = [
        figure.add_axes(((left + number * (wide + gap)) / width, (below + foot) / height, wide / width, tall / height))
        for number in range(panels)
    ]
    families = _families("".join([*view.queries, *view.keys, words.caption, words.title]))
    _text(figure, 0.15 / width, 1 - 0.1 / height, words.title, 12, families, va="top", weight="bold")
    _text(figure, 0.15 / width, 0.12 / height, "\n".join(lines), 8, families, va="bottom")
    return figure, axes


def _finish(panel: Axes, view: HeadView, name: str, picture: object, measure: str) -> None:
    """Tokens on both axes, their titles, a colour bar at the picture, and what a row without keys is."""
    families = _families("".join([*view.queries, *view.keys]))
    size = min(_cell(max(view.weights.shape)) * 72 * 0.62, 9)
    panel.set_xticks(range(len(view.keys)), view.keys, rotation=90, fontsize=size, family=families)
    panel.set_yticks(range(len(view.queries)), view.queries, fontsize=size, family=families)
    for label in [*panel.get_xticklabels(), *panel.get_yticklabels()]:
        label.set_parse_math(False)  # a dollar is a dollar
    panel.tick_params(length=0)
    panel.set_xlabel(KEY_TITLE, fontsize=8)
    panel.set_ylabel(QUERY_TITLE, fontsize=8)
    panel.set_title(name, fontsize=9, loc="left", weight="bold")
    figure = panel.get_figure(root=True)
    assert figure is not None  # it was made on one
    box, (width, _) = panel.get_position(), figure.get_size_inches()
    beside = figure.add_axes((box.x1 + 0.08 / width, box.y0, 0.1 / width, box.height))
    figure.colorbar(picture, cax=beside, label=measure)  # type: ignore[arg-type]
    beside.tick_params(labelsize=7)
    for first, last in empty_runs(view):
        panel.text(len(view.keys) / 2 - 0.5, (first + last) / 2, "nothing to attend to", ha="center", va="center",
                   fontsize=7, bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85})  # fmt: skip


def _hatch(panel: Axes, blocked: dict[str, np.ndarray]) -> None:
    """Each mask's cells in its own direction and colour, a rectangle for each run of them in a row."""
    for name, mask in blocked.items():
        runs = [Rectangle((begin - 0.5, row - 0.5), end - begin, 1) for row, begin, end in _runs(mask)]
        colour = tuple(part / 255 for part in rgb(MASK_COLOURS[name]))
        panel.add_collection(
            PatchCollection(runs, facecolor=(*GROUND, 0.6), edgecolor=colour, hatch=HATCHES[name], linewidth=0)
        )


def _legend(figure: Figure, views: list[HeadView]) -> None:
    names = dict.fromkeys(name for view in views for name, mask in view.blocked.items() if mask.any())
    if not names:
        return
    handles = [
        Patch(
            facecolor=GROUND, edgecolor=MASK_COLOURS[name], hatch=HATCHES[name], linewidth=0, label=f"blocked: {name}"
        )
        for name in names
    ]
    width, height = figure.get_size_inches()
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.1 / width, 1 - 0.3 / height), ncols=len(handles),
                  frameon=False, fontsize=8, borderaxespad=0)  # fmt: skip


def _runs(mask: np.ndarray) -> list[tuple[int, int, int]]:
    """Row, first column, and the column after the last, of each run of True in a row."""
    edges = np.diff(np.pad(mask.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    begins, ends = np.argwhere(edges == 1), np.argwhere(edges == -1)
    return [(int(row), int(begin), int(end)) for (row, begin), (_, end) in zip(begins, ends, strict=True)]


def _text(figure: Figure, x: float, y: float, words: str, size: float, families: list[str], **how: Any) -> None:
    figure.text(x, y, words, fontsize=size, family=families, ha="left", parse_math=False, **how)


def _cell(side: int) -> float:
    """Inches of a cell's side: a label has to fit beside it."""
    return 0.2 if side <= 64 else 0.14


def _width(labels: list[str]) -> float:
    """Inches of the longest label, wide characters counted twice."""
    longest = max(sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in label) for label in labels)
    return 0.08 * longest


def _sequential() -> Colormap:
    stops = np.frombuffer(table(256), np.uint8).reshape(256, 3) / 255
    return ListedColormap(stops).with_extremes(bad=(0, 0, 0, 0))


def _diverging() -> Colormap:
    stops = [(float(place), str(colour)) for place, colour in diverging(dark=False)]
    return LinearSegmentedColormap.from_list("change", stops).with_extremes(bad=(0, 0, 0, 0))


def _families(text: str) -> list[str]:
    """The fonts that draw the text, in the order in which they are asked."""
    others = {_covering(one) for one in set(text) if one.isprintable() and not _in(FONT, one)}
    return [FONT, *sorted(name for name in others if name)]


def _has(character: str) -> bool:
    return _in(FONT, character) or _covering(character) is not None


def _in(family: str, character: str) -> bool:
    return ord(character) in _characters(font_manager.findfont(family))


@cache
def _covering(character: str) -> str | None:
    """The first installed font that has the character."""
    for font in font_manager.fontManager.ttflist:
        if "LastResort" not in font.fname and ord(character) in _characters(font.fname):
            return str(font.name)
    return None


@cache
def _characters(path: str) -> frozenset[int]:
    return frozenset(FT2Font(path).get_charmap())
