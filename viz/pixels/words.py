"""One sentence about the pixel on screen: where a head looks from it, and what a lifted mask does."""

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from i18n import N_, say, say_count, together
from viz.numbers import chance, percent
from viz.pixels.pictures import CELLS, SIDE, PixelView, name_of, strongest

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
            "Only this layer’s weights are redone, from the standard run’s queries and keys; predictions stay."
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
            "Over the image the loss rises from {standard:.3f} to {now:.3f} nats a pixel: it was trained never to see "
            "later pixels, and <b>does not read the answer</b> from them.", standard=standard, now=now,
        )  # fmt: skip
    elif now < standard - SAME:
        change = say(
            "Over the image the loss falls from {standard:.3f} to {now:.3f} nats a pixel: "
            "<b>later pixels help it</b>.", standard=standard, now=now,
        )  # fmt: skip
    else:
        change = say(
            "Over the image the loss hardly changes, from {standard:.3f} to {now:.3f} nats a pixel.",
            standard=standard, now=now,
        )  # fmt: skip
    return Markup(together([change, escape(here)]))


def _here(pixel: str, now: str, standard: str) -> str:
    if now == standard:
        return say("The true level of {pixel} is expected with {now}, as before.", pixel=pixel, now=now)
    return say(
        "The true level of {pixel} is expected with {now} instead of {standard}.",
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
