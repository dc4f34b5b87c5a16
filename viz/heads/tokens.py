"""The text itself, each token lit by how much another looks at it, as bytes for components/tokens.js."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from i18n import say
from model.heads.view import HeadView
from viz.components import words
from viz.heads.cells import around, cells_packet
from viz.numbers import number, percent

MOST_TOKENS = 128  # of each text: as many as the heatmap gives a cell each
FAINT = 0.1  # a largest weight below it would be lit too weakly to be seen


shown = partial(around, most=MOST_TOKENS)  # what of a whole view is shown: the query and what stands around it


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
    return cells_packet(
        [view], header | dict(choices or {}) | {"brightest": brightest(view), "words": words("cells", "tokens")}
    )


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
        return say(
            "Tokens {first}–{last} of {count:,} are shown; the query, {query}, is not among them.", query=query, **shown
        )
    keys = slice(part.first_key, part.first_key + columns)
    beyond = float(np.delete(whole.weights[query], keys).sum(dtype=np.float64))
    return say(
        "Tokens {first}–{last} of {count:,} are shown; {share} of the query's weight lies outside.",
        share=percent(beyond),
        **shown,
    )
