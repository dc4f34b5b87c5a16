"""What the digits model expects of a picture, in numbers: HTML tables, and the loss of every pixel as a figure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from i18n import N_, say, say_count, together
from model.pixels.view import PixelView
from viz.charts import MARGIN, heat
from viz.heatmap import CachedFigure, Part, colour_bar, figure, title
from viz.html import join, table, tag, td, th, track
from viz.numbers import chance, percent
from viz.palette import NOW, SEQUENTIAL_SCALE, STANDARD
from viz.pixels.pictures import CELLS, GREYS, LEVELS, SIDE, name_of, strongest

SAME = 0.005  # nats a pixel; a smaller change of the loss is called none
LOSS = {
    "rises": N_("Over the image the loss rises from {standard:.3f} to {now:.3f} nats/pixel: in training it never saw "
                "later pixels, and it <b>does not read the answer</b> from them."),
    "falls": N_("Over the image the loss falls from {standard:.3f} to {now:.3f} nats/pixel: <b>later pixels help "
                "it</b>."),
    "stays": N_("Over the image the loss hardly changes, from {standard:.3f} to {now:.3f} nats/pixel."),
}  # fmt: skip
HERE = {
    "same": N_("The true level of {pixel} has a probability of {now}, as before."),
    "other": N_("The true level of {pixel} has a probability of {now} instead of {standard}."),
}
LAYER_ONLY = N_(
    "Only this layer’s weights are recomputed, from the standard run’s queries and keys; predictions do not change."
)


@dataclass(frozen=True, eq=False)
class Seen:
    """Shares and probabilities 0 to 1; pairs are (now, standard). weights [65]: the head's, from the view's query.

    leak: what of them is on later cells. chance: of the pixel's true level. loss: over the image, nats a pixel.
    """

    name: str
    view: PixelView
    weights: np.ndarray
    leak: float
    chance: tuple[float, float]
    loss: tuple[float, float]
    layer_only: bool


def sentence(seen: Seen) -> Markup:
    """What is seen, and what to try next."""
    view = seen.view
    if view.blocked.any() or view.query == CELLS - 1:
        return _looks(seen)
    about = {"share": percent(seen.leak), "head": seen.name, "looker": name_of(view.query, view.class_name)}
    leak = say("Without the causal mask, {share} of {head}’s attention from {looker} goes to later pixels.", **about)
    if seen.layer_only:
        return escape(together([leak, say(LAYER_ONLY)]))
    return Markup(together([escape(leak), _answer(seen)]))


def _looks(seen: Seen) -> Markup:
    view, after = seen.view, int(seen.view.blocked.sum())
    looker, picked = name_of(view.query, view.class_name), name_of(view.pixel + 1, "")
    shares = (f"{percent(float(seen.weights[cell]))} {where(cell, view)}" for cell in strongest(seen.weights))
    about = {"head": seen.name, "looker": looker, "picked": picked, "places": say(", ").join(shares)}
    looks = (
        say("{head}, from {looker}: {places}.", **about)
        if looker == picked
        else say("{head}, writing {picked} from {looker}: {places}.", **about)
    )
    rest = (
        say_count(
            "The {count} later pixel is blocked. Switch <b>Causal</b> off to see what leaks.",
            "The {count} later pixels are blocked. Switch <b>Causal</b> off to see what leaks.",
            after,
        )
        if after
        else say("Nothing comes after it, so nothing is blocked. Pick a pixel further up to see the mask.")
    )
    return Markup(together([escape(looks), rest]))


def _answer(seen: Seen) -> Markup:
    now, standard = seen.loss
    change = "rises" if now > standard + SAME else "falls" if now < standard - SAME else "stays"
    chances = {"now": chance(seen.chance[0]), "standard": chance(seen.chance[1])}
    here = HERE["same" if chances["now"] == chances["standard"] else "other"]
    pixel = name_of(seen.view.pixel + 1, "")
    loss = say(LOSS[change], now=now, standard=standard)
    return Markup(together([loss, escape(say(here, pixel=pixel, **chances))]))


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


def share_table(rows: Sequence[tuple[str, str, str]], *, changed: bool) -> Markup:
    """(what, now, standard) a row; the standard column only where something is changed."""
    heads = (say("now"), say("standard")) if changed else ("",)
    title = [th(say("measured")), *(th(head, "number") for head in heads)]
    body = [[td(what), *(td(value, "number") for value in values[: len(heads)])] for what, *values in rows]
    return table([title, *body], "numbers shares")  # not shown


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
