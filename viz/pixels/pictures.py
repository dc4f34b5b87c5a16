"""8×8 pictures as packets for the canvas (components/pixels.js): a head's attention drawn on one, or one to draw on.

Cell 0 is the class token, cell 1 + p pixel p, in raster order. Grey levels go from 0 (paper) to 7 (ink).
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from PIL import Image

from i18n import N_, listed, say, say_count, together
from model.pixels.view import PixelView
from viz.components.words import packed, words
from viz.hatch import data_uri, ink
from viz.heads.cells import weight_text
from viz.heatmap import colour_range
from viz.html import swatch, tag
from viz.numbers import percent
from viz.palette import MASK_COLOURS, ink_on, rgb, table

SIDE, LEVELS = 8, 8
PIXELS = SIDE * SIDE
CELLS = 1 + PIXELS
GREYS = tuple(f"#{shade:02x}{shade:02x}{shade:02x}" for shade in np.linspace(255, 10, LEVELS).round().astype(int))
COLOURS = tuple("#" + bytes(triple).hex() for triple in np.frombuffer(table(256), np.uint8).reshape(-1, 3))


ALT_HEAD = N_(
    "The picture of {name}, 8 by 8 pixels, and where layer {layer}, head {head} attends from {looker}: most to {cells}."
)
ALT_HEADS = N_(
    "Where each of {layers} × {heads} heads attends from {looker}. {chosen}. Arrow keys move, Enter chooses a head."
)
ALT_DRAWING = N_("A drawing of 8 by 8 pixels, the first {given} of them given. Arrow keys move, 0 to 7 set a level.")
HINT_HEADS = N_(
    "Every head, in the colours of the large one; the strip on top is the class token. Click one to enlarge it."
)
HINT_DRAWING = N_(
    "Drag to draw with the chosen grey; click a pixel of that grey to erase it. Keys: arrows, 0 to 7, Enter. The model "
    "writes the hatched part."
)


def name_of(cell: int, class_name: str) -> str:
    """A cell's name: the class token's, or its row and column from 0, "r2 c5"."""
    return say(class_name) if cell == 0 else f"r{(cell - 1) // SIDE} c{(cell - 1) % SIDE}"


def head_packet(view: PixelView, layer: int, head: int, zmax: float, *, heard: bool = True) -> bytes:
    """One head large, for components/pixels.js: every cell's colour from 0 to zmax, and a line about each pixel.

    heard: whether somebody hears which pixel is picked; else it is there to be looked at.
    """
    weights = view.weights[layer, head]
    cells = {"cells": _strongest_said(view, weights), "looker": name_of(view.query, view.class_name)}
    blocked = say_count("{count} cell is blocked by causal.", "{count} cells are blocked by causal.",
                        int(view.blocked.sum()))  # fmt: skip
    keys = say("Arrow keys move, Enter picks a pixel.") if heard else say("Arrow keys move.")
    about = {
        "mode": "pick" if heard else "look",
        "chosen": view.pixel,
        "names": [_about(view, weights, pixel) for pixel in range(PIXELS)],
        "hint": together(_hint(view, float(weights[0]), heard=heard)),
        "alt": together([say(ALT_HEAD, name=view.class_name, layer=layer, head=head, **cells), blocked, keys]),
    }
    return packed(_header(view, [weights], zmax) | about)


def heads_packet(view: PixelView, layer: int, head: int, zmax: float) -> bytes:
    """Every head small, layers in rows and heads in columns; colours from 0 to zmax, as of the large one."""
    layers, heads = view.weights.shape[:2]
    shown = list(np.ndindex(layers, heads))
    cells = [_strongest_said(view, view.weights[place]) for place in shown]
    names = [
        say("Layer {layer}, head {head}: most to {cells}", layer=one, head=other, cells=most)
        for (one, other), most in zip(shown, cells, strict=True)
    ]
    chosen = layer * heads + head
    looker = name_of(view.query, view.class_name)
    about = {
        "mode": "heads",
        "rows": layers,
        "columns": heads,
        "chosen": chosen,
        "names": names,
        "hint": say(HINT_HEADS),
        "alt": say(ALT_HEADS, layers=layers, heads=heads, looker=looker, chosen=names[chosen]),
    }
    return packed(_header(view, [view.weights[place] for place in shown], zmax) | about)


def drawing_packet(levels: np.ndarray, class_name: str, given: int, epoch: int, number: int) -> bytes:
    """A picture to draw on, levels [64]: its first `given` pixels are the reader's, the others the model's to write.

    epoch: which drawing this is; number: how many changes of it the page has heard of.
    """
    about = {
        "mode": "draw",
        "pictures": [{"colours": None, "classInk": ""}],
        "hatch": ink("causal", "#8C929E"),
        "chosen": -1,
        "names": [],
        "hint": say(HINT_DRAWING),
        "alt": say(ALT_DRAWING, given=given),
    }
    counted = {"given": given, "epoch": epoch, "number": number}
    return packed(_page(levels, np.arange(CELLS) > given, class_name) | about | counted)


def strongest(weights: np.ndarray, most: int = 3) -> list[int]:
    """The cells with the largest weights [65], the largest first, those that get nothing left out."""
    order = np.argsort(-weights, kind="stable")[:most]
    return [int(cell) for cell in order if weights[cell] > 0]


def colours_of(weights: np.ndarray, zmax: float) -> list[str]:
    """The palette's colour of each weight, brightness with the square root of weight/zmax, as in every heatmap here."""
    places = np.rint(np.sqrt(np.clip(weights / zmax, 0, 1)) * 255).astype(int)
    return [COLOURS[place] for place in places]


