"""8×8 pictures as packets for the canvas (components/pixels.js), and the digits model's predictions as tables.

Cell 0 is the class token, cell 1 + p pixel p, in raster order. Grey levels go from 0 (paper) to 7 (ink).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from i18n import N_, listed, say, say_count, together
from model.heads.view import head_name
from model.pixels.view import PixelView
from viz.charts import MARGIN
from viz.components import packed, words
from viz.figure_table import FigureTable, grid
from viz.hatch import ink, picture_uri
from viz.heads.cells import weight_text
from viz.heatmap import CachedFigure, Part, colour_bar, colour_range, figure, heat, title
from viz.html import join, swatch, table, tag, td, th, track
from viz.mask_styles import mask_names
from viz.numbers import chance, percent
from viz.palette import MASK_COLOURS, NOW, SEQUENTIAL_SCALE, STANDARD, ink_on, rgb, stops

SIDE, LEVELS = 8, 8
PIXELS = SIDE * SIDE
CELLS = 1 + PIXELS
GREYS = tuple(f"#{shade:02x}{shade:02x}{shade:02x}" for shade in np.linspace(255, 10, LEVELS).round().astype(int))
COLOURS = tuple("#" + bytes(triple).hex() for triple in stops(256))

ALT_HEAD = N_(
    "The picture of {name}, 8 by 8 pixels, and where layer {layer}, head {head} attends from {looker}: most to {cells}."
)
ALT_HEADS = N_(
    "Where each of {layers} × {heads} heads attends from {looker}. {chosen}. Arrow keys move, Enter chooses a head."
)
ALT_DRAWING = N_("A drawing of 8 by 8 pixels, the first {given} of them given. Arrow keys move, 0 to 7 set a level.")
HINT_DRAWING = N_(
    "Drag to draw with the chosen grey; click a pixel of that grey to erase it. Keys: arrows, 0 to 7, Enter. The model "
    "writes the hatched part."
)
WRITES = N_("{head}, from {looker}, which writes {pixel} (directions are from {pixel}): {places}.")
LOSS = N_(
    "Over the image the loss goes from {standard:.3f} to {now:.3f} nats/pixel: in training it never saw later pixels."
)
LOSS_FALLS = N_("Over the image the loss goes from {standard:.3f} to {now:.3f} nats/pixel.")
LAYER_ONLY = N_(
    "Only this layer's weights are recomputed, from the standard run's queries and keys; predictions do not change."
)


def name_of(cell: int, class_name: str) -> str:
    """Return a cell's name: the class token's, or its row and column from 0, "r2 c5"."""
    return say(class_name) if cell == 0 else f"r{(cell - 1) // SIDE} c{(cell - 1) % SIDE}"


def head_packet(view: PixelView, layer: int, head: int, zmax: float, *, picks: bool = True) -> bytes:
    """Return the packet of one large head for components/pixels.js: every cell's colour from 0 to zmax, and a line on
    each pixel. picks: whether the page handles the selection of a pixel; otherwise the picture is read-only.
    """
    weights = view.weights[layer, head]
    cells = {"cells": _strongest_said(view, weights), "looker": name_of(view.query, view.class_name)}
    count, names = int(view.any_blocked()[layer, head].sum()), view.blocking(layer, head)
    blocked = say("No cell is blocked.")
    if names:
        masks = mask_names(names)
        blocked = say_count(
            "{count} cell is blocked by {masks}.", "{count} cells are blocked by {masks}.", count, masks=masks
        )
    keys = say("Arrow keys move, Enter picks a pixel.") if picks else say("Arrow keys move.")
    about = {
        "mode": "pick" if picks else "look",
        "chosen": view.pixel,
        "names": [_about(view, layer, head, pixel) for pixel in range(PIXELS)],
        "hint": together(_hint(view, float(weights[0]), picks=picks)),
        "alt": together([say(ALT_HEAD, name=view.class_name, layer=layer, head=head, **cells), blocked, keys]),
    }
    return packed(_header(view, [(layer, head)], (layer, head), zmax) | about)


def heads_packet(view: PixelView, layer: int, head: int, zmax: float) -> bytes:
    """Return the packet of all heads as small pictures, layers in rows, heads in columns; colours as in head_packet."""
    layers, heads = view.weights.shape[:2]
    every, words = list(np.ndindex(layers, heads)), N_("Layer {layer}, head {head}: most to {cells}")
    names = [say(words, layer=pair[0], head=pair[1], cells=_strongest_said(view, view.weights[pair])) for pair in every]
    chosen = layer * heads + head
    looker = name_of(view.query, view.class_name)
    about = {
        "mode": "heads",
        "rows": layers,
        "columns": heads,
        "chosen": chosen,
        "names": names,
        "hint": say(
            "Every head, in the colours of the large one; the strip on top is the class token. Click one to enlarge it."
        ),
        "alt": say(ALT_HEADS, layers=layers, heads=heads, looker=looker, chosen=names[chosen]),
    }
    return packed(_header(view, every, (layer, head), zmax) | about)


def weights_table(view: PixelView, heads: Sequence[tuple[int, int]]) -> FigureTable:
    """Return a table of the weight of each cell, with a column for each of these heads."""
    names = [name_of(cell, view.class_name) for cell in range(CELLS)]
    blocked = view.any_blocked()
    weights = np.stack([np.where(blocked[pair], np.nan, view.weights[pair]) for pair in heads], 1)
    looker = say("{query} is the query", query=name_of(view.query, view.class_name))
    return grid(weights, names, [head_name(*pair) for pair in heads], looker, say("blocked"))


def levels_table(levels: np.ndarray) -> FigureTable:
    """Return a table of a picture's grey levels [64]."""
    rows, columns = ([f"{side}{number}" for number in range(SIDE)] for side in "rc")
    return grid(levels.reshape(SIDE, SIDE), rows, columns, say("Grey levels, 0 to {most}", most=LEVELS - 1))


