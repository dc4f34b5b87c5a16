"""What lifting a mask did, in words: each number is the losses' own, and nothing is said that they do not show."""

import numpy as np
import pytest

from viz.sentence import loss_words, misled

NAN = float("nan")
TOKENS = ["<start>", "the", "<b>", "sat", "on"]
STANDARD = np.array([NAN, 3.0, 4.0, 5.0, 2.0])


def words(now: list[float]) -> str:
    return loss_words(np.array(now), STANDARD, TOKENS)


def test_tokens_that_got_better_and_worse_are_counted_and_the_extremes_named() -> None:
    found = words([NAN, 3.05, 1.0, 4.5, 4.25])
    assert "falls from 3.50 to 3.20 nats/token" in found
    assert "2 tokens are predicted better, most of all “&lt;b&gt;” (4.00 → 1.00)" in found
    assert "1 token is predicted worse, “on” (2.00 → 4.25)" in found


def test_a_mean_that_stays_is_not_said_to_move() -> None:
    found = words([NAN, 4.0, 3.0, 5.0, 2.0])
    assert "stays at 3.50 nats/token" in found
    assert "falls" not in found
    assert "rises" not in found


def test_nothing_changed() -> None:
    expected = "No token's loss changes by 0.01 nats or more: the mean is 3.50 nats/token."
    assert words([NAN, 3.001, 4.0, 5.0, 2.0]) == expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [([NAN, 1.0, 2.0, 3.0, 1.0], False), ([NAN, 3.05, 4.0, 5.0, 2.0], False), ([NAN, 1.0, 2.0, 3.0, 2.2], True)],
)
def test_a_model_is_misled_where_a_token_got_worse(now: list[float], expected: bool) -> None:
    assert misled(np.array(now), STANDARD) is expected


def test_where_every_change_is_small_the_mean_is_not_said_to_move_by_itself() -> None:
    found = words([NAN, 2.95, 3.95, 4.95, 1.95])
    assert found == "The mean loss falls from 3.50 to 3.45 nats/token: no token's by more than 0.1 nats."


def test_all_worse() -> None:
    found = words([NAN, 4.0, 5.0, 6.0, 3.0])
    assert "rises from 3.50 to 4.50" in found
    assert "no token is predicted noticeably better" in found


def test_no_losses() -> None:
    assert loss_words(np.full(3, NAN), np.full(3, NAN), ["a", "b", "c"]) == ""
    assert not misled(np.full(3, NAN), np.full(3, NAN))