def largest(*views: PixelView) -> float:
    """The weight that gets the last colour: one for every head of these pictures, so that small and large agree."""
    return colour_range(*(view.weights for view in views))


def scale_html(zmax: float) -> str:
    """What the colours and squares mean, as a line of HTML."""
    stops = ", ".join(f"{COLOURS[round((step / 8) ** 0.5 * 255)]} {step / 8 * 100:.0f}%" for step in range(9))
    bar = (
        "display:inline-block;width:7em;height:.75em;border-radius:2px;vertical-align:-.05em;"
        f"background:linear-gradient(to right,{stops})"
    )
    parts = (
        say("weight") + f' 0 <span style="{bar}"></span> {zmax:.2f}',
        say("■ ink, larger = darker"),
        str(swatch(MASK_COLOURS["causal"])) + say("hatched: blocked by causal"),
    )
    spans = "\u2003".join(f'<span style="display:inline-block">{part}</span>' for part in parts)
    return f'<p class="key">{spans}</p>'


def _header(view: PixelView, weights: Sequence[np.ndarray], zmax: float) -> dict[str, Any]:
    """What every packet of attention holds."""
    pictures = [_picture(one, view.blocked, zmax) for one in weights]
    about = {"pictures": pictures, "hatch": ink("causal"), "query": view.query}
    return _page(view.levels, view.blocked, view.class_name) | about


def _page(levels: Sequence[int] | np.ndarray, blocked: np.ndarray, class_name: str) -> dict[str, Any]:
    """What every packet holds: one picture, without a query, all of it given, unless it says otherwise."""
    return {
        "levels": [int(level) for level in levels],
        "blocked": [bool(one) for one in blocked],
        "className": say(class_name),
        "greys": list(GREYS),
        "words": words("pixels"),
        **{"rows": 1, "columns": 1, "query": -1, "given": PIXELS, "epoch": 0, "number": 0},
    }


def _picture(weights: np.ndarray, blocked: np.ndarray, zmax: float) -> dict[str, Any]:
    colours = colours_of(weights, zmax)
    return {
        "colours": [None if shut else colour for colour, shut in zip(colours, blocked, strict=True)],
        "classInk": ink_on(*rgb(colours[0])),
    }


