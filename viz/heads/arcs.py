"""Tokens on both sides and lines between them, of one head or several, as bytes for components/arcs.js."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from model.heads.view import HeadView
from viz.components import words
from viz.heads.cells import around, cells_packet
from viz.palette import NOW

MOST_TOKENS = 64  # of each text: more lines would be a grey area
COLOURS = (NOW, "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito's, after the chosen head's
MOST_HEADS = len(COLOURS)
LEAST, LEAST_EVER = 0.1, 0.0001  # the smallest weight that gets a line at first; and of four digits


shown = partial(around, most=MOST_TOKENS)  # what of a whole view is shown: the query and what stands around it


def least(view: HeadView) -> float:
    """The weight from which on lines are drawn at first: LEAST, or what leaves a line for every second query where
    attention is spread over too many tokens for that."""
    largest = np.sort(view.weights, axis=None)[::-1][: len(view.queries) // 2 + 1]
    enough = float(min(largest[largest > 0], default=LEAST))
    if enough >= LEAST:
        return LEAST
    digit = 10.0 ** math.floor(math.log10(enough))
    return max(round(math.floor(enough / digit) * digit, 4), LEAST_EVER)


def arcs_packet(
    views: Sequence[HeadView],
    names: Sequence[str],
    *,
    query: int,
    among: tuple[int, int],
    first_token: int,
    across: bool = False,
    choices: Mapping[str, bool | float | None] | None = None,
) -> bytes:
    """Heads over the same part of a text, the chosen one first, by their names. query: a position in the whole text;
    among: those that keys move it to, from one up to, without, another. first_token: of the keys, the one that can be
    hidden. across: the keys are another text. choices: "least", the smallest weight that has a line, or None for one
    that suits the head, and "hide_first", where the page remembers them; else the view does.
    """
    header = {
        "name": names[0],
        "names": list(names),
        "suggested": least(views[0]),
        "colours": list(COLOURS[: len(views)]),
        "query": query,
        "among": among,
        "firstToken": first_token,
        "across": across,
        "words": words("cells", "arcs"),
    }
    return cells_packet(views, header | dict(choices or {}))
