"""Tests of the measures of a head, on weights small enough to calculate them."""

import math

import pytest
import torch
from torch import Tensor

from model.heads import measures

CAUSAL = torch.tensor([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.5, 0], [0.25, 0.25, 0.25, 0.25]])
LIFTED = torch.tensor(  # the first two keys are padding; the first query attends to nothing
    [[0.0, 0, 0, 0, 0], [0.25, 0, 0.25, 0.5, 0], [0, 0, 0.5, 0.5, 0], [0.125, 0.125, 0, 0.25, 0.5], [0, 0, 0, 0, 1]]
)
KEEP = torch.tensor([False, False, True, True, True])


def number(found: Tensor) -> float:
    assert found.shape == ()
    return float(found)


def test_entropy_in_bits() -> None:
    assert number(measures.entropy(CAUSAL)) == pytest.approx((0 + 1 + 1.5 + 2) / 4)
    assert number(measures.entropy(torch.full((3, 7), 1 / 7))) == pytest.approx(math.log2(7), abs=1e-6)
    assert number(measures.entropy(CAUSAL / 8)) == pytest.approx((0 + 1 + 1.5 + 2) / 4)  # a sink has the rest
    assert measures.row_entropy(torch.tensor([[1e-35, 0, 0]])).tolist() == [0]  # a sink has nearly all of the weight


def test_leak_to_the_future_and_to_padding() -> None:
    assert [number(share) for share in measures.leak(CAUSAL, torch.ones(4, dtype=torch.bool))] == [0, 0]
    future, padding = measures.leak(LIFTED, KEEP)  # over the four queries that attend to something
    assert number(future) == pytest.approx((0.75 + 0.5 + 0.5 + 0) / 4)
    assert number(padding) == pytest.approx((0.25 + 0 + 0.25 + 0) / 4)
    future, padding = measures.leak(LIFTED, KEEP, queries=KEEP)  # over queries that are real tokens
    assert number(future) == pytest.approx((0.5 + 0.5 + 0) / 3)
    assert number(padding) == pytest.approx(0.25 / 3)


def test_padding_that_comes_later_is_counted_once() -> None:
    weights = torch.tensor([[0.2, 0.3, 0.5], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    future, padding = measures.leak(weights, torch.tensor([True, True, False]))
    assert number(future) == pytest.approx(0.3 / 3)
    assert number(padding) == pytest.approx((0.5 + 1) / 3)


def test_previous_token() -> None:
    assert number(measures.previous_token(CAUSAL)) == pytest.approx((0.5 + 0.25 + 0.25) / 3)
    assert number(measures.previous_token(torch.eye(5).roll(-1, 1))) == 1
    assert number(measures.previous_token(torch.eye(5).roll(1, 1))) == 0  # attends to the next token
    second_and_last = torch.tensor([False, True, False, True])
    assert number(measures.previous_token(CAUSAL, second_and_last)) == pytest.approx((0.5 + 0.25) / 2)


def test_induction_is_on_the_token_after_the_previous_occurrence() -> None:
    period, length = 3, 7
    ids = torch.arange(length) % period
    perfect = torch.zeros(length, length)
    for query in range(length):
        perfect[query, max(query - period + 1, 0)] = 1
    assert number(measures.induction(perfect, ids)) == 1
    assert number(measures.induction(perfect.roll(1, 1), ids)) == 0
    halved = perfect.clone()
    halved[4] = torch.tensor([0.25, 0, 0.75, 0, 0, 0, 0])
    halved[5] = torch.tensor([0, 0, 0, 0.5, 0.5, 0, 0])
    assert number(measures.induction(halved, ids)) == pytest.approx((1 + 0.75 + 0.5 + 1) / 4)
    assert number(measures.induction(halved, ids, torch.arange(length) > period)) == pytest.approx(2.25 / 3)


def test_rows_that_attend_to_nothing_are_left_out() -> None:
    without = CAUSAL.clone()
    without[1] = 0
    assert number(measures.entropy(without)) == pytest.approx((0 + 1.5 + 2) / 3)
    assert number(measures.previous_token(without)) == pytest.approx((0.25 + 0.25) / 2)


@pytest.mark.parametrize("start", [None, 5])
def test_repeated_tokens_repeat(start: int | None) -> None:
    ids = measures.repeated_tokens(3, 11, range(7, 29), start, torch.Generator().manual_seed(0))
    lead = 0 if start is None else 1
    assert ids.shape == (3, lead + 22)
    assert torch.equal(ids[:, lead : lead + 11], ids[:, lead + 11 :])
    assert (ids[:, :lead] == 5).all()
    assert ids[:, lead:].min() >= 7
    assert ids[:, lead:].max() <= 28
    assert len(ids[:, lead:].unique()) > 11
    again = measures.repeated_tokens(3, 11, range(7, 29), start, torch.Generator().manual_seed(0))
    assert torch.equal(ids, again)


def test_key_share() -> None:
    assert number(measures.key_share(CAUSAL, 0)) == pytest.approx((1 + 0.5 + 0.25 + 0.25) / 4)
    assert number(measures.key_share(LIFTED, 3, KEEP)) == pytest.approx((0.5 + 0.25 + 0) / 3)


def test_what_follows_the_last_time_is_not_the_query_itself() -> None:
    """What follows its last occurrence is the query itself in "no no no", the token before it in "now and now"."""
    weights = torch.eye(5)[None].expand(2, 5, 5)
    assert torch.isnan(measures.induction(weights, torch.tensor([7, 7, 7, 7, 7]))).all()
    assert torch.isnan(measures.induction(weights, torch.tensor([7, 5, 7, 5, 7]))).all()  # it is the previous token
    assert torch.isnan(measures.induction(weights, torch.tensor([3, 5, 7, 11, 13]))).all()
    copies = torch.zeros(5, 5)
    copies[3, 1] = copies[4, 2] = 0.75  # 7 5 11 7 5: a repeated token attends to what followed its first occurrence
    assert float(measures.induction(copies, torch.tensor([7, 5, 11, 7, 5]))) == 0.75
    assert float(measures.own_token(weights[0])) == 1.0