def _about(view: PixelView, weights: np.ndarray, pixel: int) -> str:
    cell = pixel + 1
    about = {"looker": name_of(view.query, view.class_name), "looked": name_of(cell, view.class_name)}
    about |= {"level": view.levels[pixel], "weight": weight_text(weights[cell])}
    if view.blocked[cell]:
        return say("{looker} attends to {looked} (level {level}): blocked by causal", **about)
    return say("{looker} attends to {looked} (level {level}): weight {weight}", **about)


def _hint(view: PixelView, on_class: float, *, heard: bool) -> list[str]:
    """Sentences. on_class: the class token's share of the attention."""
    names = {"looker": name_of(view.query, view.class_name), "picked": name_of(view.pixel + 1, "")}
    query = say("{looker} (dashed) is the query and writes {picked} (framed).", **names)
    if names["looker"] == names["picked"]:
        query = say("{looker} (framed) is the query.", **names)
    keys = say("Click a pixel, or arrow keys and Enter.") if heard else say("Point at a pixel, or use the arrow keys.")
    return [query, say("Class token: {share} of the attention.", share=percent(on_class)), keys]


def _strongest_said(view: PixelView, weights: np.ndarray) -> str:
    cells = (f"{name_of(cell, view.class_name)} {percent(weights[cell])}" for cell in strongest(weights))
    return listed(cells)


@dataclass(frozen=True, eq=False)
class GalleryCard:
    """A picture of a gallery: levels [64]; caption; good: True or False for a verdict, None without one.

    given: how many of its pixels the model was given, the others it wrote.
    """

    levels: np.ndarray
    caption: str
    good: bool | None = None
    given: int = 0


def gallery(cards: Sequence[GalleryCard], columns: int = 10) -> Markup:
    """Pictures as HTML, so many in a row, each with its caption; a verdict is a frame and a word of the caption."""
    style = (
        f".gallery{{display:grid;grid-template-columns:repeat({columns},minmax(0,1fr));gap:10px;max-width:1100px}}"
        ".gallery figure{margin:0;text-align:center}"
        ".gallery img{width:100%;image-rendering:pixelated;border:3px solid rgba(128,128,128,.35);border-radius:4px}"
        ".gallery .yes img{border-color:#009E73}.gallery .no img{border:3px dashed #D55E00}"
        ".gallery figcaption{font-size:.8rem;line-height:1.15;margin-top:.15rem}"
    )
    pictures = Markup().join(map(_figure, cards))
    return Markup('<style>{}</style><div class="gallery">{}</div>').format(Markup(style), pictures)


def _figure(card: GalleryCard) -> Markup:
    verdict = {None: "", True: "yes", False: "no"}[card.good]
    alt = say("A written digit: {caption}", caption=card.caption)
    source = data_uri(picture_png(card.levels, card.given))
    picture = Markup('<img src="{}" alt="{}">').format(source, alt)
    return tag("figure", picture + tag("figcaption", card.caption), class_=verdict)


def picture_png(levels: np.ndarray, given: int = 0, scale: int = 10) -> bytes:
    """levels [64] as a PNG, ink on paper; a line under the pixels that were given."""
    shades = np.array([int(grey[1:3], 16) for grey in GREYS], np.uint8)[levels.reshape(SIDE, SIDE)]
    large = np.repeat(np.repeat(shades, scale, 0), scale, 1)
    pixels = np.stack([large] * 3, -1)
    if 0 < given < PIXELS:
        row, column = divmod(given, SIDE)
        line = np.array([0xCC, 0x79, 0xA7], np.uint8)
        pixels[row * scale - 1 : row * scale + 1, column * scale :] = line
        if column:
            pixels[(row + 1) * scale - 1 : (row + 1) * scale + 1, : column * scale] = line
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()
