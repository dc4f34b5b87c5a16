"""A and B in words: how far apart one head of the one is from the same head of the other."""

from collections.abc import Sequence

import numpy as np
from markupsafe import escape

from viz.head import head_figure
from viz.heatmap import Picture
from viz.numbers import Candidate, chance, percent
from viz.view import HeadView

NOTICED = 0.005  # a weight's change that shows in two digits


def comparable(one: HeadView, other: HeadView) -> bool:
    """Whether a difference can be drawn: as many queries and keys."""
    return one.weights.shape == other.weights.shape


def side_figure(view: HeadView, zmax: float, *, dark: bool, query: int | None) -> Picture:
    """A or B, in colours from 0 to zmax, the same for both. query: the position whose row is framed."""
    figure = head_figure(view, dark=dark, query=query)
    figure.update_traces(zmax=zmax, selector={"name": "weights"})
    return figure


def weights_sentence(name: str, one: HeadView, other: HeadView) -> str:
    """HTML: where the head's weights differ most, or why they cannot be subtracted."""
    if not comparable(one, other):
        sizes = " and ".join(f"{view.weights.shape[0]} × {view.weights.shape[1]}" for view in (one, other))
        return f"A and B have different lengths ({sizes} cells): {name} is shown for both, without a difference."
    change = other.weights - one.weights
    query, key = divmod(int(np.abs(change).argmax()), change.shape[1])
    if abs(change[query, key]) < NOTICED:
        return f"No weight of {name} differs by {NOTICED} or more between A and B."
    at = f"“{escape(_both(one.queries[query], other.queries[query]))}” ({one.first + query})"
    on = f"“{escape(_both(one.keys[key], other.keys[key]))}” ({one.first_key + key})"
    same = one.weights.argmax(1) == other.weights.argmax(1)
    return (
        f"{name} differs most where {at} looks at {on}: {one.weights[query, key]:.2f} in A, "
        f"{other.weights[query, key]:.2f} in B. {_agreeing(int(same.sum()), len(same))}"
    )


def prediction_sentence(one: Sequence[Candidate], other: Sequence[Candidate]) -> str:
    """HTML: the likeliest next token of each."""
    a, b = one[0], other[0]
    if a.label == b.label:
        return f"Both predict “{escape(a.label)}” next: {chance(a.probability)} in A, {chance(b.probability)} in B."
    return (
        f"Next, A predicts “{escape(a.label)}” ({chance(a.probability)}), "
        f"B “{escape(b.label)}” ({chance(b.probability)})."
    )


def pictured(name: str, view: HeadView) -> str:
    """A heatmap for whoever cannot see it."""
    query, key = divmod(int(view.weights.argmax()), view.weights.shape[1])
    return (
        f"{name}: {view.weights.shape[0]} queries by {view.weights.shape[1]} keys. The largest weight, "
        f"{view.weights.max():.2f}, is that of {view.queries[query]} on {view.keys[key]}. "
        f"{percent(float(view.any_blocked().mean()))} of the cells are blocked."
    )


def _agreeing(same: int, queries: int) -> str:
    if same == queries:
        return "Every query looks most at the same place in both."
    return f"{same} of {queries} queries look most at the same place in both."


def _both(one: str, other: str) -> str:
    return one if one == other else f"{one} / {other}"
