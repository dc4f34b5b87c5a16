"""Tests of the values written into blocked cells: every way of masking, against calculated and 64-bit softmaxes."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from model.attention import ScoreTerms, attention_stages
from model.base import Model
from model.mask_lab.fills import DTYPES, FILLS, FillComparison, Result, classify_empty_row, compare, compare_on_head
from tests.tensors import assert_near

QUERIES, KEYS = 7, 11


def scores_of(seed: int = 0, spread: float = 3.0) -> Tensor:
    return torch.randn(QUERIES, KEYS, generator=torch.Generator().manual_seed(seed)) * spread


def mask_of(seed: int = 0, share: float = 0.6) -> Tensor:
    """Return a mask with some, but never all, cells of every row blocked."""
    allowed = torch.rand(QUERIES, KEYS, generator=torch.Generator().manual_seed(seed + 100)) < share
    allowed[:, seed % KEYS] = True
    allowed[:, (seed + 1) % KEYS] = False
    return allowed


def result(found: FillComparison, name: str, dtype: str = "float32") -> Result:
    (one,) = [one for one in (*found.fills, *found.after) if (one.name, one.dtype) == (name, dtype)]
    return one


def test_every_value_in_every_precision() -> None:
    found = compare(scores_of(), mask_of())
    assert [(one.name, one.dtype) for one in found.fills] == [(name, dtype) for name in FILLS for dtype in DTYPES]
    assert list(FILLS) == ["−∞", "finfo.min", "−1e20", "−1e9", "−1e4", "−10"]
    assert (found.rows, found.blocked, found.keys) == (QUERIES, int((~mask_of()).sum()), KEYS)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FILLS)
def test_the_numbers_are_those_of_doing_it(name: str, dtype: str, seed: int) -> None:
    scores, allowed = scores_of(seed), mask_of(seed)
    one = result(compare(scores, allowed), name, dtype)
    kind = DTYPES[dtype]
    value = torch.finfo(kind).min if FILLS[name] is None else FILLS[name]
    if dtype == "float16" and name in ("−1e20", "−1e9"):
        assert one.overflow == "the lowest number of float16 is −65504"
        with pytest.raises(RuntimeError, match="without overflow"):
            scores.to(kind).masked_fill(~allowed, value)
        assert one.damage is one.empty is None
        return
    weights = scores.to(kind).masked_fill(~allowed, value).softmax(-1).double()
    assert one.overflow is None
    assert one.value == torch.tensor(value, dtype=kind).item()
    assert one.damage is not None
    exact = scores.double().masked_fill(~allowed, -math.inf).softmax(-1)
    expected = [
        (weights * ~allowed).max(), (weights * ~allowed).sum(-1).max(), (weights - exact).abs().max(),
        weights.sum(-1).min(), weights.sum(-1).max(), torch.tensor(0.0),
    ]  # fmt: skip
    shown = [one.damage.blocked_largest, one.damage.blocked_total, one.damage.difference, one.damage.least_total,
             one.damage.most_total, one.damage.nans]  # fmt: skip
    assert_near(torch.tensor(shown, dtype=torch.float64), torch.stack(expected).double(), 1e-12, name)


def test_scores_too_large_for_float16_are_a_message_too() -> None:
    found = compare(scores_of(spread=1e5), mask_of())
    for fill in (*found.fills, *found.after):
        assert bool(fill.overflow) == (fill.dtype == "float16"), fill
    assert "a score of ±" in str(result(found, "−∞", "float16").overflow)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_fully_blocked_row_is_nan_with_infinity_and_uniform_with_any_number(dtype: str) -> None:
    found = compare(scores_of(), mask_of())
    assert found.empty_row is None
    for name in FILLS:
        one = result(found, name, dtype)
        if one.empty is None:
            continue
        if name == "−∞":
            assert one.empty.kind == "NaN"
        else:
            assert one.empty.kind == "uniform"
            assert one.empty.largest == pytest.approx(1 / KEYS, rel=4e-3)
            assert one.empty.total == pytest.approx(1, rel=4e-3)


def test_ours_is_the_core_and_leaves_an_empty_row_at_0() -> None:
    scores, allowed = scores_of(), mask_of()
    allowed[2] = False
    found = compare(scores, allowed)
    assert (found.empty_row, found.rows) == (2, QUERIES - 1)
    assert found.ours.damage is not None
    assert (found.ours.empty.kind, found.ours.empty.total) == ("zero", 0.0)
    q, k = torch.eye(QUERIES)[None], scores.T[None]  # so that q·k equals these scores
    core = attention_stages(q, k, torch.zeros(1, KEYS, 1), allowed, scale=1.0).weights[0]
    exact = scores.double().masked_fill(~allowed, -math.inf).softmax(-1).nan_to_num(0.0)
    assert found.ours.damage.difference == pytest.approx(float((core - exact).abs().max()), abs=1e-9)
    assert found.ours.damage.blocked_total == 0


def test_minus_10_leaks_what_the_arithmetic_says() -> None:
    scores = torch.tensor([[0.0, 0.0, 5.0], [-10.0, 5.0, 5.0]])
    allowed = torch.tensor([[True, True, False], [True, False, False]])
    one = result(compare(scores, allowed), "−10")
    assert one.damage.blocked_largest == pytest.approx(1 / 3, abs=1e-6)  # the second row is -10 three times
    assert one.damage.blocked_total == pytest.approx(2 / 3, abs=1e-6)
    assert one.damage.difference == pytest.approx(2 / 3, abs=1e-6)


def test_minus_1e4_does_not_block_beside_scores_below_it() -> None:
    scores, allowed = torch.tensor([[-2e4, 0.0]]), torch.tensor([[True, False]])
    found = compare(scores, allowed)
    for name, leak in (("−1e4", 1.0), ("−1e9", 0.0), ("−∞", 0.0)):
        one = result(found, name)
        assert one.damage.blocked_total == leak


class TestAfterTheSoftmax:
    @pytest.mark.parametrize("seed", range(4))
    def test_without_renormalising_the_row_has_lost_what_was_blocked(self, seed: int) -> None:
        scores, allowed = scores_of(seed), mask_of(seed)
        one = result(compare(scores, allowed), "multiply")
        allowed_weight = (scores.double().softmax(-1) * allowed).sum(-1)
        assert one.damage.least_total == pytest.approx(float(allowed_weight.min()), abs=1e-6)
        assert one.damage.most_total == pytest.approx(float(allowed_weight.max()), abs=1e-6)
        assert one.damage.blocked_largest == 0
        assert one.empty.kind == "zero"

    @pytest.mark.parametrize("seed", range(4))
    def test_renormalised_it_is_the_same_but_for_rounding(self, seed: int) -> None:
        one = result(compare(scores_of(seed), mask_of(seed)), "multiply, then renormalize")
        assert one.damage.difference < 1e-6
        assert one.damage.least_total == pytest.approx(1, abs=1e-6)
        assert one.empty.kind == "NaN"

    def test_but_not_where_what_is_left_rounds_to_0(self) -> None:
        scores, allowed = torch.tensor([[-200.0, 0.0], [0.0, 0.0]]), torch.tensor([[True, False], [True, True]])
        found = compare(scores, allowed)
        again, lost = result(found, "multiply, then renormalize"), result(found, "multiply")
        assert (again.damage.nans, lost.damage.nans) == (1, 0)
        assert (again.damage.difference, lost.damage.least_total) == (0, 0)
        before = result(found, "−∞")
        assert (before.damage.nans, before.damage.difference) == (0, 0)


class TestSink:
    def test_it_takes_its_share_of_every_row(self) -> None:
        scores, allowed = scores_of(), mask_of()
        found = compare(scores, allowed, sink=1.3)
        powers = scores.double().exp() * allowed
        expected = powers.sum(-1) / (powers.sum(-1) + math.exp(1.3))
        for fill in (found.ours, result(found, "−∞"), result(found, "finfo.min")):
            assert fill.damage.least_total == pytest.approx(float(expected.min()), abs=1e-6)
            assert fill.damage.difference < 1e-6

    def test_it_takes_all_of_a_fully_blocked_row(self) -> None:
        found = compare(scores_of(), mask_of(), sink=1.3)
        for name in ("−∞", "finfo.min", "−1e9"):
            one = result(found, name)
            assert one.empty.kind == "zero"
        leaking = result(found, "−10").empty
        assert leaking.total == pytest.approx(KEYS * math.exp(-10) / (KEYS * math.exp(-10) + math.exp(1.3)), rel=1e-4)

    def test_each_query_s_own_is_in_the_denominator_of_its_row(self, tiny: Model) -> None:
        trace = tiny.run(tiny.encode(["the cat", "the cat sat on the mat"], pad_side="left"))
        sinks = torch.randn(*trace.layers[0].q.shape[:3], 1, generator=torch.Generator().manual_seed(5))
        run = replace(trace, layers=tuple(replace(one, terms=ScoreTerms(sinks=sinks)) for one in trace.layers))
        for row in (0, 1):  # a row padded on the left, and one without padding
            found, allowed = compare_on_head(run, row, run.spec, 1, 2), run.allowed(1, row)
            powers = (run.stages(1, 2, row).scaled.double().exp() * allowed).sum(-1)
            totals = (powers / (powers + sinks[row, 2, :, 0].double().exp()))[allowed.any(-1)]
            for fill in (found.ours, result(found, "−∞")):
                assert fill.damage.least_total == pytest.approx(float(totals.min()), abs=1e-6)
                assert fill.damage.most_total == pytest.approx(float(totals.max()), abs=1e-6)
                assert fill.damage.difference < 1e-6
            assert found.empty_row == (None, 0)[row == 0]
            sink = float(sinks[row, 2, -1 if found.empty_row is None else 0])  # else the last row is copied and blocked
            lost = found.keys * math.exp(-10)
            assert result(found, "−10").empty.total == pytest.approx(lost / (lost + math.exp(sink)))


class TestEdges:
    def test_where_nothing_is_blocked_there_is_no_leak_to_speak_of(self) -> None:
        found = compare(scores_of(), torch.ones(QUERIES, KEYS, dtype=torch.bool))
        assert found.blocked == 0
        for fill in found.fills:
            if fill.damage:
                assert math.isnan(fill.damage.blocked_largest)
                assert math.isnan(fill.damage.blocked_total)
                assert not math.isnan(fill.damage.difference)

    def test_where_everything_is_blocked_there_is_no_ordinary_row(self) -> None:
        found = compare(scores_of(), torch.zeros(QUERIES, KEYS, dtype=torch.bool))
        assert (found.rows, found.empty_row) == (0, 0)
        for fill in (found.ours, *found.fills, *found.after):
            if fill.damage:
                assert math.isnan(fill.damage.difference)
                assert fill.damage.nans == 0

    def test_a_cell_that_the_network_closed_counts_as_blocked(self) -> None:
        closed = torch.zeros(QUERIES, KEYS, dtype=torch.bool)
        closed[2, 5:9] = True
        found = compare(scores_of().masked_fill(closed, -math.inf), mask_of())
        assert found.blocked == int((~mask_of() | closed).sum())
        for one, same in zip(found.fills, compare(scores_of(), mask_of() & ~closed).fills, strict=True):
            assert one.damage == same.damage

    @pytest.mark.parametrize(
        ("scores", "allowed"),
        [
            (torch.zeros(2, 3), torch.ones(3, 2, dtype=torch.bool)),
            (torch.zeros(2, 3), torch.ones(2, 3)),
            (torch.zeros(3), torch.ones(3, dtype=torch.bool)),
            (torch.zeros(0, 3), torch.ones(0, 3, dtype=torch.bool)),
            (torch.full((2, 3), math.nan), torch.ones(2, 3, dtype=torch.bool)),
            (torch.full((2, 3), math.inf), torch.ones(2, 3, dtype=torch.bool)),
        ],
    )
    def test_anything_else_is_refused(self, scores: Tensor, allowed: Tensor) -> None:
        with pytest.raises(ValueError, match="expected"):
            compare(scores, allowed)

    @pytest.mark.parametrize(
        ("row", "kind"),
        [
            ([0.25] * 4, "uniform"),
            ([0.0] * 4, "zero"),
            ([math.nan] * 4, "NaN"),
            ([0.5, math.nan], "NaN"),
            ([0.5, 0.3, 0.2], "other"),
            ([1.0], "uniform"),
        ],
    )
    def test_what_a_row_is_called(self, row: list[float], kind: str) -> None:
        assert classify_empty_row(torch.tensor(row)).kind == kind
