"""What the digits model expects of a picture, in numbers: HTML tables, and the loss of every pixel as a figure."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup, escape

from i18n import N_, listed, say, together
from model.heads.view import head_name
from model.pixels.view import PixelView
from viz.charts import MARGIN, heat
from viz.heatmap import CachedFigure, Part, colour_bar, figure, title
from viz.html import join, table, tag, td, th, track
from viz.numbers import chance, percent
from viz.palette import NOW, SEQUENTIAL_SCALE, STANDARD
from viz.pixels.pictures import CELLS, GREYS, LEVELS, SIDE, name_of, strongest

LOSS = N_(
    "Over the image the loss goes from {standard:.3f} to {now:.3f} nats/pixel: in training it never saw later pixels."
)
LAYER_ONLY = N_(
    "Only this layer’s weights are recomputed, from the standard run’s queries and keys; predictions do not change."
)


def sentence(now: PixelView, standard: PixelView, layer: int, head: int, *, layer_only: bool) -> Markup:
    """What a head looks at from the view's query, and what a lifted mask makes of it, or what to try next."""
    name, looker = head_name(layer, head), name_of(now.query, now.class_name)
    if now.blocked.any() or now.query == CELLS - 1:
        weights = now.weights[layer, head]
        places = listed(f"{percent(float(weights[cell]))} {where(cell, now)}" for cell in strongest(weights))
        looks = say("{head}, from {looker}: {places}.", head=name, looker=looker, places=places)
        rest = say(
            "Later pixels that are blocked: {count}. Switch Causal off to see what leaks.", count=now.blocked.sum()
        )
        return escape(together([looks, rest]))
    leak = N_("Without the causal mask, {share} of {head}’s attention from {looker} goes to later pixels.")
    said = [say(leak, share=percent(float(now.leak[layer, head])), head=name, looker=looker)]
    if layer_only:
        return escape(together([*said, say(LAYER_ONLY)]))
    true = now.levels[now.pixel]
    chances = {"now": chance(float(now.chances[true])), "standard": chance(float(standard.chances[true]))}
    here = N_("The true level of {pixel} has a probability of {now}, {standard} under the standard masks.")
    said.append(say(LOSS, now=now.losses.mean(), standard=standard.losses.mean()))
    return escape(together([*said, say(here, pixel=name_of(now.pixel + 1, ""), **chances)]))


def where(cell: int, view: PixelView) -> str:
    """A cell as seen from the pixel picked: "on r2 c4, straight above"."""
    if cell == 0:
        return say("on the class token")
    picked = view.pixel + 1
    if cell == picked:
        return say("on itself")
    rows, columns = ((picked - 1) // SIDE - (cell - 1) // SIDE, (picked - 1) % SIDE - (cell - 1) % SIDE)
    next_one = N_("on {cell}, straight above the pixel that comes next")
    beside = {
        (1, 0): N_("on {cell}, straight above"),
        (0, 1): N_("on {cell}, to its left"),
        (2, 0): N_("on {cell}, two above"),
        (0, 2): N_("on {cell}, two to its left"),
        (1, 1): N_("on {cell}, above to the left"),
        (1, -1): next_one if view.query == picked else N_("on {cell}, above to the right"),
    }
    name = name_of(cell, "")
    return say(beside[rows, columns], cell=name) if (rows, columns) in beside else say("on {cell}", cell=name)


def level_table(now: np.ndarray, standard: np.ndarray, true: int, what: str, *, changed: bool) -> Markup:
    """How likely the model finds each grey level [8] of a pixel, the true one marked; one list unless changed.

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
    """Nats a pixel [64] on the picture: one heatmap, or now and standard side by side on the same colours.

    levels: of each pixel.
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
    places = list(range(SIDE))
    bare = {"showgrid": False, "zeroline": False, "showticklabels": False, "ticks": "", "constrain": "domain"}
    traces: list[Part] = []
    notes: list[Part] = []
    layout: Part = {"height": 250, "margin": MARGIN | {"t": 28}, "annotations": notes}
    for (name, values), domain, place in zip(shown, domains, ("", "2"), strict=False):
        x, y = "x" + place, "y" + place
        loss = heat(values.reshape(SIDE, SIDE), places, places, name or say("standard"), hover, place)
        traces.append(loss | common | {"showscale": not place})
        layout |= {
            f"xaxis{place}": bare | {"domain": domain, "anchor": y},
            f"yaxis{place}": bare | {"autorange": "reversed", "scaleanchor": x, "anchor": x},
        }
        notes += [title(f"<b>{name}</b>", domain[0], 1)] if name else []
    return figure(traces, layout)


def class_table(chances: np.ndarray, told: int) -> Markup:
    """How likely each class [10] is for what is drawn, as bars; the one told to the model is marked."""
    rows = [[th(say("class")), th(say("probability, given the drawing"), colspan=2)]]
    for digit, share in enumerate(chances.tolist()):
        name = tag("b", say("{digit} ← given", digit=told)) if digit == told else digit
        rows.append([td(name, "token"), *_bar(share, STANDARD)])
    return table(rows, "numbers classes")  # not shown


def _bar(share: float, colour: str) -> list[Markup]:
    return [td(chance(share), "number"), track(share, colour)]
