"""Sheets that pictures are drawn on: a title above, a caption below, light whatever the page's theme.

They are drawn by matplotlib, without a browser. Text stays text in SVG and PDF. A heatmap's SVG is written without
matplotlib's axes, which take most of the time of drawing a picture.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal
from xml.sax.saxutils import escape

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, ListedColormap, PowerNorm, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from i18n import language, say, spoken
from model.atlas.result import Atlas
from model.heads.view import head_name
from viz.export.fonts import drawable, families, width, wrapped
from viz.hatch import picture_uri, runs
from viz.heads.atlas import GREY, axis_range, axis_title, even_at, labelled, measured
from viz.heads.colours import PALETTES, STANDARD_COLOURS
from viz.mask_styles import STYLES, mask_name
from viz.palette import SEQUENTIAL, diverging, stops

KINDS = {"svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf"}
MAX_PIXELS = 12_000  # pixels of a PNG's width or height
MAX_AREA = 24_000_000  # pixels of a PNG: more take seconds to draw, and four bytes of memory each
DOTS = 96  # pixels per inch of a PNG at 1×
Box = tuple[float, float, float, float]  # left, top, width and height, in inches
Blocked = Mapping[str, np.ndarray]  # mask -> the cells that it blocks, bool [Q,K]
ANY = "any"  # in place of a mask's name: one hatching for all masks, if there is no room for several
GROUND = (0.93, 0.93, 0.94)
INK = "#24272f"
EDGE = 0.15  # margin of the sheet in inches
HEAD = 0.75  # height of the title and the legend in inches
TITLE = 1.5  # font size of the title, in units of that of token labels

mpl.rcParams["svg.fonttype"] = "none"  # text, not outlines: it can be searched, and the viewer's fonts draw it
mpl.rcParams["pdf.fonttype"] = 42
warnings.filterwarnings("ignore", "Glyph .* missing")  # an SVG is drawn with its viewer's fonts; see Paper.said


@dataclass(frozen=True)
class Paper:
    """Title, caption (full sentences), file format and language of a picture. kind: a key of KINDS. scale: of a PNG, 1,
    2 or 4; reduced if it would exceed MAX_PIXELS per side or MAX_AREA."""

    title: str
    caption: str
    kind: str = "svg"
    scale: int = 1
    language: str = field(default_factory=language)

    def said(self, text: str) -> str:
        """Replace the characters that this kind of file cannot show; only SVG keeps those that no font here has."""
        return NOT_XML.sub(chr(0xFFFD), text) if self.kind == "svg" else drawable(text)


class Sheet:
    """A sheet with room for a picture of `wide` by `tall` inches, its title and a legend of these labels. Positions are
    in inches from the picture's upper left."""

    def __init__(self, paper: Paper, wide: float, tall: float, labels: Iterable[str] = ()) -> None:
        self.paper = paper
        wide = max(wide, EDGE + TITLE * width(paper.title), EDGE + sum(map(legend_width, labels)))
        lines = wrapped(paper.said(paper.caption), max(int((wide - EDGE) * 13), 40))
        self.wide, self.tall = wide, HEAD + tall + 0.17 * len(lines) + 0.3
        self.start()
        self.text(EDGE, 0.1 - HEAD, paper.title, 12, va="top", weight="bold")
        self.text(EDGE, self.tall - HEAD - 0.12, "\n".join(lines), 8, va="bottom")

    def start(self) -> None:
        """Prepare to draw on a sheet of this size."""
        self.figure = Figure(figsize=(self.wide, self.tall), facecolor="white")
        FigureCanvasAgg(self.figure)

    def panel(self, left: float, top: float, wide: float, tall: float) -> Axes:
        """Add axes in a box, in inches."""
        return self.figure.add_axes((*self.at(left, top + tall), wide / self.wide, tall / self.tall))

    def text(self, x: float, y: float, words: str, size: float, **how: Any) -> None:
        """Write words at a position, left-aligned by default. size: in points. how: properties of matplotlib's text."""
        look: dict[str, Any] = {"ha": "left", "color": INK, "fontsize": size, "parse_math": False} | how
        self.figure.text(*self.at(x, y), self.paper.said(words), **look)

    def heatmap(self, box: Box, weights: np.ndarray, blocked: Blocked, bar: float, measure: str, **how: Any) -> None:
        """Draw weights [Q,K] in a box, hatched where blocked; on the right a colour bar, `bar` inches tall. measure:
        its title. how: cmap and norm."""
        left, top, wide, tall = box
        panel = self.panel(left, top, wide, tall)
        panel.set_xticks([])
        panel.set_yticks([])
        image = panel.imshow(weights, interpolation="none", aspect="auto", **how)
        hatch(panel, blocked)
        cax = self.panel(left + wide + 0.08, top, 0.1, bar)
        self.figure.colorbar(image, cax=cax, label=measure)
        cax.tick_params(labelsize=7)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Convert a position to matplotlib's: shares of the sheet from its lower left."""
        return x / self.wide, 1 - (HEAD + y) / self.tall

    def legend(self, masks: Iterable[str], others: Sequence[Artist] = ()) -> None:
        """Draw a legend below the title: labelled artists, then the hatching of each mask."""
        plain: dict[str, Any] = {"facecolor": GROUND, "linewidth": 0}
        hatchings = (Patch(label=blocked_by(name), **plain, **hatch_ink(name)) for name in masks)
        handles = [*others, *hatchings]
        if handles:
            look: dict[str, Any] = {"frameon": False, "fontsize": 8, "borderaxespad": 0, "borderpad": 0}
            corner = self.at(EDGE, 0.33 - HEAD)
            self.figure.legend(handles=handles, loc=2, bbox_to_anchor=corner, ncols=len(handles), **look)

    def file(self) -> bytes:
        """Return the sheet as a file of the paper's kind."""
        for words in self.figure.findobj(Text):
            words.set_fontfamily(families(words.get_text()))
        file = io.BytesIO()
        most = MAX_PIXELS / max(self.wide, self.tall), (MAX_AREA / (self.wide * self.tall)) ** 0.5
        how: dict[str, Any] = {"svg": {"metadata": {"Date": None}}, "png": {"pil_kwargs": {"compress_level": 2}}}
        dots = min(DOTS * self.paper.scale, *most)
        self.figure.savefig(file, format=self.paper.kind, dpi=dots, **how.get(self.paper.kind, {}))
        return file.getvalue()


