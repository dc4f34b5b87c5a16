"""A heatmap's sheet as SVG, written without matplotlib's axes: they take most of the time that a picture takes."""

import base64
import io
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
from matplotlib.artist import Artist
from matplotlib.colors import to_hex
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator
from PIL import Image

from viz.export.fonts import families, width
from viz.export.paper import EDGE, GROUND, HEAD, INK, Blocked, Box, Sheet, hatch_ink, mask_label, runs

POINTS = 72  # to the inch
TILE = 72  # points of a side of a hatching's tile, as in matplotlib's SVG
SHIFT = {"center": 0.36, "top": 0.78, "bottom": -0.24, "baseline": 0.0}  # from the place to the baseline, in font sizes
SHIFT |= {"left": SHIFT["top"], "right": SHIFT["bottom"]}  # of text that reads upwards
ANCHOR = {"left": "start", "bottom": "start", "center": "middle", "right": "end", "top": "end"}
COMMANDS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
NO_FILL = f'fill="none" stroke="{INK}" stroke-width="0.8"'


class SvgSheet(Sheet):
    """A sheet of text, heatmaps and a legend of masks; it has no axes of matplotlib's to draw on."""

    def start(self) -> None:
        self._parts: list[str] = []
        self._patterns: dict[str, str] = {}

    def text(self, x: float, y: float, words: str, size: float, **how: Any) -> None:
        """As Sheet's. how: ha, va, rotation, 0 or 90, weight, color, and bbox, whose colour is around the letters."""
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
        left, top, wide, tall = box
        cmap, norm = how["cmap"], how["norm"]
        columns = weights.shape[1]
        self._image(cmap(norm(weights), bytes=True), left, top, wide, tall)
        x, y, cell = left * POINTS, (HEAD + top) * POINTS, wide / columns * POINTS
        for name, mask in blocked.items():
            places = ((x + begin * cell, y + row * cell, (end - begin) * cell) for row, begin, end in runs(mask))
            boxes = [f"M{at:.2f} {down:.2f}h{long:.2f}v{cell:.2f}h{-long:.2f}z" for at, down, long in places]
            if boxes:
                self._parts.append(f'<path d="{"".join(boxes)}" fill="url(#{self._hatch(name)})"/>')
        self._frame(left, top, wide, tall)
        left += wide + 0.08
        self._image(cmap(np.linspace(1, 0, 256)[:, None], bytes=True), left, top, 0.1, bar)
        self._frame(left, top, 0.1, bar)
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
        beside = left + 0.24 + max(map(len, labels)) * 0.062
        self.text(beside, top + bar / 2, measure, 10, va="center", rotation=90)

    def legend(self, masks: Iterable[str], others: Sequence[Artist] = ()) -> None:
        assert not others  # a heatmap has none: they are matplotlib's to draw
        left, top = EDGE, 0.33 - HEAD
        for name in dict.fromkeys(masks):
            label = mask_label(name)
            x, y = left * POINTS, 0.33 * POINTS
            self._parts.append(
                f'<rect x="{x:.2f}" y="{y + 1.2:.2f}" width="16" height="5.6" fill="url(#{self._hatch(name)})"/>'
            )
            self.text(left + 0.31, top + 0.056, label, 8, va="center")
            left += 0.31 + width(label) * 8 / 9 + 0.22

    def file(self) -> bytes:
        wide, tall = self.wide * POINTS, self.tall * POINTS
        size = f'width="{wide:.2f}pt" height="{tall:.2f}pt" viewBox="0 0 {wide:.2f} {tall:.2f}"'
        spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        begin = f'<?xml version="1.0" encoding="utf-8"?>\n<svg {spaces} {size}>\n<defs>'
        ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
        return "\n".join([begin, *self._patterns.values(), "</defs>", ground, *self._parts, "</svg>\n"]).encode()

    def _image(self, rgba: np.ndarray, left: float, top: float, wide: float, tall: float) -> None:
        file = io.BytesIO()
        Image.fromarray(rgba).save(file, "PNG")
        data = base64.b64encode(file.getvalue()).decode()
        self._parts.append(
            f'<image x="{left * POINTS:.2f}" y="{(HEAD + top) * POINTS:.2f}" width="{wide * POINTS:.2f}" '
            f'height="{tall * POINTS:.2f}" preserveAspectRatio="none" '
            f'style="image-rendering:crisp-edges;image-rendering:pixelated" xlink:href="data:image/png;base64,{data}"/>'
        )

    def _frame(self, left: float, top: float, wide: float, tall: float) -> None:
        self._parts.append(
            f'<rect x="{left * POINTS:.2f}" y="{(HEAD + top) * POINTS:.2f}" width="{wide * POINTS:.2f}" '
            f'height="{tall * POINTS:.2f}" {NO_FILL}/>'
        )

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
    """The lines of a matplotlib hatch in one tile, as an SVG path."""
    path = Path.hatch(hatch, 6)
    assert path is not None  # it is None of an empty hatch alone
    parts = []
    for points, code in path.iter_segments(simplify=False, curves=True):
        places = np.asarray(points).reshape(-1, 2) * (TILE, -TILE) + (0, TILE)
        parts.append(
            "z" if code == Path.CLOSEPOLY else COMMANDS[code] + " ".join(f"{x:.2f} {y:.2f}" for x, y in places)
        )
    return "".join(parts)
