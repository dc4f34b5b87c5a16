"""Tests of reach as a figure, a table and a sentence: their numbers, colours and blocked cells."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from model.heads.reach import Reach
from tests.viz.markup import cells_of
from tests.viz.test_palette import APART, SIGHT, lab
from viz.charts import NO_EFFECT_COLOUR
from viz.mask_lab.effect import MAX_CELLS, ReachView, fewest_layers, reach_figure, reach_sentence, reach_table
from viz.palette import rgb

LAYERS = 5


def windowed(tokens: int, size: int, layers: int = LAYERS, query: int = 0) -> ReachView:
    """Return a causal window of `size` positions in every layer, whose reach is known without a matrix product."""
    back = np.subtract.outer(np.arange(tokens), np.arange(tokens))
    first = np.maximum(-(-back // max(size - 1, 1)), 1)
    first[(back < 0) | (first > layers) | ((size == 1) & (back > 0))] = 0
    seen = np.stack([((first > 0) & (first <= n)).sum(1) for n in range(1, layers + 1)])
    window = np.stack([((back >= 0) & (back < size)).sum(1)] * layers)
    blocked = {"causal": back < 0, "sliding": np.abs(back) >= size}
    labels, names = [f"t{index}" for index in range(tokens)], [f"L{layer}" for layer in range(layers)]
    reach = Reach(first.astype(np.int16), window, seen, blocked)
    return ReachView(reach, 2, labels, query, names, np.ones(tokens, bool))


def trace_of(figure: go.Figure, name: str) -> Any:
    (found,) = [trace for trace in figure.data if trace.name == name]
    return found


class TestFigure:
    @pytest.mark.parametrize("dark", [False, True])
    @pytest.mark.parametrize("size", [1, 2, 4, 30])
    def test_a_colour_for_every_pair_that_is_reached(self, size: int, dark: bool) -> None:
        view = windowed(23, size)
        figure = reach_figure(view, dark=dark)
        z = trace_of(figure, "reach").z
        np.testing.assert_array_equal(np.nan_to_num(z), view.reach.first)
        np.testing.assert_array_equal(np.isnan(trace_of(figure, "never").z), view.reach.first > 0)

    def test_where_everything_is_reached_nothing_is_never(self) -> None:
        reach = Reach(*(np.ones(shape, int) for shape in [(3, 3), (2, 3)]), np.full((2, 3), 3), {})
        view = ReachView(reach, 0, list("abc"), 1, ["L0", "L1"], np.ones(3, bool))
        figure = reach_figure(view, dark=False)
        assert [trace.name for trace in figure.data] == ["may look", "reach"]
        assert not figure.layout.images

    def test_beside_it_the_one_layer_hatched_where_it_blocks(self) -> None:
        view = windowed(11, 3)
        figure = reach_figure(view, dark=False)
        shut = np.any(list(view.reach.blocked.values()), axis=0)
        np.testing.assert_array_equal(np.isnan(trace_of(figure, "may look").z), shut)
        blocked = trace_of(figure, "blocked")
        assert [trace.name for trace in figure.data][:2] == ["blocked", "may look"], "the last one has the tooltip"
        assert "%{text}" in blocked.hovertemplate
        text = np.array(blocked.text)
        for name, mask in view.reach.blocked.items():
            np.testing.assert_array_equal(np.char.find(text.astype(str), name) >= 0, mask)
        go.Figure(figure.to_dict())  # raises ValueError for a property that plotly does not know
        (image,) = figure.layout.images
        assert (image.xref, image.sizex, image.sizey) == ("x", 11, 11)
        assert trace_of(figure, "reach").xaxis == "x2"
        assert (figure.layout.xaxis2.matches, figure.layout.yaxis2.matches) == ("x", "y")

    def test_colours_are_flat_steps_from_1_to_the_most_that_it_takes(self) -> None:
        trace = trace_of(reach_figure(windowed(23, 4), dark=False), "reach")
        assert (trace.zmin, trace.zmax) == (0.5, LAYERS + 0.5)
        assert list(trace.colorbar.tickvals) == [1, 2, 3, 4, 5]
        edges = [edge for edge, _ in trace.colorscale]
        np.testing.assert_allclose(edges, [0, 0.2, 0.2, 0.4, 0.4, 0.6, 0.6, 0.8, 0.8, 1])

    @pytest.mark.parametrize("sight", SIGHT)
    def test_six_steps_are_told_apart_in_order_whatever_the_eye(self, sight: str) -> None:
        scale = trace_of(reach_figure(windowed(40, 4, 6), dark=False), "reach").colorscale
        colours = np.array([[int(part) for part in re.findall(r"\d+", colour)] for _, colour in scale[::2]])
        seen = lab(colours, sight)
        assert len(seen) == 6
        assert (np.diff(seen[:, 0]) < 0).all()
        assert np.linalg.norm(np.diff(seen, axis=0), axis=1).min() > 0.6 * APART
        grounds = lab(np.array([(255, 255, 255), (14, 17, 23), *map(rgb, NO_EFFECT_COLOUR.values())]), sight)
        assert min(np.linalg.norm(seen - ground, axis=1).min() for ground in grounds) > APART

    @pytest.mark.parametrize("tokens", [MAX_CELLS + 1, 1024])
    def test_long_texts_stay_small(self, tokens: int) -> None:
        view = windowed(tokens, 9, query=tokens - 1)
        figure = reach_figure(view, dark=False)
        z = np.nan_to_num(trace_of(figure, "reach").z)
        assert max(z.shape) <= MAX_CELLS
        assert len(figure.to_json()) < 1_500_000
        step = -(-tokens // MAX_CELLS)
        np.testing.assert_array_equal(z, fewest_layers(view.reach.first, step))
        assert figure.layout.shapes[0].y0 == (tokens - 1) // step - 0.5

    def test_many_layers_get_few_numbers_at_the_colour_bar(self) -> None:
        trace = trace_of(reach_figure(windowed(60, 2, 48), dark=False), "reach")
        assert 4 < len(trace.colorbar.tickvals) <= 12

    def test_tokens_that_look_like_markup_are_escaped(self) -> None:
        numbers = np.eye(2, dtype=int), np.ones((1, 2), int), np.ones((1, 2), int)
        view = ReachView(Reach(*numbers, {}), 0, ["<s>", "<b>"], 1, ["L0"], np.ones(2, bool))
        assert list(reach_figure(view, dark=False).layout.xaxis.ticktext) == ["&lt;s&gt;", "&lt;b&gt;"]
        assert "&lt;b&gt;" in reach_sentence(view)
        assert "<s>" not in reach_table(view)


@pytest.mark.parametrize(("tokens", "step"), [(7, 1), (7, 2), (9, 3), (10, 4)])
def test_a_patch_is_reached_as_soon_as_one_of_its_pairs_is(tokens: int, step: int) -> None:
    first = np.random.default_rng(tokens).integers(0, 4, (tokens, tokens), dtype=np.int16)
    first[:step, :step] = 0
    found = fewest_layers(first, step)
    for row in range(-(-tokens // step)):
        for column in range(-(-tokens // step)):
            patch = first[row * step : (row + 1) * step, column * step : (column + 1) * step]
            assert found[row, column] == min(patch[patch > 0].tolist(), default=0)


class TestTable:
    def test_a_row_for_each_layer_that_brings_something_new(self) -> None:
        assert [row[:3] for row in cells_of(reach_table(windowed(23, 4, query=10)))] == [
            ["1 (L0)", "4", "4"],
            ["2 (L1)", "4", "7"],
            ["3 (L2)", "4", "10"],
            ["4 to 5 (L3 to L4)", "4", "11"],
        ]

    def test_how_far_back_it_reaches(self) -> None:
        assert [row[-1] for row in cells_of(reach_table(windowed(23, 4, query=10)))] == [
            "3 back: t7", "6 back: t4", "9 back: t1", "10 back: t0",
        ]  # fmt: skip
        assert [row[-1] for row in cells_of(reach_table(windowed(23, 4, query=0)))] == ["–"]

    def test_layers_with_other_masks_keep_their_own_row(self) -> None:
        view = windowed(23, 4, query=20)
        view.reach.window[3] = 9
        assert [row[1] for row in cells_of(reach_table(view))] == ["4", "4", "4", "9", "4"]


class TestSentence:
    def test_padding_is_not_later_in_the_text(self) -> None:
        """There are three tokens of text and two of padding, each of which attends to all."""
        every, keep = np.full((1, 5), 5), np.array([True, True, True, False, False])
        view = ReachView(Reach(np.ones((5, 5), int), every, every, {}), 0, list("abcpp"), 1, ["L0"], keep)
        words = reach_sentence(view).striptags()
        assert "After the last layer it can depend on 5 (1 of them later in the text)" in words
        assert words.endswith("Of the tokens it can depend on, 2 are padding.")
        last = reach_sentence(replace(view, query=2)).striptags()
        assert "it can depend on 5 (0 of them later in the text)" in last
        assert "padding" not in reach_sentence(replace(view, keep=np.ones(5, bool)))

    @pytest.mark.parametrize(("size", "query", "layers"), [(1, 3, 0), (4, 0, 0), (4, 3, 1), (4, 4, 2), (4, 22, 5)])
    def test_how_many_layers_it_takes(self, size: int, query: int, layers: int) -> None:
        """A token depends on itself before any layer."""
        words = reach_sentence(windowed(23, size, query=query))
        assert f"layers needed for that: {layers} of 5." in words
