"""Tests of the words about a lifted mask: each number is that of the losses, and nothing else is claimed."""

import numpy as np
import pytest

from viz.sentence import loss_words, some_loss_worsened

NAN = float("nan")
TOKENS = ["<start>", "the", "<b>", "sat", "on"]
STANDARD = np.array([NAN, 3.0, 4.0, 5.0, 2.0])


def words(now: list[float]) -> str:
    return loss_words(np.array(now), STANDARD, TOKENS)


@pytest.mark.parametrize(
    ("now", "expected"),
    [([NAN, 1.0, 2.0, 3.0, 1.0], False), ([NAN, 3.05, 4.0, 5.0, 2.0], False), ([NAN, 1.0, 2.0, 3.0, 2.2], True)],
)
def test_a_model_is_misled_where_a_token_got_worse(now: list[float], expected: bool) -> None:
    assert some_loss_worsened(np.array(now), STANDARD) is expected


def test_of_tokens_that_are_alike_the_position_tells_whose_loss_changes_most() -> None:
    text = loss_words(np.array([NAN, 3.0, 4.5]), np.array([NAN, 3.0, 4.0]), ["<start>", "<b>", "<b>"])
    assert text.endswith("The largest change is that of <b>&lt;b&gt;</b> (2): 4.00 → 4.50.")


def test_no_losses() -> None:
    assert loss_words(np.full(3, NAN), np.full(3, NAN), ["a", "b", "c"]) == ""
    assert not some_loss_worsened(np.full(3, NAN), np.full(3, NAN))
