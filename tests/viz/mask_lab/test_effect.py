"""What is said of a run under composed masks: answers given away, losses, the next token; and what is left unsaid."""

import html
import re
from dataclasses import replace

import numpy as np
import pytest

from model.heads.reach import PathStep
from viz.mask_lab.effect import MOST_ANSWERS, Effect, answers_table, effect
from viz.numbers import Candidate, chance

NAN = np.nan
PIECES = ("<s>", "a", "b", "c", "d", "e", "f")
STANDARD = np.array([NAN, 1.0, 1.5, 4.0, 2.0, 3.0, 5.0])
SAME = Candidate("x", 0.5), Candidate("x", 0.5)
UNCHANGED = "No token's loss changes by 0.01 nats or more, and the prediction after f (6) is unchanged."
QUIET = Effect(PIECES, STANDARD, STANDARD, 6, SAME, 6, SAME)
STRAIGHT = {3: (PathStep(2, 2, 3),)}
ROUND = {5: (PathStep(4, 4, 6), PathStep(1, 6, 5))}


def leaking(ways: dict[int, tuple[PathStep, ...]]) -> Effect:
    """Tokens that can know their own answer, by these ways."""
    return replace(QUIET, known=sorted(ways), ways=ways)


def words(markup: str) -> str:
    return html.unescape(re.sub("<(?!/?s>).*?>", "", markup))


def changed(effect: Effect, **losses: float) -> Effect:
    """Other losses now, each under its token's piece."""
    now = effect.now.copy()
    for piece, loss in losses.items():
        now[PIECES.index(piece)] = loss
    return replace(effect, now=now)


def test_the_mean_and_the_largest_change() -> None:
    said = words(effect(changed(QUIET, b=7.0, c=3.5)))
    assert "The mean loss is 3.58 nats per token, under the standard masks 2.75." in said
    assert "The largest change is that of b (2), from 1.50 to 7.00 nats." in said
    assert "most likely" not in said


def test_nothing_that_stays_is_told() -> None:
    assert words(effect(changed(QUIET, b=1.501))) == UNCHANGED


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (Candidate("x", 0.25), "After f (6) the most likely next token stays x: 25.0%, before 50.0%."),
        (Candidate("<y>", 0.25), "After f (6) the most likely next token was x (50.0%) and is <y> (25.0%)."),
        (Candidate("x", 0.50001), UNCHANGED),
    ],
)
def test_the_prediction_of_the_chosen_query(now: Candidate, said: str) -> None:
    assert words(effect(replace(QUIET, predicted=(QUIET.predicted[0], now)))) == said


def test_the_row_s_last_prediction_has_a_statement_of_its_own() -> None:
    moved = replace(QUIET, query=2, predicted_last=(Candidate("⏎", 0.624), Candidate("The", 0.975)))
    said = words(effect(moved))
    assert said == f"After f (6) the most likely next token was ⏎ ({chance(0.624)}) and is The ({chance(0.975)})."
    assert words(effect(replace(moved, last=2))) == UNCHANGED.replace("f (6)", "b (2)")


def test_an_answer_is_told_with_its_way_and_its_loss() -> None:
    said = words(effect(changed(leaking(STRAIGHT), c=0.5, b=9.0)))
    assert said == (
        "One token has leaked to the position that must predict it (3). c (3) leaks like this: in layer L2 b (2), "
        "which predicts it, may attend to it. Its loss falls from 4.00 to 0.50 nats."
    )


def test_of_several_the_one_that_gains_most_and_how_many_lose() -> None:
    said = words(effect(changed(leaking(STRAIGHT | ROUND), c=4.5, e=0.25)))
    assert said == (
        "2 tokens have leaked to the positions that must predict them (3, 5). e (5) gains most: in layer L1 "
        "f (6) may attend to it, "
        "in L4 d (4), which predicts it, may attend to f (6). Its loss falls from 3.00 to 0.25 nats; that of the "
        "other rises."
    )


def test_a_loss_that_rises_is_never_called_a_gain() -> None:
    both = changed(leaking(STRAIGHT | ROUND), c=4.5)
    assert words(effect(both)).endswith("Yet the loss of none of them falls.")
    assert words(effect(replace(both, known=[3]))).endswith("Yet its loss does not fall.")
    assert "falls from" not in words(effect(both))


def test_a_long_way_is_cut_short() -> None:
    looks = tuple(PathStep(5 - number, number, number + 1) for number in range(6))
    said = words(effect(leaking({6: looks})))
    assert "in layer L0 e (5) may attend to it, 4 more attention steps lead to a (1), in L5 <s> (0), which" in said


def test_ranges_of_tokens() -> None:
    ways = {token: (PathStep(0, token - 1, token),) for token in (1, 2, 3, 5)}
    assert "4 tokens have leaked to the positions that must predict them (1 to 3, 5). a (1) leaks like this" in words(
        effect(leaking(ways))
    )


def test_two_in_a_row_are_no_range_and_how_many_of_the_others_lose_is_told() -> None:
    ways = {token: (PathStep(0, token - 1, token),) for token in (2, 3, 5, 6)}
    for lost, told in (({"c": 9.0}, "one of the others rises."), ({"c": 9.0, "f": 9.0}, "2 of the others rise.")):
        said = words(effect(changed(leaking(ways), e=0.25, **lost)))
        assert "4 tokens have leaked to the positions that must predict them (2, 3, 5, 6)." in said
        assert said.endswith(f"nats; {told}")


def test_tokens_are_text() -> None:
    assert "<s>" not in effect(replace(QUIET, query=0, predicted=(Candidate("<s>", 0.5), Candidate("<s>", 0.25))))


def test_the_table_has_those_first_that_gain_most_and_no_more_than_fit() -> None:
    table = answers_table(changed(leaking(STRAIGHT | ROUND), c=4.5, e=0.25))
    rows = [re.findall("<td.*?>(.*?)</td>", row) for row in table.split("<tr>")[2:]]
    assert [row[0] for row in rows] == ["5: e", "3: c"]
    assert [row[2:] for row in rows] == [["3.00", "0.25"], ["4.00", "4.50"]]
    tokens = MOST_ANSWERS + 5
    many = Effect(
        [f"t{place}" for place in range(tokens)], np.ones(tokens), np.ones(tokens), 1, SAME, 1, SAME,
        range(1, tokens), {token: (PathStep(0, token - 1, token),) for token in range(1, tokens)},
    )  # fmt: skip
    assert "and 4 more" in answers_table(many)
