"""Tests of one head step by step: the panels' numbers, and a row whose arithmetic is repeated here."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from model.heads.view import MAX_CELLS, Arithmetic, HeadSteps, HeadView, RowSteps
from tests.viz.markup import cells_of
from tests.viz.spelled import number
from tests.viz.views import causal, padded
from viz.figure_table import figure_tables
from viz.mask_lab.steps import (
    MASKED,
    MAX_KEYS,
    MAX_VALUES,
    OUTPUT,
    RAW,
    SCALED,
    VALUES,
    WEIGHTS,
    drawn_values,
    largest,
    steps_figure,
    steps_sentence,
    steps_table,
    values_figure,
)

TOKENS, WIDTH = 13, 5
MASKS = {"causal": causal(TOKENS), "padding": padded(TOKENS, 2)}
IN_A_ROW = {name: mask[7] for name, mask in MASKS.items()}
PLAIN = Arithmetic(WIDTH**-0.5, WIDTH)


def row_of(keys: int = TOKENS, seed: int = 0, arithmetic: Arithmetic = PLAIN, **blocked: np.ndarray) -> RowSteps:
    random = np.random.default_rng(seed)
    return RowSteps(
        raw=random.normal(size=keys) * 7,
        arithmetic=arithmetic,
        blocked=blocked,
        values=random.normal(size=(keys, WIDTH)).astype(np.float32),
        query="who",
        keys=[f"k{index}" for index in range(keys)],
        position=3,
    )


def steps_of(tokens: int = TOKENS, **blocked: np.ndarray) -> HeadSteps:
    random = np.random.default_rng(1)
    raw = random.normal(size=(tokens, tokens)).astype(np.float32) * 7
    values = random.normal(size=(tokens, WIDTH)).astype(np.float32)
    scaled = raw * np.float32(WIDTH**-0.5)
    free = ~np.any([np.zeros(raw.shape, bool), *blocked.values()], axis=0)
    powers = np.exp(scaled) * free
    weights = (powers / np.maximum(powers.sum(1, keepdims=True), 1e-30)).astype(np.float32)
    labels = [f"t{index}" for index in range(tokens)]
    head = HeadView(weights, scaled, blocked, labels, labels)
    return HeadSteps(head, raw, values, weights @ values, replace(row_of(tokens), position=tokens // 2))


def panel(figure: go.Figure, axis: str, names: tuple[str, ...]) -> Any:
    (found,) = [trace for trace in figure.data if trace.xaxis == "x" + axis and trace.name in names]
    return found


class TestRow:
    def test_a_cap_a_bias_and_a_sink(self) -> None:
        bias = np.linspace(-2, 2, TOKENS)
        row = replace(row_of(arithmetic=Arithmetic(0.3, WIDTH, 1.7, True, True)), bias=bias, sink=0.8)
        scores = 1.7 * np.tanh(row.raw * 0.3 / 1.7) + bias
        expected = np.exp(scores) / (np.exp(scores).sum() + np.exp(0.8))
        np.testing.assert_allclose(row.score, scores, atol=1e-12)
        np.testing.assert_allclose(row.weights, expected, atol=1e-12)
        np.testing.assert_allclose(row.weights.sum() + row.sink_exp / row.total, 1, atol=1e-12)

    @pytest.mark.parametrize("sink", [None, 0.4])
    def test_a_row_with_nothing_to_attend_to_is_0_and_never_nan(self, sink: float | None) -> None:
        by_both = replace(row_of(causal=np.arange(TOKENS) > 4), bias=np.where(np.arange(TOKENS) > 4, 0.0, -np.inf))
        for empty in (row_of(causal=np.ones(TOKENS, bool)), by_both):
            row = replace(empty, sink=sink)
            assert not row.weights.any()
            assert not row.output.any()
            assert "nan" not in steps_table(row)
            assert "Every key of <b>who</b> (position 3) is blocked" in steps_sentence(row)
            assert len(values_figure(row).data) == 1

    def test_scores_far_beyond_exp_neither_overflow_nor_vanish(self) -> None:
        row = replace(row_of(), raw=np.linspace(-4000, 4000, TOKENS))
        assert np.isfinite(row.weights).all()
        np.testing.assert_allclose(row.weights.sum(), 1)

    def test_the_heaviest_are_never_blocked_while_others_are_left(self) -> None:
        row = row_of(causal=np.arange(TOKENS) > 4)
        assert row.heaviest(5).tolist() == [0, 1, 2, 3, 4]
        assert row.heaviest(3).tolist() == sorted(np.argsort(-row.weights)[:3])
        assert len(row.heaviest(TOKENS + 5)) == TOKENS


class TestTable:
    @pytest.mark.parametrize("seed", range(5))
    def test_what_is_shown_adds_up_to_what_is_shown(self, seed: int) -> None:
        *body, total = cells_of(steps_table(row_of(seed=seed, **IN_A_ROW)))
        for column, index in ((-3, 1), (-2, 2)):
            assert sum(number(cells[column]) for cells in body) == pytest.approx(number(total[index]), abs=1e-5)

    def test_a_weight_too_small_for_six_digits_is_not_called_0(self) -> None:
        row = replace(row_of(3), raw=np.array([0.0, -40.0, -90.0]), blocked={"causal": np.array([False, False, True])})
        body = cells_of(steps_table(row))
        assert body[1][5].startswith(f"{row.weights[1]:.1e}".split("e")[0] + "\u202f×\u202f10⁻")
        assert number(body[1][5]) == pytest.approx(row.weights[1], rel=0.05)
        assert body[2][5] == "0"

    @pytest.mark.parametrize("keys", [MAX_KEYS, MAX_KEYS + 1, 1000])
    def test_of_many_keys_the_heaviest_and_the_rest_together(self, keys: int) -> None:
        row = row_of(keys, causal=np.arange(keys) > keys // 2)
        body = cells_of(steps_table(row))[:-1]
        assert len(steps_table(row)) < 60_000
        if keys <= MAX_KEYS:
            assert len(body) == keys
            return
        *body, rest = body
        assert len(body) == MAX_KEYS
        blocked = keys - keys // 2 - 1 - (MAX_KEYS - row.free.sum() if row.free.sum() < MAX_KEYS else 0)
        assert rest[0] == f"all other keys ({keys - MAX_KEYS:,}; blocked: {blocked:,})"
        assert number(rest[2]) + sum(number(cells[-2]) for cells in body) == pytest.approx(1, abs=1e-4)

    def test_what_an_architecture_adds_has_its_own_columns(self) -> None:
        row = replace(row_of(arithmetic=Arithmetic(0.3, WIDTH, 1.7, True, True)), bias=np.full(TOKENS, 0.25), sink=0.8)
        *body, sink, total = cells_of(steps_table(row))
        for key, cells in enumerate(body):
            assert [number(cell) for cell in cells[2:6]] == pytest.approx(
                [row.scaled[key], row.capped[key], 0.25, row.score[key]], abs=5.1e-5
            )
        assert "sink" in sink[0]
        assert number(sink[2]) == pytest.approx(1 - row.weights.sum(), abs=1e-6)
        assert total[2] == "1.000000"

    def test_tokens_that_look_like_markup_are_escaped(self) -> None:
        row = replace(row_of(2), keys=["<script>", "&amp;"], query="<b>")
        assert "<script>" not in steps_table(row)
        assert cells_of(steps_table(row))[1][0] == "1: &amp;"
        assert "<b><b>" not in steps_sentence(row)
        assert "&lt;script&gt;" in values_figure(row).layout.yaxis.ticktext[0]


class TestValues:
    def test_what_the_keys_add_and_their_sum(self) -> None:
        row = row_of(40, causal=np.arange(40) > 30)
        figure = values_figure(row)
        drawn = drawn_values(row)
        assert len(drawn) == MAX_VALUES
        pale, solid = figure.data[:-1:2], figure.data[1:-1:2]
        for key, value, added in zip(drawn, pale, solid, strict=True):
            np.testing.assert_allclose(value.y, row.values[key], atol=1e-6)
            np.testing.assert_allclose(added.y, row.weights[key] * row.values[key], atol=1e-6)
        np.testing.assert_allclose(figure.data[-1].y, row.weights @ row.values, atol=1e-6)
        (numbers,) = figure_tables(figure)
        names = [str(name) for name in numbers.table.columns]
        assert sum(name.endswith(": value") for name in names) == MAX_VALUES
        assert sum(name.endswith(": weight × value") for name in names) == MAX_VALUES

    def test_strips_share_one_range_and_do_not_overlap(self) -> None:
        figure = values_figure(row_of(40))
        axes = [figure.layout[f"yaxis{axis or ''}"] for axis in [0, *range(2, MAX_VALUES + 2)]]
        assert len({axis.range for axis in axes}) == 1
        domains = [axis.domain for axis in axes]
        assert all(upper[0] >= lower[1] for upper, lower in itertools.pairwise(domains))
        assert max(np.abs(trace.y).max() for trace in figure.data) <= axes[0].range[1]


class TestFigure:
    @pytest.mark.parametrize("dark", [False, True])
    def test_each_panel_shows_its_step(self, dark: bool) -> None:
        view = steps_of(**MASKS)
        figure = steps_figure(view, dark=dark)
        blocked = view.head.any_blocked()
        np.testing.assert_array_equal(panel(figure, RAW, ("q·k",)).z, view.raw)
        np.testing.assert_array_equal(panel(figure, SCALED, ("score",)).z, view.head.scaled)
        masked = panel(figure, MASKED, ("masked score",)).z
        np.testing.assert_array_equal(np.isnan(masked), blocked)
        np.testing.assert_array_equal(masked[~blocked], view.head.scaled[~blocked])
        weights = panel(figure, WEIGHTS, ("weights",)).z
        np.testing.assert_array_equal(np.isnan(weights), blocked)
        np.testing.assert_array_equal(weights[~blocked], view.head.weights[~blocked])
        np.testing.assert_array_equal(panel(figure, VALUES, ("value",)).z, view.values)
        np.testing.assert_array_equal(panel(figure, OUTPUT, ("output",)).z, view.output)

    def test_what_the_mask_wrote_is_hatched_and_says_what_blocks(self) -> None:
        figure = steps_figure(steps_of(**MASKS), dark=False)
        assert {image.xref for image in figure.layout.images} == {"x" + MASKED, "x" + WEIGHTS}
        for axis in (MASKED, WEIGHTS):
            blocked = panel(figure, axis, ("blocked",))
            assert "%{text}" in blocked.hovertemplate
            assert "blocked by causal and padding" in np.array(blocked.text)
        assert not steps_figure(steps_of(), dark=False).layout.images

    def test_every_property_is_one_that_plotly_knows(self) -> None:
        go.Figure(steps_figure(steps_of(**MASKS), dark=True).to_dict())  # raises ValueError for an unknown one

    def test_a_formula_stands_above_each(self) -> None:
        row = row_of(arithmetic=Arithmetic(0.5, WIDTH, 30.0, True, True))
        view = replace(steps_of(), row=row)
        titles = " ".join(note.text for note in steps_figure(view, dark=False).layout.annotations)
        for part in ("1 raw", "2 scaled", "30·tanh(q·k × 0.5 / 30) + bias", "3 masked", "4 weights",
                     "e<sup>sink</sup>", "5 output", "Σ weight × v"):  # fmt: skip
            assert part in titles
        titles = " ".join(note.text for note in steps_figure(steps_of(), dark=False).layout.annotations)
        assert f"q·k / √{WIDTH}" in titles
        assert "sink" not in titles

    def test_scaled_and_masked_have_one_range_of_colours_with_0_in_the_middle(self) -> None:
        figure = steps_figure(steps_of(**MASKS), dark=False)
        scaled, masked = panel(figure, SCALED, ("score",)), panel(figure, MASKED, ("masked score",))
        assert scaled.zmax == masked.zmax == -scaled.zmin == -masked.zmin
        value, output = panel(figure, VALUES, ("value",)), panel(figure, OUTPUT, ("output",))
        assert value.zmax == output.zmax == -value.zmin

    def test_a_row_without_any_key_is_drawn(self) -> None:
        figure = steps_figure(steps_of(causal=np.ones((TOKENS, TOKENS), bool)), dark=True)
        assert np.isnan(panel(figure, MASKED, ("masked score",)).z).all()
        assert not panel(figure, OUTPUT, ("output",)).z.any()

    @pytest.mark.parametrize("tokens", [MAX_CELLS + 3, 1000])
    def test_long_texts_stay_small(self, tokens: int) -> None:
        view = steps_of(tokens, causal=causal(tokens))
        figure = steps_figure(view, dark=False)
        assert max(max(trace.z.shape) for trace in figure.data) <= MAX_CELLS
        assert len(figure.to_json()) < 1_500_000
        masked = panel(figure, MASKED, ("masked score",)).z
        free = np.where(view.head.any_blocked(), -np.inf, view.head.scaled)
        assert np.nanmax(masked) == free.max()


@pytest.mark.parametrize(("down", "across"), [(1, 1), (2, 2), (3, 1), (4, 5)])
def test_the_largest_of_each_patch(down: int, across: int) -> None:
    values = -np.random.default_rng(2).random((7, 11))
    found = largest(values, down, across)
    for row in range(-(-7 // down)):
        for column in range(-(-11 // across)):
            patch = values[row * down : (row + 1) * down, column * across : (column + 1) * across]
            assert found[row, column] == patch.max()


class TestSentence:
    def test_it_names_the_heaviest_key_and_what_the_mask_wrote(self) -> None:
        row = row_of(causal=np.arange(TOKENS) > 7)
        heavy = int(row.weights.argmax())
        found = steps_sentence(row)
        assert f"<b>k{heavy}</b> (position {heavy}), with a weight of {row.weights[heavy]:.3f}" in found
        assert "−∞ into 5 of 13 cells" in found
        biased = replace(row, bias=np.where(np.arange(TOKENS) == (heavy + 1) % 8, -np.inf, 0.0))
        assert "−∞ into 5 of 13 cells" in steps_sentence(biased)
        assert biased.free.sum() == len(drawn_values(biased)) == 7

    def test_it_says_who_would_lead_without_the_mask(self) -> None:
        raw = np.array([1.0, 2.0, 9.0])
        row = replace(row_of(3), raw=raw, blocked={"causal": np.array([False, False, True])})
        assert "Without it <b>k2</b> (position 2) would have the largest score" in steps_sentence(row)
        row = replace(row_of(3), raw=raw, blocked={"causal": np.array([True, False, False])})
        assert "would lead" not in steps_sentence(row)

    def test_without_a_blocked_cell(self) -> None:
        assert "The mask wrote −∞ into 0 of 13 cells." in steps_sentence(row_of())
