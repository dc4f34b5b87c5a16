"""The text itself, each token lit by how much another looks at it, as bytes for components/tokens.js."""

from collections.abc import Sequence

import numpy as np

from model.language import say
from viz.components.words import words
from viz.heads.cells import around, cells_packet
from viz.numbers import percent
from viz.view import HeadView

MOST_TOKENS = 128  # of each text: as many as the heatmap gives a cell each


def shown(view: HeadView, part: tuple[int, int], query: int) -> HeadView:
    """What of a whole view is shown: the query and what stands around it."""
    return around(view, part, query, MOST_TOKENS)


def tokens_packet(
    view: HeadView,
    *,
    name: str,
    query: int,
    among: tuple[int, int],
    pins: Sequence[int] = (),
    towards: str = "at",
    across: bool = False,
) -> bytes:
    """The head of this name. query, pins: positions in the whole text. among: those that keys move the query to, from
    one up to, without, another.

    towards: "at", each token is lit by how much the one pointed at looks at it, or "by", by how much it looks at the
    one pointed at. across: the keys are another text.
    """
    header = {"name": name, "query": query, "among": among, "pins": list(pins), "towards": towards, "across": across}
    return cells_packet([view], header | {"words": words("tokens")})


def left_out(whole: HeadView, part: HeadView, query: int) -> str:
    """In a sentence: what of the whole is not shown, and how much of the query's weight goes there; "" where nothing
    is."""
    rows, columns = part.weights.shape
    if (rows, columns) == whole.weights.shape:
        return ""
    shown = {"first": part.first_key, "last": part.first_key + columns - 1, "count": whole.weights.shape[1]}
    if not part.first <= query < part.first + rows:
        return say(
            "Shown are tokens {first}–{last} of {count:,}; the query, {query}, is not among them.", query=query, **shown
        )
    beyond = float(whole.weights[query].sum() - part.weights[query - part.first].sum(dtype=np.float64))
    return say(
        "Shown are tokens {first}–{last} of {count:,}; {share} of the query's weight lies outside.",
        share=percent(max(beyond, 0.0)),
        **shown,
    )
