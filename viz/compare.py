"""Compare in words: how far apart one head of the one is from the same head of the other."""

from collections.abc import Sequence

import numpy as np
from markupsafe import escape

from i18n import N_, say, together
from model.heads.view import HeadView
from viz.numbers import Candidate, chance

NOTICED = 0.005  # a weight's change that shows in two digits
LENGTHS = N_("A and B have different lengths ({a} and {b} cells): both are shown, without a difference.")
SAME = N_("No weight differs by {least} or more between A and B.")
MOST = N_("A and B differ most where “{query}” ({query_at}) attends to “{key}” ({key_at}): {a:.2f} in A, {b:.2f} in B.")


def comparable(one: HeadView, other: HeadView) -> bool:
    """Whether a difference can be drawn: as many queries and keys."""
    return one.weights.shape == other.weights.shape


def weights_sentence(one: HeadView, other: HeadView) -> str:
    """HTML: where the weights of two heads differ most, or why they cannot be subtracted."""
    if not comparable(one, other):
        a, b = (f"{view.weights.shape[0]:,} × {view.weights.shape[1]:,}" for view in (one, other))
        return say(LENGTHS, a=a, b=b)
    change = other.weights - one.weights
    query, key = divmod(int(np.abs(change).argmax()), change.shape[1])
    if abs(change[query, key]) < NOTICED:
        return say(SAME, least=NOTICED)
    cell = {"query_at": one.first + query, "key_at": one.first_key + key}
    cell |= {"query": escape(_both(one.queries[query], other.queries[query]))}
    cell |= {"key": escape(_both(one.keys[key], other.keys[key]))}
    most = say(MOST, a=one.weights[query, key], b=other.weights[query, key], **cell)
    attend = (one.weights.max(1) > 0) & (other.weights.max(1) > 0)  # a row with nothing to attend to agrees with none
    same = attend & (one.weights.argmax(1) == other.weights.argmax(1))
    agreeing = N_("Queries that attend most to the same position in both: {same:,} of {queries:,}.")
    return together([most, say(agreeing, same=int(same.sum()), queries=len(same))])


def prediction_sentence(one: Sequence[Candidate], other: Sequence[Candidate]) -> str:
    """HTML: the likeliest next token of each."""
    shares = {"a": chance(one[0].probability), "b": chance(other[0].probability)}
    tokens = {"one": escape(one[0].label), "other": escape(other[0].label)}
    return say("Next, A predicts “{one}” ({a}), B “{other}” ({b}).", **tokens, **shares)


def _both(one: str, other: str) -> str:
    return one if one == other else f"{one} / {other}"