def file_of(draw: Callable[..., Sheet], paper: Paper, *of: Any) -> bytes:
    """Return draw(paper, *of) as a file of the paper's kind, in its language, since the caller may have none set."""
    with spoken(paper.language):
        return draw(paper, *of).file()


def tidy(panel: Axes, x: str, y: str = "", *, token_ticks: Literal["", "x", "y"] = "") -> None:
    """Give axes small titles and numbers, and spines only on the left and below. token_ticks: the axis with tokens."""
    panel.set_xlabel(x, fontsize=8)
    panel.set_ylabel(y, fontsize=8)
    panel.tick_params(labelsize=7)
    panel.spines[["top", "right"]].set_visible(False)
    if token_ticks:
        panel.tick_params(axis=token_ticks, length=0)
        for label in (panel.get_xticklabels if token_ticks == "x" else panel.get_yticklabels)():
            label.set_parse_math(False)


def legend_width(label: str) -> float:
    """Return the width of a legend's entry in inches, with the gap to the next."""
    return 0.31 + width(label) * 8 / 9 + 0.22


def blocked_by(name: str) -> str:
    """Return the legend's label for cells that a mask blocks. name: the mask's, or ANY."""
    return say("blocked") if name == ANY else say("blocked: {mask}", mask=mask_name(name))


def hatch(panel: Axes, blocked: Blocked) -> None:
    """Hatch each mask's cells, bool [Q,K], in its own direction and colour."""
    for name, mask in blocked.items():
        found = runs(mask)
        boxes = [[(begin, row), (end, row), (end, row + 1), (begin, row + 1)] for row, begin, end in found]
        if boxes:
            whole = Path.make_compound_path_from_polys(np.array(boxes) - 0.5)
            panel.add_patch(PathPatch(whole, linewidth=0, facecolor=(*GROUND, 0.6), **hatch_ink(name)))


def sequential(palette: str = STANDARD_COLOURS.palette) -> Colormap:
    """Return a colormap for weights; blocked cells are transparent. palette: a key of PALETTES."""
    return ListedColormap(stops(256, PALETTES[palette]) / 255).with_extremes(bad=(0, 0, 0, 0))


