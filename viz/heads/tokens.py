"""Packets for the browser: a text whose tokens are coloured by how much another attends to them (components/tokens.js);
and two columns of tokens with lines between them, for one head or several (components/arcs.js)."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from i18n import N_, say
from model.heads.view import HeadView
from viz.components import words
from viz.heads.cells import around, cells_packet
from viz.numbers import number, percent
from viz.palette import NOW

MAX_TOKENS = 128  # of each text: up to this length the heatmap shows single cells
FAINT = 0.1  # the colour of a smaller weight is too faint to be visible
tokens_part = partial(around, most=MAX_TOKENS)  # the part of a whole view around the query
MAX_ARC_TOKENS = 64  # of each text: lines between more tokens would look like a grey area
COLOURS = (NOW, "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # the chosen head's, then Okabe and Ito's
MAX_HEADS = len(COLOURS)
MIN_LINE, SMALLEST_LINE = 0.1, 0.0001  # the smallest weight with a line: by default, and as the lowest setting
arcs_part = partial(around, most=MAX_ARC_TOKENS)


def tokens_packet(
    view: HeadView,
    *,
    name: str,
    query: int,
    among: tuple[int, int],
    pins: Sequence[int] = (),
    towards: str = "at",
    across: bool = False,
    choices: Mapping[str, bool | float | None] | None = None,
) -> bytes:
    """Return a head's packet for tokens.js. query, pins: positions in the whole text. among: the positions that the
    arrow keys can move the query to, as the first and the one after the last.

    towards: "at": a token's colour is the weight with which the hovered token attends to it; "by": with which it
    attends to the hovered token. across: whether the keys are another text. choices: "values", whether each token's
    weight is written beside it, if the page stores that setting; otherwise the component does.
    """
    header = {"name": name, "query": query, "among": among, "pins": list(pins), "towards": towards, "across": across}
    header |= {"brightest": brightest(view), "words": words("cells", "tokens")}
    return cells_packet([view], header | dict(choices or {}))


def brightest(view: HeadView) -> float:
    """Return the weight of the strongest colour: 1, or the largest one shown if attention is spread over so many tokens
    that all colours would be invisible."""
    largest = float(view.weights.max(initial=0.0))
    return largest if 0 < largest < FAINT else 1.0


def colour_scale_sentence(view: HeadView) -> str:
    """Say that the largest weight has the colour of 1, if it does; otherwise ""."""
    most = brightest(view)
    if most == 1:
        return ""
    return say("Colours are scaled: the largest weight shown, {weight}, looks like a weight of 1.", weight=number(most))


def left_out(whole: HeadView, part: HeadView, query: int) -> str:
    """Say which tokens are shown, and how much of the query's weight is on others; "" if all are shown."""
    rows, columns = part.weights.shape
    if (rows, columns) == whole.weights.shape:
        return ""
    shown = {"first": part.first_key, "last": part.first_key + columns - 1, "count": whole.weights.shape[1]}
    if not part.first <= query < part.first + rows:
        words = N_("Tokens {first}–{last} of {count:,} are shown; the query, {query}, is not among them.")
        return say(words, query=query, **shown)
    keys = slice(part.first_key, part.first_key + columns)
    row = whole.weights[query].astype(np.float64)
    beyond = float(np.delete(row, keys).sum() / (row.sum() or 1))  # the sum is not 1 for several queries or a sink
    words = N_("Tokens {first}–{last} of {count:,} are shown; {share} of the query's weight lies outside.")
    return say(words, share=percent(beyond), **shown)


def least_line(view: HeadView) -> float:
    """Return the smallest weight with a line by default: MIN_LINE, or less if attention is spread so widely that there
    would be fewer lines than half the number of queries."""
    largest = np.sort(view.weights, axis=None)[::-1][: len(view.queries) // 2 + 1]
    enough = float(min(largest[largest > 0], default=MIN_LINE))
    if enough >= MIN_LINE:
        return MIN_LINE
    digit = 10.0 ** math.floor(math.log10(enough))
    return max(round(math.floor(enough / digit) * digit, 4), SMALLEST_LINE)


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
    """Return the packet for arcs.js of heads over the same part of a text, the chosen one first. query: a position in
    the whole text; among: the positions that the arrow keys can move it to, as the first and the one after the last.
    first_token: the key that can be hidden. across: whether the keys are another text. choices: "least", the smallest
    weight with a line, None for least_line, and "hide_first", if the page stores them; otherwise the component does.
    """
    header = {
        "name": names[0],
        "names": list(names),
        "suggested": least_line(views[0]),
        "colours": list(COLOURS[: len(views)]),
        "query": query,
        "among": among,
        "firstToken": first_token,
        "across": across,
        "words": words("cells", "arcs"),
    }
    return cells_packet(views, header | dict(choices or {}))
