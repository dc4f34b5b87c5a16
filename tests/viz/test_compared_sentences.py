"""Compare in words: only what the two arrays say."""

import numpy as np

from model.heads.view import HeadView
from viz.numbers import Candidate
from viz.sentence import comparable, prediction_sentence, weights_sentence

ONE = np.array([[1, 0, 0], [0.25, 0.75, 0], [0.5, 0.25, 0.25]], np.float32)


def view(weights: np.ndarray, tokens: str = "abc", first: int = 0) -> HeadView:
    labels = list(tokens[: len(weights)])
    return HeadView(weights, weights, {}, labels, labels, first=first, first_key=first)


def test_where_the_weights_differ_most_is_named_with_both_texts() -> None:
    other = ONE.copy()
    other[1] = 0.75, 0.25, 0
    assert weights_sentence(view(ONE, "abc", 4), view(other, "<xc", 7)) == (
        "A and B differ most where “b / x” (5) attends to “a / &lt;” (4): 0.25 in A, 0.75 in B. "
        "Queries that attend most to the same position in both: 2 of 3."
    )
    small = ONE.copy()
    small[2] = 0.45, 0.3, 0.25
    assert weights_sentence(view(ONE), view(small)).endswith(
        "Queries that attend most to the same position in both: 3 of 3."
    )


def test_no_difference_is_no_claim() -> None:
    assert weights_sentence(view(ONE), view(ONE + np.float32(0.004))) == (
        "No weight differs by 0.005 or more between A and B."
    )


def test_other_lengths_are_not_subtracted() -> None:
    short = view(ONE[:2, :2])
    assert not comparable(view(ONE), short)
    assert "different lengths (3 × 3 and 2 × 2 cells)" in weights_sentence(view(ONE), short)


def test_the_next_token_of_both() -> None:
    one, other = [Candidate("cat", 0.5)], [Candidate("<i>", 0.25)]
    assert prediction_sentence(one, other) == "Next, A predicts “cat” (50.0%), B “&lt;i&gt;” (25.0%)."
    assert prediction_sentence(one, [Candidate("cat", 0.25)]) == "Next, A predicts “cat” (50.0%), B “cat” (25.0%)."
