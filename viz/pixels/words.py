"""One sentence about the pixel on screen: where a head looks from it, and what a lifted mask does."""

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

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
    leak = (
        f"Without the causal mask, {percent(seen.leak)} of {seen.name}’s attention from {looker} goes to later pixels."
    )
    if seen.layer_only:
        redone = "Only this layer’s weights are redone, from the standard run’s queries and keys; predictions stay."
        return escape(f"{leak} {redone}")
    return Markup("{} {}").format(leak, _answer(seen))


def _looks(seen: Seen) -> Markup:
    """Where a head looks under the mask, and what the mask takes from it."""
    view, after = seen.view, int(seen.view.blocked.sum())
    looker, picked = name_of(view.query, view.class_name), name_of(view.pixel + 1, "")
    who = f"from {looker}" if looker == picked else f"writing {picked} from {looker}"
    places = ", ".join(f"{percent(float(seen.weights[cell]))} {where(cell, view)}" for cell in strongest(seen.weights))
    rest = Markup("Nothing comes after it, so nothing is blocked. Pick a pixel further up to see the mask.")
    if after:
        later = "later pixel is" if after == 1 else "later pixels are"
        rest = Markup("The {} {} blocked. Switch <b>Causal</b> off to see what leaks.").format(after, later)
    return Markup("{}, {}: {}. {}").format(seen.name, who, places, rest)


def _answer(seen: Seen) -> Markup:
    """What a lifted mask does to the predictions: of the whole image, and of the pixel picked."""
    pixel = name_of(seen.view.pixel + 1, "")
    now, standard = seen.loss
    change = f"from {standard:.3f} to {now:.3f} nats a pixel"
    here = _here(pixel, *map(chance, seen.chance))
    if now > standard + SAME:
        why = "it was trained never to see later pixels, and <b>does not read the answer</b> from them"
        return Markup("Over the image the loss rises {}: {}. {}").format(change, Markup(why), here)
    if now < standard - SAME:
        return Markup("Over the image the loss falls {}: <b>later pixels help it</b>. {}").format(change, here)
    return Markup("Over the image the loss hardly changes, {}. {}").format(change, here)


def _here(pixel: str, now: str, standard: str) -> str:
    true = f"The true level of {pixel} is expected with {now}"
    return f"{true}, as before." if now == standard else f"{true} instead of {standard}."


def where(cell: int, view: PixelView) -> str:
    """A cell as seen from the pixel picked: "on r2 c4, straight above"."""
    if cell == 0:
        return "on the class token"
    picked = view.pixel + 1
    if cell == picked:
        return "on itself"
    here = f"on {name_of(cell, '')}"
    rows, columns = ((picked - 1) // SIDE - (cell - 1) // SIDE, (picked - 1) % SIDE - (cell - 1) % SIDE)
    beside = {
        (1, 0): "straight above",
        (0, 1): "to its left",
        (2, 0): "two above",
        (0, 2): "two to its left",
        (1, 1): "above to the left",
        (1, -1): "straight above the pixel that comes next" if view.query == picked else "above to the right",
    }
    return f"{here}, {beside[rows, columns]}" if (rows, columns) in beside else here