def changes() -> Colormap:
    """Return a colormap for differences; blocked cells are transparent."""
    stops = [(float(share), str(colour)) for share, colour in diverging(dark=False)]
    return LinearSegmentedColormap.from_list("change", stops).with_extremes(bad=(0, 0, 0, 0))


def hatch_ink(name: str) -> dict[str, Any]:
    """Return the colour and the hatch of a mask as arguments of matplotlib's patches. name: the mask's, or ANY."""
    style = STYLES.get(name)  # None for ANY
    return {"edgecolor": style.colour, "hatch": style.hatch} if style else {"edgecolor": "#8c929e", "hatch": "////"}


LEFT, WIDE, TALL, BAR = 0.7, 5.6, 4.2, 0.9  # inches: left of the picture, the picture, and its colour bar with its name
ABOVE = 0.018  # distance from a point to its label as a share of the height


def atlas_picture(paper: Paper, atlas: Atlas, x: str, y: str, chosen: tuple[int, int]) -> Sheet:
    """Draw all heads as points and label the chosen head and those with the largest values. x, y: names of measures."""
    across, up = atlas.measure(x), atlas.measure(y)
    heads = measured(across, up)
    sheet = Sheet(paper, LEFT + WIDE + BAR, TALL + 0.5)
    panel = sheet.panel(LEFT, 0, WIDE, TALL)
    layers = [atlas.numbers[layer] for layer, _ in heads]
    colours: dict[str, Any] = {"vmin": min(atlas.numbers), "vmax": max(*atlas.numbers, 1), "edgecolors": GREY}
    colours |= {"cmap": LinearSegmentedColormap.from_list("layers", list(SEQUENTIAL)), "linewidths": 0.6}
    where = [across[head] for head in heads], [up[head] for head in heads]
    points = panel.scatter(*where, s=40, zorder=2, c=layers, **colours)
    for line, at in ((panel.axvline, even_at(atlas, x)), (panel.axhline, even_at(atlas, y))):
        if at is not None:
            line(at, color=GREY, linewidth=0.8, linestyle=":", zorder=1)
    panel.set(xlim=axis_range(x, across), ylim=axis_range(y, up))
    low, high = panel.get_ylim()
    for head in labelled(heads, across, up, chosen):
        look: dict[str, Any] = {"fontsize": 7.5, "ha": "center", "va": "bottom", "parse_math": False}
        panel.text(across[head], up[head] + ABOVE * (high - low), atlas.name(head), **look)
    tidy(panel, axis_title(x), axis_title(y))
    cax = sheet.panel(LEFT + WIDE + 0.15, 0, 0.12, TALL)
    sheet.figure.colorbar(points, cax=cax, ticks=MaxNLocator(integer=True)).set_label(say("layer"), fontsize=8)
    cax.tick_params(labelsize=7)
    return sheet


GAP = 0.06  # between thumbnails, in units of a thumbnail's side
MAX_WIDE = 14.0  # largest width of a row of thumbnails in inches, unless they have SMALLEST_SIDE
LARGEST_SIDE, SMALLEST_SIDE = 0.95, 0.3  # limits of a thumbnail's side in inches


