"""One sentence about the pixel on screen: where a head looks from it, and what a lifted mask does."""

from dataclasses import dataclass

import numpy as np

from viz.numbers import percent
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


def sentence(seen: Seen) -> str:
    """What is seen, and what to try next."""
    view = seen.view
    looker, picked = name_of(view.query, view.class_name), name_of(view.pixel + 1, "")
    if view.blocked.any() or view.query == CELLS - 1:
        places = ", ".join(
            f"{percent(float(seen.weights[cell]))} {where(cell, view)}" for cell in strongest(seen.weights)
        )
        after = int(view.blocked.sum())
        rest = (
            f"The {after} later {'pixel is' if after == 1 else 'pixels are'} blocked. "
            "Switch <b>Causal</b> off to see what leaks."
            if after
            else "Nothing comes after it, so nothing is blocked. Pick a pixel further up to see the mask."
        )
        who = f"from {looker}" if looker == picked else f"writing {picked} from {looker}"
        return f"{seen.name}, {who}: {places}. {rest}"
    leak = (
        f"Without the causal mask, {percent(seen.leak)} of {seen.name}’s attention from {looker} goes to later pixels."
    )
    if seen.layer_only:
        return (
            f"{leak} Only this layer’s weights are redone, from the standard run’s queries and keys; predictions stay."
        )
    return f"{leak} {_answer(seen)}"


def _answer(seen: Seen) -> str:
    """Whether the model reads the answer that it now may see, by the loss over the whole image."""
    pixel = name_of(seen.view.pixel + 1, "")
    now, standard = seen.loss
    change = f"from {standard:.3f} to {now:.3f} nats a pixel"
    true = f"the true level of {pixel} is expected with {percent(seen.chance[0])} instead of {percent(seen.chance[1])}"
    if now > standard + SAME:
        why = "it was trained never to see later pixels, so they disturb it: <b>it does not read the answer</b>"
        return f"Over the image the loss rises {change}: {why}. Here {true}."
    if now < standard - SAME:
        return f"Over the image the loss falls {change}: <b>the model reads the answer</b>. Here {true}."
    return f"Over the image the loss hardly changes, {change}; {true}."


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