def drawing_packet(levels: np.ndarray, class_name: str, given: int, epoch: int, number: int) -> bytes:
    """Return the packet of a picture to draw on, levels [64]: its first `given` pixels are the user's, the model writes
    the others.

    epoch: a counter of drawings; number: how many changes of this drawing the page has received.
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


def strongest(weights: np.ndarray) -> list[int]:
    """Return the three cells with the largest weights [65], the largest first, without cells of weight 0."""
    order = np.argsort(-weights, kind="stable")[:3]
    return [int(cell) for cell in order if weights[cell] > 0]


def colours_of(weights: np.ndarray, zmax: float) -> list[str]:
    """Return each weight's colour: brightness grows with the square root of weight / zmax, as in all heatmaps here."""
    indices = np.rint(np.sqrt(np.clip(weights / zmax, 0, 1)) * 255).astype(int)
    return [COLOURS[index] for index in indices]


def largest(*views: PixelView) -> float:
    """Return the weight of the last colour, shared by all heads of these views, so that small and large agree."""
    return colour_range(*(view.weights for view in views))


def scale_html(zmax: float, *views: PixelView) -> str:
    """Return a key as a line of HTML: the meaning of colours, squares and, if a view has any, hatching."""
    stops = ", ".join(f"{COLOURS[round((step / 8) ** 0.5 * 255)]} {step / 8 * 100:.0f}%" for step in range(9))
    bar = (
        "display:inline-block;width:7em;height:.75em;border-radius:2px;vertical-align:-.05em;"
        f"background:linear-gradient(to right,{stops})"
    )
    parts = [say("weight") + f' 0 <span style="{bar}"></span> {zmax:.2f}', say("■ ink, larger = darker")]
    if any(view.any_blocked().any() for view in views):
        parts.append(str(swatch(MASK_COLOURS["causal"])) + say("hatched: blocked by causal"))
    spans = "\u2003".join(f'<span style="display:inline-block">{part}</span>' for part in parts)
    return f'<p class="key">{spans}</p>'


def _header(view: PixelView, heads: Iterable[tuple[int, int]], chosen: tuple[int, int], zmax: float) -> dict[str, Any]:
    """Return the header entries that all packets of attention share."""
    pictures, blocked = [], view.any_blocked()
    for head in heads:
        colours = colours_of(view.weights[head], zmax)
        shown = [None if shut else colour for colour, shut in zip(colours, blocked[head], strict=True)]
        pictures.append({"colours": shown, "classInk": ink_on(*rgb(colours[0]))})
    names = [*view.blocking(*chosen), "causal"]
    about = {"pictures": pictures, "hatch": ink(names[0]), "query": view.query}
    return _page(view.levels, blocked[chosen], view.class_name) | about


def _page(levels: Sequence[int] | np.ndarray, blocked: np.ndarray, class_name: str) -> dict[str, Any]:
    """Return the header entries that all packets share. By default: one picture, all of it given, without a query."""
    return {
        "levels": [int(level) for level in levels],
        "blocked": [bool(one) for one in blocked],
        "className": say(class_name),
        "greys": list(GREYS),
        "words": words("pixels"),
        **{"rows": 1, "columns": 1, "query": -1, "given": PIXELS, "epoch": 0, "number": 0},
    }