def all_heads_picture(paper: Paper, thumbnails: np.ndarray, blocked: np.ndarray, numbers: Sequence[int] = ()) -> Sheet:
    """Draw the thumbnails of all heads. thumbnails: float32 [L,H,S,S'], weights, 0 to 1. blocked: bool [L, H or 1, S,
    S'], True = all cells of the patch are. numbers: of each layer in the network, where they are not 0, 1, 2 …"""
    layers, heads, tall, wide = thumbnails.shape
    blocked = np.broadcast_to(blocked, thumbnails.shape)
    side = min(max(MAX_WIDE / heads, SMALLEST_SIDE), LARGEST_SIDE)
    gap = round(max(tall, wide) * GAP) + 1
    rows, columns = tall + gap, wide + gap
    hidden = np.zeros((layers * rows - gap, heads * columns - gap), bool)
    inch = side / max(rows, columns)
    width, height = inch * hidden.shape[1], inch * hidden.shape[0]
    sheet = Sheet(paper, max(0.55 + width + 0.95, 4.0), height + 0.35)
    panel = sheet.panel(0.55, 0.25, width, height)
    look: dict[str, Any] = {"cmap": sequential(), "norm": PowerNorm(0.5, 0, 1), "interpolation": "none"}
    for layer, head in np.ndindex(layers, heads):  # separate images, which can be extracted from a PDF
        top, left = layer * rows, head * columns
        hidden[top : top + tall, left : left + wide] = blocked[layer, head]
        edges = (left - 0.5, left + wide - 0.5, top + tall - 0.5, top - 0.5)
        panel.imshow(np.ma.masked_array(thumbnails[layer, head], blocked[layer, head]), extent=edges, **look)
    panel.set(xlim=(-0.5, hidden.shape[1] - 0.5), ylim=(hidden.shape[0] - 0.5, -0.5))
    hatch(panel, {ANY: hidden})
    panel.set_frame_on(False)
    panel.xaxis.tick_top()
    panel.set_xticks(np.arange(heads) * columns + (wide - 1) / 2, [f"H{head}" for head in range(heads)])
    panel.set_yticks(
        np.arange(layers) * rows + (tall - 1) / 2, [head_name(number) for number in numbers or range(layers)]
    )
    panel.tick_params(length=0, labelsize=8)
    cax = sheet.panel(0.55 + width + 0.12, 0.25, 0.1, min(height, 3.0))
    sheet.figure.colorbar(ScalarMappable(PowerNorm(0.5, 0, 1), sequential()), cax=cax, label=say("weight"))
    cax.tick_params(labelsize=7)
    sheet.legend([ANY] if hidden.any() else [])
    return sheet


POINTS = 72  # per inch
TILE = 72  # side of a hatching's tile in points, as in matplotlib's SVG
SHIFT = {"center": 0.36, "top": 0.78, "bottom": -0.24, "baseline": 0.0}  # from anchor down to baseline, in font sizes
SHIFT |= {"left": SHIFT["top"], "right": SHIFT["bottom"]}  # for text that reads upwards
ANCHOR = {"left": "start", "bottom": "start", "center": "middle", "right": "end", "top": "end"}
COMMANDS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
NO_FILL = f'fill="none" stroke="{INK}" stroke-width="0.8"'


