"""As bytes for the browser: the text itself, each token lit by how much another looks at it (components/tokens.js);
tokens on both sides and lines between them, of one head or several (components/arcs.js)."""

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

MOST_TOKENS = 128  # of each text: as many as the heatmap gives a cell each
FAINT = 0.1  # a largest weight below it would be lit too weakly to be seen
tokens_part = partial(around, most=MOST_TOKENS)  # of a whole view: the query and what stands around it
MOST_ARC_TOKENS = 64  # of each text: more lines would be a grey area
COLOURS = (NOW, "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito's, after the chosen head's
MOST_HEADS = len(COLOURS)
LEAST, LEAST_EVER = 0.1, 0.0001  # the smallest weight that gets a line at first; and of four digits
arcs_part = partial(around, most=MOST_ARC_TOKENS)


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
    """The head of this name. query, pins: positions in the whole text. among: those that keys move the query to, from
    one up to, without, another.

    towards: "at", each token is lit by how much the one pointed at looks at it, or "by", by how much it looks at the
    one pointed at. across: the keys are another text. choices: "values", whether each token's weight is written beside
    it, where the page remembers that; else the view does.
    """
    header = {"name": name, "query": query, "among": among, "pins": list(pins), "towards": towards, "across": across}
    header |= {"brightest": brightest(view), "words": words("cells", "tokens")}
    return cells_packet([view], header | dict(choices or {}))


def brightest(view: HeadView) -> float:
    """The weight with the strongest light: 1, or the largest that is shown, where attention is spread over so many
    tokens that this would not be seen."""
    largest = float(view.weights.max(initial=0.0))
    return largest if 0 < largest < FAINT else 1.0


def light_words(view: HeadView) -> str:
    """In a sentence, where 1 is not the brightest; "" else."""
    most = brightest(view)
    if most == 1:
        return ""
    return say("Colours are scaled: the largest weight shown, {weight}, looks like a weight of 1.", weight=number(most))


def left_out(whole: HeadView, part: HeadView, query: int) -> str:
    """In a sentence: what of the whole is not shown, and how much of the query's weight goes there; "" where nothing
    is."""
    rows, columns = part.weights.shape
    if (rows, columns) == whole.weights.shape:
        return ""
    shown = {"first": part.first_key, "last": part.first_key + columns - 1, "count": whole.weights.shape[1]}
    if not part.first <= query < part.first + rows:
        words = N_("Tokens {first}–{last} of {count:,} are shown; the query, {query}, is not among them.")
        return say(words, query=query, **shown)
    keys = slice(part.first_key, part.first_key + columns)
    row = whole.weights[query].astype(np.float64)
    beyond = float(np.delete(row, keys).sum() / (row.sum() or 1))  # of several queries, or beside a sink
    words = N_("Tokens {first}–{last} of {count:,} are shown; {share} of the query's weight lies outside.")
    return say(words, share=percent(beyond), **shown)


def least_line(view: HeadView) -> float:
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
        "suggested": least_line(views[0]),
        "colours": list(COLOURS[: len(views)]),
        "query": query,
        "among": among,
        "firstToken": first_token,
        "across": across,
        "words": words("cells", "arcs"),
    }
    return cells_packet(views, header | dict(choices or {}))
