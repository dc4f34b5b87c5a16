"""Tests of what is said of a run under composed masks: leaked answers, losses, the next token; and what is not said."""

import html
import re
from dataclasses import replace

import numpy as np

from model.heads.reach import PathStep
from viz.mask_lab.effect import MAX_LEAKED_TOKENS, Effect, effect, leaked_tokens_table
from viz.numbers import Candidate

NAN = np.nan
PIECES = ("<s>", "a", "b", "c", "d", "e", "f")
STANDARD = np.array([NAN, 1.0, 1.5, 4.0, 2.0, 3.0, 5.0])
SAME = Candidate("x", 0.5), Candidate("x", 0.5)
QUIET = Effect(PIECES, STANDARD, STANDARD, 6, SAME, 6, SAME)
STRAIGHT = {3: (PathStep(2, 2, 3),)}
ROUND = {5: (PathStep(4, 4, 6), PathStep(1, 6, 5))}


def leaking(ways: dict[int, tuple[PathStep, ...]]) -> Effect:
    """Return the effect of a leak. ways: by token, the paths on which its own answer reaches it."""
    return replace(QUIET, known=sorted(ways), ways=ways)


def words(markup: str) -> str:
    return html.unescape(re.sub("<(?!/?s>).*?>", "", markup))


def changed(effect: Effect, **losses: float) -> Effect:
    """Return the effect with other losses now, each given by its token's piece."""
    now = effect.now.copy()
    for piece, loss in losses.items():
        now[PIECES.index(piece)] = loss
    return replace(effect, now=now)


def test_a_leak_is_told_with_what_it_does_to_all_losses() -> None:
    text = words(effect(changed(leaking(STRAIGHT | ROUND), c=2.0, d=5.0, f=6.0)))
    assert "Mean loss: 2.75 → 3.08 nats/token. Tokens predicted better by more than 0.1 nats: 1; worse: 2." in text
    assert "The loss of c (3) goes from 4.00 to 2.00 nats." in text
    assert "The largest change" not in text


def test_a_leak_that_lowers_no_loss_has_no_gain_to_tell() -> None:
    text = words(effect(changed(leaking(STRAIGHT | ROUND), c=3.95, e=3.5, f=8.1)))
    assert "None of their losses falls by more than 0.1 nats. Mean loss: 2.75 → 3.34 nats/token." in text
    assert "The largest change is that of f (6): 5.00 → 8.10." in text
    assert "Its path" not in text


def test_a_gain_that_is_less_only_when_rounded_counts() -> None:
    standard = changed(QUIET, c=0.354).now
    found = replace(leaking(STRAIGHT), standard=standard, now=changed(QUIET, c=0.246).now)
    text = words(effect(found))  # rounded, 0.35 - 0.25 is not more than 0.1
    assert "better by more than 0.1 nats: 1;" in text
    assert "None of their losses" not in text


def test_a_long_way_is_cut_short() -> None:
    looks = tuple(PathStep(5 - number, number, number + 1) for number in range(6))
    text = words(effect(changed(leaking({6: looks}), f=1.0)))
    assert "in L0 e (5) may attend to f (6), 4 more attention steps, in L5 <s> (0) may attend to a (1)." in text


def test_tokens_are_text() -> None:
    assert "<s>" not in effect(replace(QUIET, query=0, predicted=(Candidate("<s>", 0.5), Candidate("<s>", 0.25))))


def test_the_table_has_those_first_that_gain_most_and_no_more_than_fit() -> None:
    table = leaked_tokens_table(changed(leaking(STRAIGHT | ROUND), c=4.5, e=0.25))
    rows = [re.findall("<td.*?>(.*?)</td>", row) for row in table.split("<tr>")[2:]]
    assert [row[0] for row in rows] == ["5: e", "3: c"]
    assert [row[2:] for row in rows] == [["3.00", "0.25"], ["4.00", "4.50"]]
    tokens = MAX_LEAKED_TOKENS + 5
    many = Effect(
        [f"t{index}" for index in range(tokens)], np.ones(tokens), np.ones(tokens), 1, SAME, 1, SAME,
        range(1, tokens), {token: (PathStep(0, token - 1, token),) for token in range(1, tokens)},
    )  # fmt: skip
    assert "and 4 more" in leaked_tokens_table(many)
