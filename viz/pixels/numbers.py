"""What the digits model expects of a picture, in numbers: HTML tables, and the loss of every pixel as a figure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from markupsafe import Markup, escape

from i18n import N_, say, say_count, together
from model.pixels.view import PixelView
from viz.heatmap import CachedFigure, colour_bar, finished
from viz.numbers import chance, percent
from viz.palette import NOW, STANDARD, sequential
from viz.pixels.pictures import CELLS, GREYS, LEVELS, SIDE, name_of, strongest

SAME = 0.005  # nats a pixel; a smaller change of the loss is called none


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
    looker = name_of(view.query, view.class_name)
    leak = say(
        "Without the causal mask, {share} of {head}’s attention from {looker} goes to later pixels.",
        share=percent(seen.leak), head=seen.name, looker=looker,
    )  # fmt: skip
    if seen.layer_only:
        redone = say(
            "Only this layer’s weights are recomputed, from the standard run’s queries and keys; predictions do not "
            "change."
        )
        return escape(together([leak, redone]))
    return Markup(together([escape(leak), _answer(seen)]))


def _looks(seen: Seen) -> Markup:
    """Where a head looks under the mask, and what the mask takes from it."""
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
    """What a lifted mask does to the predictions: of the whole image, and of the pixel picked."""
    pixel = name_of(seen.view.pixel + 1, "")
    now, standard = seen.loss
    here = _here(pixel, *map(chance, seen.chance))
    if now > standard + SAME:
        change = say(
            "Over the image the loss rises from {standard:.3f} to {now:.3f} nats/pixel: in training it never saw "
            "later pixels, and it <b>does not read the answer</b> from them.", standard=standard, now=now,
        )  # fmt: skip
    elif now < standard - SAME:
        change = say(
            "Over the image the loss falls from "
            "{standard:.3f} to {now:.3f} nats/pixel: <b>later pixels help it</b>.", standard=standard, now=now,
        )  # fmt: skip
    else:
        change = say(
            "Over the image the loss hardly changes, from {standard:.3f} to {now:.3f} nats/pixel.",
            standard=standard, now=now,
        )  # fmt: skip
    return Markup(together([change, escape(here)]))


def _here(pixel: str, now: str, standard: str) -> str:
    if now == standard:
        return say("The true level of {pixel} has a probability of {now}, as before.", pixel=pixel, now=now)
    return say(
        "The true level of {pixel} has a probability of {now} instead of {standard}.",
        pixel=pixel, now=now, standard=standard,
    )  # fmt: skip


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
    head = Markup().join(Markup('<th colspan="2">{}</th>').format(name) for name, _, _ in lists)
    swatch = Markup('<span class="swatch" style="background:{};border:1px solid #888"></span>')
    marked = Markup("<b>{}</b>").format(say("{level} ← true", level=true))
    names = [marked if level == true else str(level) for level in range(LEVELS)]
    rows = Markup().join(
        Markup('<tr><td class="token">{}{}</td>{}</tr>').format(
            swatch.format(GREYS[level]),
            names[level],
            Markup().join(_bar(float(some[level]), colour) for _, some, colour in lists),
        )
        for level in range(LEVELS)
    )
    return Markup('<table class="numbers levels"><tr><th>{}</th>{}</tr>{}</table>').format(what, head, rows)


def share_table(rows: Sequence[tuple[str, str, str]], *, changed: bool) -> Markup:
    """(what, now, standard) a row; the standard column only where something is changed."""
    heads = (say("now"), say("standard")) if changed else ("",)
    title = Markup().join(Markup('<th class="number">{}</th>').format(head) for head in heads)
    body = Markup().join(
        Markup("<tr><td>{}</td>{}</tr>").format(
            what, Markup().join(Markup('<td class="number">{}</td>').format(value) for value in values[: len(heads)])
        )
        for what, *values in rows
    )
    table = Markup('<table class="numbers shares"><tr><th>{}</th>{}</tr>{}</table>')
    return table.format(say("measured"), title, body)


def loss_figure(now: np.ndarray, standard: np.ndarray, levels: Sequence[int], *, changed: bool) -> CachedFigure:
    """Nats a pixel [64] on the picture: one heatmap, or now and standard side by side on the same colours.

    levels: of each pixel.
    """
    shown = [(say("now"), now), (say("standard masks"), standard)] if changed else [("", standard)]
    most = max(float(values.max()) for _, values in shown)
    hover = say("<b>r%{y} c%{x}</b>: level %{customdata}<br>loss %{z:.2f} nats")
    figure = go.Figure(layout={"height": 250, "margin": {"l": 8, "r": 8, "t": 28, "b": 8}})
    for place, (name, values) in enumerate(shown):
        axis = "" if place == 0 else "2"
        figure.add_heatmap(
            z=values.reshape(SIDE, SIDE).astype(np.float32),
            customdata=np.reshape(levels, (SIDE, SIDE)),
            xaxis="x" + axis,
            yaxis="y" + axis,
            zmin=0,
            zmax=most,
            colorscale=sequential(),
            showscale=place == 0,
            colorbar=colour_bar(say("loss, nats")),
            name=name or say("standard"),
            xgap=1,
            ygap=1,
            hovertemplate=hover + "<extra></extra>",
        )
        span = [0, 1] if not changed else [[0, 0.48], [0.52, 1]][place]
        bare = {"showgrid": False, "zeroline": False, "showticklabels": False, "ticks": "", "constrain": "domain"}
        figure.update_layout(
            {
                "xaxis" + axis: bare | {"domain": span, "anchor": "y" + axis},
                "yaxis" + axis: bare | {"autorange": "reversed", "scaleanchor": "x" + axis, "anchor": "x" + axis},
            }
        )
        if name:
            figure.add_annotation(
                text=f"<b>{name}</b>", xref="paper", yref="paper", x=span[0], y=1, xanchor="left", yanchor="bottom",
                showarrow=False,
            )  # fmt: skip
    return finished(figure)


def class_table(chances: np.ndarray, told: int) -> Markup:
    """How likely each class [10] is for what is drawn, as bars; the one told to the model is marked."""
    marked = Markup("<b>{}</b>").format(say("{digit} ← given", digit=told))
    names = [marked if one == told else str(one) for one in range(len(chances))]
    rows = Markup().join(
        Markup('<tr><td class="token">{}</td>{}</tr>').format(name, _bar(float(share), STANDARD))
        for name, share in zip(names, chances, strict=True)
    )
    head = Markup('<tr><th>{}</th><th colspan="2">{}</th></tr>').format(
        say("class"), say("probability, given the drawing")
    )
    return Markup('<table class="numbers classes">{}{}</table>').format(head, rows)


def _bar(share: float, colour: str) -> Markup:
    """A share, 0 to 1, as two cells: in words, and as a bar."""
    return Markup(
        '<td class="number">{}</td><td class="track"><div class="bar" style="width:{:.1f}%;background:{}"></div></td>'
    ).format(chance(share), share * 100, colour)