def _about(view: PixelView, layer: int, head: int, pixel: int) -> str:
    cell = pixel + 1
    about = {"looker": name_of(view.query, view.class_name), "looked": name_of(cell, view.class_name)}
    about |= {"level": view.levels[pixel], "weight": weight_text(view.weights[layer, head, cell])}
    if masks := view.blocking(layer, head, cell):
        words = N_("{looker} attends to {looked} (level {level}): blocked by {masks}")
        return say(words, masks=mask_names(masks), **about)
    return say("{looker} attends to {looked} (level {level}): weight {weight}", **about)


def _hint(view: PixelView, on_class: float, *, picks: bool) -> list[str]:
    """Return the sentences below one head's picture. on_class: the class token's share of the attention."""
    names = {"looker": name_of(view.query, view.class_name), "picked": name_of(view.pixel + 1, "")}
    query = say("{looker} (dashed) is the query and writes {picked} (framed).", **names)
    if names["looker"] == names["picked"]:
        query = say("{looker} (framed) is the query.", **names)
    keys = say("Click a pixel, or arrow keys and Enter.") if picks else say("Point at a pixel, or use the arrow keys.")
    return [query, say("Class token: {share} of the attention.", share=percent(on_class)), keys]


def _strongest_said(view: PixelView, weights: np.ndarray) -> str:
    text = listed(f"{name_of(cell, view.class_name)} {percent(weights[cell])}" for cell in strongest(weights))
    return text or say("nothing")


@dataclass(frozen=True, eq=False)
class GalleryCard:
    """A picture of a gallery: levels [64]; caption; good: True or False for a verdict, None without one.

    given: how many of its pixels the model was given; it wrote the others.
    """

    levels: np.ndarray
    caption: str
    good: bool | None = None
    given: int = 0


def gallery(cards: Sequence[GalleryCard], columns: int = 10) -> Markup:
    """Return pictures as HTML, `columns` in a row, with captions; a verdict is a frame and a word of the caption."""
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
    picture = tag("img", src=picture_uri(enlarged(card.levels, card.given)), alt=alt)
    return tag("figure", picture + tag("figcaption", card.caption), class_=verdict)


def enlarged(levels: np.ndarray, given: int = 0) -> np.ndarray:
    """Convert levels [64] to pixels, uint8 [80,80,3], dark on light, with a line under those that were given."""
    scale = 10
    shades = np.array([int(grey[1:3], 16) for grey in GREYS], np.uint8)[levels.reshape(SIDE, SIDE)]
    large = np.repeat(np.repeat(shades, scale, 0), scale, 1)
    pixels = np.stack([large] * 3, -1)
    if 0 < given < PIXELS:
        row, column = divmod(given, SIDE)
        line = np.array([0xCC, 0x79, 0xA7], np.uint8)
        pixels[row * scale - 1 : row * scale + 1, column * scale :] = line
        if column:
            pixels[(row + 1) * scale - 1 : (row + 1) * scale + 1, : column * scale] = line
    return pixels


def sentence(now: PixelView, standard: PixelView, layer: int, head: int, *, causal: bool, layer_only: bool) -> Markup:
    """Say what the view's query attends to in a head and what to try next, or the effect of a lifted mask. causal:
    whether the causal mask is on, which blocks nothing from the last pixel."""
    name, looker = head_name(layer, head), name_of(now.query, now.class_name)
    if causal:
        weights = now.weights[layer, head]
        cells = listed(f"{percent(float(weights[cell]))} {where(cell, now)}" for cell in strongest(weights))
        cells = cells or say("nothing")
        words = WRITES if now.query == now.pixel else N_("{head}, from {looker}: {places}.")
        looks = say(words, head=name, looker=looker, places=cells, pixel=name_of(now.pixel + 1, ""))
        rest = N_("Later pixels that are blocked: {count}. Turn Causal off to see what leaks.")
        count = int(now.any_blocked()[layer, head].sum())
        return escape(together([looks, *([say(rest, count=count)] if count else [])]))
    leak = N_("Without the causal mask, {share} of {head}'s attention from {looker} goes to later pixels.")
    parts = [say(leak, share=percent(float(now.leak[layer, head])), head=name, looker=looker)]
    parts = parts if now.query < PIXELS else []  # the last cell has no later one
    if layer_only:
        return escape(together([*parts, say(LAYER_ONLY)]))
    true = now.levels[now.pixel]
    chances = {"now": chance(float(now.chances[true])), "standard": chance(float(standard.chances[true]))}
    here = N_("The true level of {pixel} has a probability of {now}, {standard} under the standard masks.")
    loss, before = now.losses.mean(), standard.losses.mean()
    parts.append(say(LOSS if loss > before else LOSS_FALLS, now=loss, standard=before))
    return escape(together([*parts, say(here, pixel=name_of(now.pixel + 1, ""), **chances)]))


