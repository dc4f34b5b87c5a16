"""Tests of the chosen head as plotly figures: their numbers, labels, colour ranges and blocked cells."""

import base64
import io
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from PIL import Image

from model.heads.view import MAX_CELLS, HeadView, coarser, cropped
from tests.viz.views import causal, padded, view_of
from viz.hatch import MAX_CELLS_WITH_TEXT, blocked_groups, empty_runs, reasons
from viz.head import comparison_figure, difference_figure, head_figure, head_range
from viz.heads.cells import changed
from viz.heatmap import KEY_TITLE, MAX_TICKS, QUERY_TITLE, axis_names, colour_range
from viz.palette import MASK_COLOURS, WIDE

TOKENS = 7
MAX_BYTES = 1_200_000
LABELS = ["<s>", "the", "·cat", "the", "&amp;", "<script>", '"']


def labelled(labels: list[str], **blocked: np.ndarray) -> HeadView:
    view = view_of((len(labels), len(labels)), **blocked)
    return HeadView(view.weights, view.scaled, blocked, labels, labels)


def trace_of(figure: go.Figure, name: str, xaxis: str = "x") -> Any:
    (found,) = [trace for trace in figure.data if trace.name == name and trace.xaxis == xaxis]
    return found


def hatched(figure: go.Figure, xref: str) -> np.ndarray:
    """Return where the picture under the heatmap on this axis has ink, bool [Q,K]."""
    (image,) = [image for image in figure.layout.images if image.xref == xref]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(image.source.partition(",")[2]))).convert("RGBA"))
    rows, columns = int(image.sizey), int(image.sizex)
    assert (image.x, image.y, image.sizing) == (-0.5, -0.5, "stretch")
    cells = pixels[..., 3].reshape(rows, pixels.shape[0] // rows, columns, pixels.shape[1] // columns)
    return cells.max((1, 3)) > 0


class TestOneHead:
    @pytest.mark.parametrize("blocked", [{}, {"causal": causal(TOKENS)}, {"padding": padded(TOKENS, 3)}])
    def test_every_weight_is_there_and_nothing_in_blocked_cells(self, blocked: dict[str, np.ndarray]) -> None:
        view = view_of((TOKENS, TOKENS), **blocked)
        z = trace_of(head_figure(view, dark=False), "weights").z
        union = view.any_blocked()
        np.testing.assert_array_equal(np.isnan(z), union)
        np.testing.assert_array_equal(z[~union], view.weights[~union])

    def test_hatched_are_the_blocked_cells(self) -> None:
        view = view_of((5, 9), causal=~np.tri(5, 9, dtype=bool), padding=np.arange(45).reshape(5, 9) % 9 < 2)
        np.testing.assert_array_equal(hatched(head_figure(view, dark=False), "x"), view.any_blocked())

    def test_without_a_mask_nothing_is_hatched(self) -> None:
        figure = head_figure(view_of((4, 6)), dark=False)
        assert not figure.layout.images
        assert [trace.name for trace in figure.data] == ["weights"]

    def test_colours_run_from_0_to_the_largest_weight_rounded_up(self) -> None:
        view = view_of((TOKENS, TOKENS), causal=causal(TOKENS))
        trace = trace_of(head_figure(view, dark=False), "weights")
        assert trace.zmin == 0
        assert view.weights.max() - 1e-4 <= trace.zmax < view.weights.max() + 0.01

    def test_the_first_query_is_on_top_and_both_axes_are_named(self) -> None:
        layout = head_figure(view_of((4, 6)), dark=False).layout
        assert layout.yaxis.autorange == "reversed"
        assert layout.xaxis.autorange != "reversed"
        assert (layout.yaxis.title.text, layout.xaxis.title.text) == (QUERY_TITLE, KEY_TITLE)
        assert "attends" in QUERY_TITLE
        assert "attended to" in KEY_TITLE

    def test_a_token_that_comes_twice_keeps_two_columns(self) -> None:
        figure = head_figure(labelled(LABELS), dark=False)
        trace = trace_of(figure, "weights")
        for names in (trace.x, trace.y):
            assert len(set(names)) == len(LABELS)
        assert figure.layout.xaxis.ticktext[1] == figure.layout.xaxis.ticktext[3] == "the"

    def test_tokens_that_look_like_markup_are_escaped(self) -> None:
        figure = head_figure(labelled(LABELS, causal=causal(len(LABELS))), dark=False)
        expected = ["&lt;s&gt;", "the", "·cat", "the", "&amp;amp;", "&lt;script&gt;", '"']
        assert list(figure.layout.xaxis.ticktext) == expected
        assert list(figure.layout.yaxis.ticktext) == expected
        for trace in figure.data:
            assert [name.partition(": ")[2] for name in trace.x] == expected
            assert [name.partition(": ")[2] for name in trace.y] == expected

    def test_a_tooltip_gives_both_tokens_and_positions_the_weight_and_the_score(self) -> None:
        view = labelled(["one", "two", "three"])
        trace = trace_of(head_figure(view, dark=False), "weights")
        assert list(trace.x) == list(trace.y) == ["0: one", "1: two", "2: three"]
        for part in ("%{x}", "%{y}", "%{z", "%{customdata"):
            assert part in trace.hovertemplate
        np.testing.assert_array_equal(trace.customdata, view.scaled)

    def test_a_part_of_a_text_keeps_its_positions(self) -> None:
        part = cropped(view_of((9, 9), causal=causal(9)), (4, 8), (4, 8))
        trace = trace_of(head_figure(part, dark=False), "weights")
        assert list(trace.x) == ["4: k4", "5: k5", "6: k6", "7: k7"]
        np.testing.assert_array_equal(np.isnan(trace.z), causal(4))

    def test_long_texts_get_fewer_labels_at_their_right_places(self) -> None:
        view = view_of((MAX_TICKS + 3, MAX_TICKS + 3))
        axis = head_figure(view, dark=False).layout.xaxis
        assert 2 <= len(axis.tickvals) <= MAX_TICKS
        assert [f"{position} {view.keys[position]}" for position in axis.tickvals] == list(axis.ticktext)

    @pytest.mark.parametrize("tokens", [MAX_CELLS + 1, 1024])
    def test_very_long_texts_are_drawn_coarser(self, tokens: int) -> None:
        view = view_of((tokens, tokens), causal=causal(tokens))
        z = trace_of(head_figure(view, dark=False), "weights").z
        assert max(z.shape) <= MAX_CELLS
        assert np.nanmax(z) == view.weights.max()


class TestWhatBlocksACell:
    def test_each_combination_of_masks_says_its_own(self) -> None:
        masks = {"causal": causal(TOKENS), "padding": padded(TOKENS, 2)}
        groups = dict(blocked_groups(view_of((TOKENS, TOKENS), **masks)))
        assert set(groups) == {"blocked by causal", "blocked by padding", "blocked by causal and padding"}
        for text, cells in groups.items():
            for name, mask in masks.items():
                assert (mask[cells] == (name in text)).all()
        np.testing.assert_array_equal(
            sum(cells.astype(int) for cells in groups.values()), np.any(list(masks.values()), axis=0)
        )

    def test_tooltips_of_blocked_cells_lie_beneath_the_weights_and_have_the_scores(self) -> None:
        view = view_of((TOKENS, TOKENS), causal=causal(TOKENS), padding=np.zeros((TOKENS, TOKENS), bool))
        figure = head_figure(view, dark=False)
        weights, blocked = trace_of(figure, "weights"), trace_of(figure, "blocked")
        assert figure.data.index(weights) > figure.data.index(blocked), "the last one has the tooltip"
        assert not weights.hoverongaps
        np.testing.assert_array_equal(blocked.z, view.scaled)
        assert {colour for _, colour in blocked.colorscale} == {"rgba(0,0,0,0)"}

    def test_one_reason_is_said_as_it_is(self) -> None:
        view = view_of((TOKENS, TOKENS), causal=causal(TOKENS), padding=np.zeros((TOKENS, TOKENS), bool))
        trace = trace_of(head_figure(view, dark=False), "blocked")
        assert "<br>blocked by causal<br>scaled score %{z:.3f}" in trace.hovertemplate
        assert trace.text is None

    def test_of_several_reasons_every_cell_of_a_small_picture_has_its_own(self) -> None:
        view = view_of((TOKENS, TOKENS), causal=causal(TOKENS), padding=padded(TOKENS, 2, "right"))
        trace = trace_of(head_figure(view, dark=False), "blocked")
        assert "%{text}" in trace.hovertemplate
        text = np.array(trace.text)
        for words, cells in blocked_groups(view):
            np.testing.assert_array_equal(text == words, cells)

    def test_in_a_large_picture_a_cells_digits_are_the_masks_that_block_it(self) -> None:
        tokens = int(MAX_CELLS_WITH_TEXT**0.5) + 1
        masks = {"causal": causal(tokens), "window": np.zeros((tokens, tokens), bool), "padding": padded(tokens, 5)}
        masks["drawn"] = np.arange(tokens**2).reshape(tokens, tokens) % 7 == 0
        trace = trace_of(head_figure(view_of((tokens, tokens), **masks), dark=False), "blocked")
        assert "blocked by %{text} (1 causal, 2 padding, 3 drawn)" in trace.hovertemplate
        digits = np.array(trace.text)
        assert digits.itemsize == 1
        order = ("causal", "padding", "drawn")
        for number in (0, 1, 2, 3, 12, 13, 23, 123):
            found = [masks[name] == (str(digit) in str(number)) for digit, name in enumerate(order, 1)]
            np.testing.assert_array_equal(digits == number, np.all(found, axis=0))
            assert (digits == number).any()

    def test_in_a_large_picture_of_more_masks_than_digits_each_combination_has_a_number(self) -> None:
        tokens = int(MAX_CELLS_WITH_TEXT**0.5) + 1
        masks = {name: np.tri(tokens, k=-at, dtype=bool) for at, name in enumerate(MASK_COLOURS)}
        view = view_of((tokens, tokens), **masks)
        assert len(masks) > 9
        shown, text = reasons(view)
        for words, cells in blocked_groups(view):
            (number,) = set(text[cells].tolist())
            assert (text == number).sum() == cells.sum()
            assert f"{number} {words.removeprefix('blocked by ')}" in shown

    def test_rows_with_nothing_to_attend_to_say_so(self) -> None:
        view = view_of((TOKENS, TOKENS), causal=causal(TOKENS), padding=padded(TOKENS, 3))
        assert empty_runs(view) == [(0, 2)]
        figure = head_figure(view, dark=False)
        (note,) = [note for note in figure.layout.annotations if "nothing" in note.text]
        assert note.y == 1.0
        assert np.isnan(trace_of(figure, "weights").z[:3]).all()

    @pytest.mark.parametrize("step", [1, 2])
    def test_a_part_says_so_of_rows_that_have_nothing_in_the_whole_either(self, step: int) -> None:
        whole = view_of((TOKENS, TOKENS), causal=causal(TOKENS), padding=padded(TOKENS, 4))
        rows, columns = (0, 5), (5, TOKENS)
        part = cropped(whole, rows, columns)
        assert part.any_blocked().all()
        assert empty_runs(coarser(part, -(-5 // step))) == [(0, 4 // step - 1)]
        change = changed(part, cropped(view_of((TOKENS, TOKENS), padding=padded(TOKENS, 1)), rows, columns))
        assert empty_runs(change) == []

    @pytest.mark.parametrize(
        ("empty", "runs"), [([], []), ([0], [(0, 0)]), ([1, 2, 4], [(1, 2), (4, 4)]), ([5], [(5, 5)])]
    )
    def test_runs_of_empty_rows(self, empty: list[int], runs: list[tuple[int, int]]) -> None:
        mask = np.zeros((6, 4), bool)
        mask[empty] = True
        assert empty_runs(view_of((6, 4), padding=mask)) == runs


class TestComparison:
    now, standard = view_of((TOKENS, TOKENS), 1), view_of((TOKENS, TOKENS), 1, causal=causal(TOKENS))

    def test_both_sides_have_one_colour_range(self) -> None:
        figure = comparison_figure(self.now, self.standard, dark=False)
        left, right = trace_of(figure, "weights"), trace_of(figure, "weights", "x2")
        assert left.zmin == right.zmin == 0
        assert left.zmax == right.zmax == head_range(self.now, self.standard)
        assert left.zmax >= max(self.now.weights.max(), self.standard.weights.max()) - 1e-4
        assert left.colorscale == right.colorscale

    def test_each_side_shows_its_own_weights_and_its_own_blocked_cells(self) -> None:
        figure = comparison_figure(self.now, self.standard, dark=False)
        np.testing.assert_array_equal(trace_of(figure, "weights").z, self.now.weights)
        right = trace_of(figure, "weights", "x2").z
        np.testing.assert_array_equal(np.isnan(right), causal(TOKENS))
        np.testing.assert_array_equal(hatched(figure, "x2"), causal(TOKENS))
        assert {image.xref for image in figure.layout.images} == {"x2"}

    def test_the_difference_is_now_less_standard_on_a_scale_with_0_in_the_middle(self) -> None:
        trace = trace_of(comparison_figure(self.now, self.standard, dark=False), "difference", "x3")
        np.testing.assert_array_equal(trace.z, self.now.weights - self.standard.weights)
        assert trace.zmin == -trace.zmax
        assert trace.zmax == pytest.approx(np.abs(trace.z).max())
        assert trace.colorscale[len(trace.colorscale) // 2][0] == 0.5

    def test_cells_that_both_block_have_no_difference_and_cells_that_one_blocks_do(self) -> None:
        one = view_of((TOKENS, TOKENS), causal=causal(TOKENS), padding=padded(TOKENS, 2))
        other = view_of((TOKENS, TOKENS), padding=padded(TOKENS, 2))
        z = trace_of(comparison_figure(other, one, dark=True), "difference", "x3").z
        np.testing.assert_array_equal(np.isnan(z), padded(TOKENS, 2))

    def test_a_coarse_difference_is_the_patchs_change_of_largest_size_with_its_sign(self) -> None:
        tokens = MAX_CELLS * 2
        now, standard = view_of((tokens, tokens), 2), view_of((tokens, tokens), 3)
        now.weights[10, 21], standard.weights[10, 21] = 0.1, 0.9
        now.weights[11, 20], standard.weights[11, 20] = 0.9, 0.2
        (trace,) = difference_figure(now, standard, dark=False).data
        found = np.array(trace.z)
        assert found.shape == (MAX_CELLS, MAX_CELLS)
        assert found[5, 10] == pytest.approx(-0.8)

    def test_the_three_pictures_say_which_they_are_and_zoom_together(self) -> None:
        layout = comparison_figure(self.now, self.standard, dark=False).layout
        texts = " ".join(note.text for note in layout.annotations)
        assert "now" in texts
        assert "standard masks" in texts
        assert "now − standard" in texts
        assert {layout[f"{axis}axis{number}"].matches for axis in "xy" for number in (2, 3)} == {"x", "y"}

    def test_two_texts_that_differ_in_a_token_share_every_place_of_the_axes(self) -> None:
        labels = [*LABELS[:2], "·dog", *LABELS[3:]]
        one, other = labelled(LABELS, causal=causal(TOKENS)), labelled(labels, causal=causal(TOKENS))
        figure = comparison_figure(one, other, dark=False)
        for axis in "xy":
            assert len({name for trace in figure.data for name in trace[axis]}) == TOKENS
            assert {trace[axis][2] for trace in figure.data} == {"2: ·cat / ·dog"}
        assert figure.layout.xaxis.ticktext[2] == "·cat", "the large picture's own token"


class TestSize:
    @pytest.mark.parametrize("tokens", [80, MAX_CELLS, 512, 2048])
    def test_a_comparison_under_every_mask_takes_at_most_1_200_000_bytes(self, tokens: int) -> None:
        masks = every_mask(tokens)
        now, standard = view_of((tokens, tokens), 1, **masks), view_of((tokens, tokens), 2, **masks)
        figure = comparison_figure(now, standard, dark=False)
        assert len(figure.data) == 5, "three pictures, and two layers of tooltips"
        assert len(figure.layout.images) == 3
        assert len(figure.to_json()) <= MAX_BYTES

    def test_every_property_is_one_that_plotly_knows(self) -> None:
        one = view_of((TOKENS, 5), causal=causal(TOKENS)[:, :5], padding=padded(TOKENS, 2)[:, :5])
        for figure in (
            head_figure(one, dark=False, wide=WIDE),
            comparison_figure(view_of((TOKENS, 5)), one, dark=True),
            difference_figure(view_of((TOKENS, 5)), one, dark=True),
        ):
            go.Figure(figure.to_dict())  # raises ValueError for an unknown one


class TestRoom:
    def test_the_large_picture_has_the_same_place_alone_and_compared(self) -> None:
        view = view_of((TOKENS, TOKENS), causal=causal(TOKENS))
        alone, compared = (
            head_figure(view, dark=False, wide=WIDE).layout,
            comparison_figure(view, view, dark=False).layout,
        )
        assert alone.xaxis.domain == compared.xaxis.domain
        assert alone.margin == compared.margin

    def test_small_pictures_are_square_where_the_large_one_is(self) -> None:
        layout = comparison_figure(view_of((TOKENS, TOKENS)), view_of((TOKENS, TOKENS)), dark=False).layout
        for number in (2, 3):
            (left, right), (low, high) = layout[f"xaxis{number}"].domain, layout[f"yaxis{number}"].domain
            assert (right - left) * WIDE == pytest.approx(high - low)

    def test_the_colour_bar_is_as_tall_as_the_picture_and_at_its_side(self) -> None:
        for shape, x, tall in (((6, 6), 1, 1), ((6, 3), 0.5, 1), ((3, 6), 1, 0.5)):
            bar = trace_of(head_figure(view_of(shape), dark=False), "weights").colorbar
            assert (bar.x, bar.y, bar.len) == (x, 1, tall)

    def test_in_a_room_as_low_as_its_picture_the_bar_is_as_tall_as_the_room(self) -> None:
        bar = trace_of(head_figure(view_of((3, 6)), dark=False, tall=0.5), "weights").colorbar
        assert (bar.x, bar.y, bar.len) == (1, 1, 1)


def every_mask(tokens: int) -> dict[str, np.ndarray]:
    """Return all seven masks that block, with a drawn one without any order, which takes most bytes."""
    query, key = np.indices((tokens, tokens))
    return {
        "causal": key > query,
        "padding": key < tokens // 10,
        "window": query - key > tokens // 3,
        "sliding": abs(query - key) > tokens // 4,
        "stride": (query - key) % 3 == 1,
        "documents": query // 29 != key // 29,
        "drawn": np.random.default_rng(5).random((tokens, tokens)) < 0.3,
    }


class TestColourRange:
    @pytest.mark.parametrize(
        ("largest", "expected"), [(0.0, 0.01), (0.001, 0.01), (0.293, 0.3), (0.3, 0.3), (0.301, 0.31), (1.0, 1.0)]
    )
    def test_is_the_largest_weight_rounded_up_to_hundredths(self, largest: float, expected: float) -> None:
        assert colour_range(np.zeros((2, 2), np.float32), np.array([[largest]], np.float32)) == expected

    def test_a_softmax_that_is_a_little_more_than_1_ends_at_1(self) -> None:
        assert colour_range(np.array([np.nextafter(np.float32(1), np.float32(2))])) == 1.0


class TestCoarser:
    def test_a_small_view_stays_what_it_is(self) -> None:
        view = view_of((8, 6))
        assert coarser(view, 8) is view

    @pytest.mark.parametrize(("shape", "most"), [((12, 12), 5), ((13, 7), 4), ((7, 13), 6), ((9, 9), 1)])
    def test_each_cell_is_the_largest_of_its_patch(self, shape: tuple[int, int], most: int) -> None:
        view = view_of(shape, padding=padded(max(shape), 3)[: shape[0], : shape[1]])
        small = coarser(view, most)
        assert max(small.weights.shape) <= most
        for row, column in np.ndindex(small.weights.shape):
            patch = np.s_[row * small.step : (row + 1) * small.step, column * small.step : (column + 1) * small.step]
            assert small.weights[row, column] == view.weights[patch].max()
            seen = view.scaled[patch][~view.any_blocked()[patch]]
            assert small.scaled[row, column] == (seen if seen.size else view.scaled[patch]).max()
            assert small.any_blocked()[row, column] == view.any_blocked()[patch].all()

    def test_a_patch_that_masks_block_only_together_is_blocked_by_both(self) -> None:
        left = np.array([[True, False], [True, False]])
        small = coarser(view_of((2, 2), padding=left, window=~left), 1)
        assert small.blocked["padding"].all()
        assert small.blocked["window"].all()
        assert coarser(view_of((2, 2), padding=left), 1).any_blocked().sum() == 0

    def test_its_labels_name_the_positions_of_the_patch(self) -> None:
        trace = trace_of(head_figure(view_of((MAX_CELLS * 2, 3)), dark=False), "weights")
        assert trace.y[0] == "0–1: q0q1"
        assert trace.y[-1] == f"{MAX_CELLS * 2 - 2}–{MAX_CELLS * 2 - 1}: q{MAX_CELLS * 2 - 2}q{MAX_CELLS * 2 - 1}"

    @pytest.mark.parametrize(("rows", "last"), [(9, "8: q8"), (10, "8–9: q8q9"), (11, "8–10: q8q9q10")])
    def test_the_last_patch_names_no_position_that_is_not_there(self, rows: int, last: str) -> None:
        names = axis_names(coarser(view_of((rows, 5)), step=4))
        assert (names["y"][-1], names["x"][-1]) == (last, "4: k4")