class SvgSheet(Sheet):
    """A sheet with only text, heatmaps and a legend of masks, written without matplotlib's axes."""

    def start(self) -> None:
        self._parts: list[str] = []
        self._patterns: dict[str, str] = {}

    def text(self, x: float, y: float, words: str, size: float, **how: Any) -> None:
        """Write words as Sheet.text does. how: ha, va, rotation (0 or 90), weight, color, bbox (a coloured outline)."""
        ha, va, rotation, bbox = how.get("ha", "left"), how.get("va", "baseline"), how.get("rotation"), how.get("bbox")
        weight, colour = how.get("weight", "normal"), how.get("color", INK)
        left, down = x * POINTS, (HEAD + y) * POINTS
        along, across = (va, ha) if rotation else (ha, va)
        turn = f' transform="rotate(-90 {left:.2f} {down:.2f})"' if rotation else ""
        back = f' stroke="{bbox["facecolor"]}" stroke-width="3" paint-order="stroke"' if bbox else ""
        fonts = ", ".join(f"'{family}'" for family in families(words))
        lines = words.split("\n")
        for number, line in enumerate(lines):
            below = SHIFT[across] * size - (len(lines) - 1 - number) * 1.2 * size * (va == "bottom")
            self._parts.append(
                f'<text x="{left:.2f}" y="{down + below:.2f}" font-size="{size:.2f}" font-weight="{weight}" '
                f'font-family="{escape(fonts)}" fill="{colour}" text-anchor="{ANCHOR[along]}"{back}{turn}>'
                f"{escape(NOT_XML.sub(chr(0xFFFD), line))}</text>"
            )

    def heatmap(self, box: Box, weights: np.ndarray, blocked: Blocked, bar: float, measure: str, **how: Any) -> None:
        left, top, wide, _ = box
        cmap, norm = how["cmap"], how["norm"]
        columns = weights.shape[1]
        self._picture(cmap(norm(weights), bytes=True), box)
        x, y, cell = left * POINTS, (HEAD + top) * POINTS, wide / columns * POINTS
        for name, mask in blocked.items():
            corners = ((x + begin * cell, y + row * cell, (end - begin) * cell) for row, begin, end in runs(mask))
            boxes = [f"M{at:.2f} {down:.2f}h{long:.2f}v{cell:.2f}h{-long:.2f}z" for at, down, long in corners]
            if boxes:
                self._parts.append(f'<path d="{"".join(boxes)}" fill="url(#{self._hatch(name)})"/>')
        left += wide + 0.08
        self._picture(cmap(np.linspace(1, 0, 256)[:, None], bytes=True), (left, top, 0.1, bar))
        low, high = float(norm.vmin or 0), float(norm.vmax or 1)
        locator = MaxNLocator(min(9, int(4 * bar)), steps=[1, 2, 2.5, 5, 10])
        ticks = [tick for tick in locator.tick_values(low, high) if low - 1e-9 <= tick <= high + 1e-9]
        digits = max(len(f"{round(tick, 9):g}".partition(".")[2]) for tick in ticks)
        labels = [f"{abs(tick) if abs(tick) < 1e-9 else tick:.{digits}f}".replace("-", "−") for tick in ticks]
        for tick, label in zip(ticks, labels, strict=True):
            height = top + bar * (1 - float(norm(tick)))
            end, at = (left + 0.1) * POINTS, (HEAD + height) * POINTS
            self._parts.append(f'<path d="M{end:.2f} {at:.2f}h3.5" {NO_FILL}/>')
            self.text(left + 0.18, height, label, 7, va="center")
        right = left + 0.24 + max(map(len, labels)) * 0.062
        self.text(right, top + bar / 2, measure, 10, va="center", rotation=90)

    def legend(self, masks: Iterable[str], others: Sequence[Artist] = ()) -> None:
        assert not others  # a heatmap has none; only matplotlib could draw them
        left, top = EDGE, 0.33 - HEAD
        for name in masks:
            label = blocked_by(name)
            box = left, top + 1.2 / POINTS, 16 / POINTS, 5.6 / POINTS
            self._add("rect", box, f'fill="url(#{self._hatch(name)})"')
            self.text(left + 0.31, top + 0.056, label, 8, va="center")
            left += legend_width(label)

    def file(self) -> bytes:
        wide, tall = self.wide * POINTS, self.tall * POINTS
        size = f'width="{wide:.2f}pt" height="{tall:.2f}pt" viewBox="0 0 {wide:.2f} {tall:.2f}"'
        spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        begin = f'<?xml version="1.0" encoding="utf-8"?>\n<svg {spaces} {size}>\n<defs>'
        ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
        return "\n".join([begin, *self._patterns.values(), "</defs>", ground, *self._parts, "</svg>\n"]).encode()

    def _picture(self, rgba: np.ndarray, box: Box) -> None:
        """Add an image with a frame around it."""
        look = 'preserveAspectRatio="none" style="image-rendering:crisp-edges;image-rendering:pixelated"'
        self._add("image", box, f'{look} xlink:href="{picture_uri(rgba)}"')
        self._add("rect", box, NO_FILL)

    def _add(self, name: str, box: Box, look: str) -> None:
        left, top, wide, tall = box
        x, y, width, height = (f"{inches * POINTS:.2f}" for inches in (left, HEAD + top, wide, tall))
        self._parts.append(f'<{name} x="{x}" y="{y}" width="{width}" height="{height}" {look}/>')

    def _hatch(self, name: str) -> str:
        ink = hatch_ink(name)
        colour = to_hex(ink["edgecolor"])
        self._patterns[name] = (
            f'<pattern id="hatch-{name}" patternUnits="userSpaceOnUse" width="{TILE}" height="{TILE}">'
            f'<rect width="{TILE}" height="{TILE}" fill="{to_hex(GROUND)}" fill-opacity="0.6"/>'
            f'<path d="{_strokes(ink["hatch"])}" fill="{colour}" stroke="{colour}" stroke-width="1"/></pattern>'
        )
        return f"hatch-{name}"


@cache
def _strokes(hatch: str) -> str:
    """Return the lines of a matplotlib hatch in one tile, as an SVG path."""
    path = Path.hatch(hatch, 6)
    assert path is not None  # None only for an empty hatch
    parts = []
    for points, code in path.iter_segments(simplify=False, curves=True):
        vertices = np.asarray(points).reshape(-1, 2) * (TILE, -TILE) + (0, TILE)
        parts.append(
            "z" if code == Path.CLOSEPOLY else COMMANDS[code] + " ".join(f"{x:.2f} {y:.2f}" for x, y in vertices)
        )
    return "".join(parts)