def where(cell: int, view: PixelView) -> str:
    """Describe a cell's position relative to the selected pixel: "on r2 c4, straight above"."""
    if cell == 0:
        return say("on the class token")
    picked = view.pixel + 1
    if cell == picked:
        return say("on itself")
    rows, columns = ((picked - 1) // SIDE - (cell - 1) // SIDE, (picked - 1) % SIDE - (cell - 1) % SIDE)
    next_one = N_("on {cell}, straight above the pixel that comes next")
    directions = {
        (1, 0): N_("on {cell}, straight above"),
        (0, 1): N_("on {cell}, to its left"),
        (2, 0): N_("on {cell}, two above"),
        (0, 2): N_("on {cell}, two to its left"),
        (1, 1): N_("on {cell}, above to the left"),
        (1, -1): next_one if view.query == picked else N_("on {cell}, above to the right"),
    }
    name = name_of(cell, "")
    return say(directions[rows, columns], cell=name) if (rows, columns) in directions else say("on {cell}", cell=name)


def level_table(now: np.ndarray, standard: np.ndarray, true: int, what: str, *, changed: bool) -> Markup:
    """Return a table of the probability of a pixel's grey levels [8], the true one marked; one list unless `changed`.

    what: the table's title, which names the pixel.
    """
    both = [(say("now"), now, NOW), (say("standard"), standard, STANDARD)]
    lists = both if changed else [(say("expected"), standard, STANDARD)]
    rows = [[th(what), *(th(name, colspan=2) for name, _, _ in lists)]]
    for level in range(LEVELS):
        name = tag("b", say("{level} ← true", level=true)) if level == true else str(level)
        square = tag("span", class_="swatch", style=f"background:{GREYS[level]};border:1px solid #888")
        bars = [cell for _, some, colour in lists for cell in _bar(float(some[level]), colour)]
        rows.append([td(join((square, name)), "token"), *bars])
    return table(rows, "numbers levels")  # not shown


def loss_figure(now: np.ndarray, standard: np.ndarray, levels: Sequence[int], *, changed: bool) -> CachedFigure:
    """Draw the loss of each pixel in nats [64]: one heatmap, or now and standard side by side on the same colours.

    levels: the grey level of each pixel.
    """
    shown = [(say("now"), now), (say("standard masks"), standard)] if changed else [("", standard)]
    domains: list[list[float]] = [[0, 0.48], [0.52, 1]] if changed else [[0, 1]]
    hover = say("<b>r%{y} c%{x}</b>: level %{customdata}<br>loss %{z:.2f} nats")
    common = {
        "customdata": np.reshape(levels, (SIDE, SIDE)),
        "colorscale": SEQUENTIAL_SCALE,
        "colorbar": colour_bar(say("loss, nats")),
        **{"zmin": 0, "zmax": max(float(values.max()) for _, values in shown), "xgap": 1, "ygap": 1},
    }
    coordinates = list(range(SIDE))
    bare = {"showgrid": False, "zeroline": False, "showticklabels": False, "ticks": "", "constrain": "domain"}
    traces: list[Part] = []
    notes: list[Part] = []
    layout: Part = {"height": 250, "margin": MARGIN | {"t": 28}, "annotations": notes}
    for (name, values), domain, axis in zip(shown, domains, ("", "2"), strict=False):
        x, y = "x" + axis, "y" + axis
        loss = heat(values.reshape(SIDE, SIDE), coordinates, coordinates, name or say("standard"), hover, axis)
        traces.append(loss | common | {"showscale": not axis})
        layout |= {
            f"xaxis{axis}": bare | {"domain": domain, "anchor": y},
            f"yaxis{axis}": bare | {"autorange": "reversed", "scaleanchor": x, "anchor": x},
        }
        notes += [title(f"<b>{name}</b>", domain[0], 1)] if name else []
    return figure(traces, layout)


def class_table(chances: np.ndarray, given: int) -> Markup:
    """Return a table of each class's probability [10] given the drawing, as bars. given: the given class, marked."""
    rows = [[th(say("class")), th(say("probability, given the drawing"), colspan=2)]]
    for digit, share in enumerate(chances.tolist()):
        name = tag("b", say("{digit} ← given", digit=given)) if digit == given else digit
        rows.append([td(name, "token"), *_bar(share, STANDARD)])
    return table(rows, "numbers classes")  # not shown


def _bar(share: float, colour: str) -> list[Markup]:
    return [td(chance(share), "number"), track(share, colour)]
