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


def test_a_change_counts_if_it_is_seen() -> None:
    """Losses have two digits: a change of 0.0086 shows in one of them, and one of 0.0088 does not in another."""
    seen, unseen = (np.array([NAN, 9.27984]), np.array([NAN, 9.27123])), (np.array([3.0756]), np.array([3.0844]))
    assert loss_words(*reversed(seen), ["x", "y"]) == (
        "Mean loss: 9.28 → 9.27 nats/token. Tokens predicted better by more than 0.1 nats: 0; worse: 0. "
        "The largest change is that of <b>y</b> (1): 9.28 → 9.27."
    )
    assert "No token's loss changes" in loss_words(
        np.array([NAN, 3.0, 4.0]), np.array([2.0, 3.0, 4.0]), ["a", "b", "c"]
    )
    assert "No token's loss changes" in loss_words(np.array([-0.0]), np.array([0.0]), ["a"])  # formatted, -0.00
    assert loss_words(*unseen, ["x"]) == "Mean loss: 3.08 nats/token. No token's loss changes by 0.01 nats or more."
    both = [np.concatenate(pair) for pair in zip(seen, unseen, strict=True)]
    assert loss_words(*reversed(both), ["x", "y", "z"]).endswith(
        "The largest change is that of <b>y</b> (1): 9.28 → 9.27."
    )


def test_no_losses() -> None:
    assert loss_words(np.full(3, NAN), np.full(3, NAN), ["a", "b", "c"]) == ""
    assert not some_loss_worsened(np.full(3, NAN), np.full(3, NAN))
