"""Compare in words: how far apart one head of the one is from the same head of the other."""

from collections.abc import Sequence

import numpy as np
from markupsafe import escape

from i18n import N_, say, say_count, together
from model.heads.view import HeadView
from viz.head import head_figure
from viz.heatmap import CachedFigure, figure
from viz.html import say_one
from viz.numbers import Candidate, chance, percent

NOTICED = 0.005  # a weight's change that shows in two digits
WORDS = {  # of A and B; True: where both are the same head
    ("lengths", True): N_("A and B have different lengths ({a} and {b} cells): {head} is shown for both, without a "
                          "difference."),
    ("lengths", False): N_("A and B have different lengths ({a} and {b} cells): both are shown, without a difference."),
    ("same", True): N_("No weight of {head} differs by {least} or more between A and B."),
    ("same", False): N_("No weight differs by {least} or more between A and B."),
    ("most", True): N_("{head} differs most where “{query}” ({query_at}) attends to “{key}” ({key_at}): {a:.2f} in A, "
                       "{b:.2f} in B."),
    ("most", False): N_("A and B differ most where “{query}” ({query_at}) attends to “{key}” ({key_at}): {a:.2f} in A, "
                        "{b:.2f} in B."),
}  # fmt: skip


def comparable(one: HeadView, other: HeadView) -> bool:
    """Whether a difference can be drawn: as many queries and keys."""
    return one.weights.shape == other.weights.shape


def side_figure(view: HeadView, zmax: float, *, dark: bool, query: int | None) -> CachedFigure:
    """A or B, in colours from 0 to zmax, the same for both. query: the position whose row is framed."""
    plain = head_figure(view, dark=dark, query=query).to_dict()
    traces = [trace | {"zmax": zmax} if trace["name"] == "weights" else trace for trace in plain["data"]]
    return figure(traces, plain["layout"])


def weights_sentence(name: str, one: HeadView, other: HeadView) -> str:
    """HTML: where the weights of a head differ most, or why they cannot be subtracted. name: "" for two heads."""
    if not comparable(one, other):
        a, b = (f"{view.weights.shape[0]:,} × {view.weights.shape[1]:,}" for view in (one, other))
        return say_one(WORDS, ("lengths", bool(name)), a=a, b=b, head=name)
    change = other.weights - one.weights
    query, key = divmod(int(np.abs(change).argmax()), change.shape[1])
    if abs(change[query, key]) < NOTICED:
        return say_one(WORDS, ("same", bool(name)), head=name, least=NOTICED)
    cell = {"query_at": one.first + query, "key_at": one.first_key + key}
    cell |= {"query": escape(_both(one.queries[query], other.queries[query]))}
    cell |= {"key": escape(_both(one.keys[key], other.keys[key]))}
    most = say_one(
        WORDS, ("most", bool(name)), head=name, a=one.weights[query, key], b=other.weights[query, key], **cell
    )
    same = one.weights.argmax(1) == other.weights.argmax(1)
    return together([most, _agreeing(int(same.sum()), len(same))])


def prediction_sentence(one: Sequence[Candidate], other: Sequence[Candidate]) -> str:
    """HTML: the likeliest next token of each."""
    shares = {"a": chance(one[0].probability), "b": chance(other[0].probability)}
    a, b = escape(one[0].label), escape(other[0].label)
    if a == b:
        return say("Both predict “{token}” next: {a} in A, {b} in B.", token=a, **shares)
    return say("Next, A predicts “{one}” ({a}), B “{other}” ({b}).", one=a, other=b, **shares)


def pictured(name: str, view: HeadView) -> str:
    """A heatmap for whoever cannot see it."""
    query, key = divmod(int(view.weights.argmax()), view.weights.shape[1])
    sizes = {"queries": view.weights.shape[0], "keys": view.weights.shape[1], "largest": view.weights.max()}
    cell = {"query": view.queries[query], "key": view.keys[key]}
    return say("{head}: {queries} queries by {keys} keys. The largest weight, {largest:.2f}, is that of {query} on "
               "{key}. {share} of the cells are blocked.", head=name, share=percent(float(view.any_blocked().mean())),
               **sizes, **cell)  # fmt: skip


def _agreeing(same: int, queries: int) -> str:
    if same == queries:
        return say("Every query attends most to the same position in both.")
    return say_count(
        "{count} of {queries:,} queries attends most to the same position in both.",
        "{count} of {queries:,} queries attend most to the same position in both.",
        same,
        queries=queries,
    )


def _both(one: str, other: str) -> str:
    return one if one == other else f"{one} / {other}"
