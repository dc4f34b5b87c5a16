"""Tests of bars, tables and colours of one head: their content, and whether their sentences are true."""

import re
from dataclasses import replace

import numpy as np
import pytest

from model.attribution.parts import DirectEffect, ScoreSplit, ValueWeightedAttention
from model.heads.view import HeadView
from tests.pages.page import array
from tests.viz.heads.test_tokens import read
from tests.viz.markup import plain
from tests.viz.views import causal, padded, view_of
from viz.head import head_figure
from viz.heads.attribution import (
    MAX_KEYS,
    MAX_PAIRS,
    contribution_sentence,
    contributions_table,
    effect_table,
    largest_dimensions,
    pairs_table,
    sources_table,
    strips_figure,
    sum_words,
)
from viz.heads.bars import (
    MAX_SORTED,
    BarRow,
    bars_figure,
    remaining_keys_sentence,
    row_of,
    weight_distribution_sentence,
)
from viz.heads.colours import MAX_ROWS, PALETTES, STANDARD_COLOURS, STEP, Colours, numbers_table, shown
from viz.heads.tokens import COLOURS, MIN_LINE, SMALLEST_LINE, arcs_packet, least_line
from viz.html import signed
from viz.palette import SEQUENTIAL_SCALE


def view_with(*weights: float, blocked: tuple[int, ...] = ()) -> HeadView:
    """Return a view whose last query has these weights."""
    size = len(weights)
    mask = np.zeros((size, size), bool)
    mask[-1, list(blocked)] = True
    table = np.zeros((size, size), np.float32)
    table[-1] = weights
    names = [f"t{index}" for index in range(size)]
    return HeadView(table, table, {"causal": mask}, names, names)


class TestBars:
    def test_in_order_every_key_has_its_bar_and_blocked_ones_a_cross(self) -> None:
        view = view_of((7, 7), causal=causal(7), padding=padded(7, 2))
        figure = bars_figure(row_of(view, None, 4), largest_first=False).to_dict()
        bars, *crosses = figure["data"]
        np.testing.assert_array_equal(np.isnan(array(bars["y"])), view.any_blocked()[4])
        np.testing.assert_array_equal(array(bars["y"])[2:5], view.weights[4, 2:5])
        assert bars["x"][3] == "3: k3"
        crossed = {name: trace["name"] for trace in crosses for name in trace["x"]}
        assert crossed == {"0: k0": "blocked by padding", "1: k1": "blocked by padding", "5: k5": "blocked by causal",
                           "6: k6": "blocked by causal"}  # fmt: skip

    def test_largest_first_leaves_out_the_smallest_and_says_what_they_hold(self) -> None:
        size = MAX_SORTED + 9
        row = row_of(view_of((size, size)), None, 3)
        (bars,) = bars_figure(row, largest_first=True).to_dict()["data"]
        assert len(array(bars["y"])) == MAX_SORTED
        assert (np.diff(array(bars["y"])) <= 0).all()
        left = np.sort(row.now)[:9].sum()
        assert remaining_keys_sentence(row, MAX_SORTED) == f"All other keys (9): {left * 100:.1f}% of the weight."
        assert remaining_keys_sentence(row, size) == ""
        twice = replace(row, view=replace(row.view, weights=2 * row.view.weights))  # as the sum of two queries
        assert remaining_keys_sentence(twice, MAX_SORTED) == remaining_keys_sentence(row, MAX_SORTED)

    def test_what_a_sink_has_given_up_has_moved(self) -> None:
        view = view_with(0.05, 0.26)
        assert "26.0% of its weight has moved" in weight_distribution_sentence(row_of(view, view_with(0.05, 0.0), 1))

    def test_of_a_sum_its_weights_are_named_and_the_share_is_of_one_query(self) -> None:
        of_means = row_of(view_with(0.05, 0.26), view_with(0.05, 0.0), 1)
        assert of_means.standard is not None
        views = [replace(view, weights=3 * view.weights) for view in (of_means.view, of_means.standard)]
        words = weight_distribution_sentence(of_means, BarRow(*views))
        assert "26.0% of its weight has moved" in words
        assert re.search(r"\(0.* → 0\.78", words), words

    def test_of_merged_keys_it_is_not_said_how_much_is_on_blocked_ones(self) -> None:
        row = row_of(view_with(0.05, 0.26), view_with(0.05, 0.0, blocked=(1,)), 1)
        assert "26.0% of its weight is on keys that those block" in weight_distribution_sentence(row)
        words = weight_distribution_sentence(replace(row, view=replace(row.view, merged=True)))
        assert "26.0% of its weight has moved compared with the standard masks." in words
        assert "block" not in words

    def test_a_token_s_label_is_text(self) -> None:
        now = replace(view_with(0.1, 0.9), keys=["<b>", "<i>"], queries=["<b>", "<i>"])
        words = weight_distribution_sentence(row_of(now, replace(now, weights=now.weights[:, ::-1]), 1))
        assert "1: &lt;i&gt;" in words
        assert "<i>" not in words


class TestColours:
    def test_the_standard_ones_are_the_picture_itself(self) -> None:
        view = view_of((5, 5), causal=causal(5))
        picture = head_figure(view, dark=False)
        assert STANDARD_COLOURS.recolour(picture, view) is picture
        np.testing.assert_allclose([stop for stop, _ in STANDARD_COLOURS.scale()], [s for s, _ in SEQUENTIAL_SCALE])

    @pytest.mark.parametrize("palette", PALETTES)
    def test_others_are_a_picture_of_their_own(self, palette: str) -> None:
        view = view_of((5, 5), causal=causal(5))
        picture = head_figure(view, dark=False)
        before = picture.to_json()
        given = Colours(palette, "one", "linear").recolour(picture, view).to_dict()
        (weights,) = [trace for trace in given["data"] if trace["name"] == "weights"]
        assert (weights["zmax"], weights["colorbar"]["title"]["text"]) == (1.0, "weight, linear")
        assert picture.to_json() == before

    def test_the_percentile_is_that_of_the_cells_that_are_not_blocked(self) -> None:
        view = view_of((31, 31), causal=causal(31))
        free = view.weights[~view.any_blocked()]
        top = Colours(range="percentile").top(view)
        assert np.percentile(free, 99) <= top <= np.percentile(free, 99) + 0.001
        assert Colours(range="largest").top(view) >= free.max()

    def test_they_say_what_they_mean(self) -> None:
        assert STANDARD_COLOURS.words(0.7) == (
            "Colours run from 0 to 0.70; brightness is the square root of the weight."
        )
        assert "the 1% of weights above it all look the same" in Colours(range="percentile").words(0.123)


def test_the_table_of_numbers_names_every_mask_that_blocks() -> None:
    view = view_of((5, 5), causal=causal(5), padding=padded(5, 1))
    table = numbers_table(view)
    assert table.iloc[0, 1] == "causal"
    assert table.iloc[0, 0] == "padding"
    every = view_of((3, 3), causal=causal(3), padding=padded(3, 2, "right"), sliding=causal(3))
    assert numbers_table(every).iloc[0, 2] == "causal, padding and sliding"
    assert list(table.columns) == [f"{index}: k{index}" for index in range(5)]


def test_a_query_that_moves_by_one_moves_in_its_table_and_is_always_in_it() -> None:
    view = view_of((200, 200))
    tables = [shown(view, (7, 190), query) for query in range(7, 190)]
    assert all(one.first <= query < one.first + MAX_ROWS for query, one in enumerate(tables, 7))
    assert all(one.weights.shape == (MAX_ROWS, MAX_ROWS) for one in tables)
    assert len({one.first for one in tables}) <= 183 // STEP + 1


def test_arcs_have_the_chosen_head_first_and_a_colour_each() -> None:
    views = [view_of((5, 5), seed, causal=causal(5)) for seed in range(3)]
    header, weights, reasons = read(
        arcs_packet(views, ["L1 H2", "L1 H0", "L1 H4"], query=3, among=(0, 5), first_token=1), 3
    )
    assert (header["name"], header["colours"]) == ("L1 H2", list(COLOURS[:3]))
    assert len(set(COLOURS)) == len(COLOURS)
    for number, view in enumerate(views):
        np.testing.assert_array_equal(weights[number], view.weights)
        np.testing.assert_array_equal(reasons[number] > 0, view.any_blocked())


class TestTheSmallestWeightOfALine:
    def scaled(self, largest: float) -> HeadView:
        view = view_of((11, 11), causal=causal(11))
        return replace(view, weights=view.weights * np.float32(largest) / view.weights.max())

    def test_is_a_tenth_where_that_leaves_lines(self) -> None:
        view = view_of((11, 11), causal=causal(11))
        assert (view.weights >= MIN_LINE).sum() > 11
        assert least_line(view) == MIN_LINE

    @pytest.mark.parametrize("largest", [0.09, 0.0032])
    def test_where_attention_is_spread_wide_it_leaves_a_line_for_every_second_query(self, largest: float) -> None:
        view = self.scaled(largest)
        smallest = least_line(view)
        header, _, _ = read(arcs_packet([view], ["L1 H2"], query=3, among=(0, 11), first_token=0))
        assert header["suggested"] == smallest < largest
        assert (view.weights >= smallest).sum() > 11 // 2
        assert f"{smallest:.1g}" == f"{smallest:g}", "one digit, to be read"

    def test_has_four_digits_at_the_most(self) -> None:
        assert least_line(self.scaled(1e-6)) == SMALLEST_LINE

    def test_where_nothing_is_looked_at_it_is_the_usual(self) -> None:
        assert least_line(replace(view_of((3, 3)), weights=np.zeros((3, 3), np.float32))) == MIN_LINE


def moving(weights: list[float], norms: list[float]) -> ValueWeightedAttention:
    weight, norm = np.array(weights, np.float32), np.array(norms, np.float32)
    return ValueWeightedAttention(weight, norm, weight * norm, None, None)


class TestCarried:
    def test_the_sentence_names_the_key_whose_share_differs_most(self) -> None:
        found = moving([0.8, 0.1, 0.1], [1, 8, 8])  # moved: 0.8, 0.8, 0.8
        assert plain(contribution_sentence(found, "2: c", ["a", "b", "c"])) == (
            "2: c gives 0: a 80.0% of its weight; 33.3% of the weighted values come from that key, whose value vector "
            "has norm 1 (weighted mean over all keys: 2.4)."
        )
        long = moving([0.4, 0.3, 0.3], [8, 1, 1])
        assert "whose value vector has norm 8 (weighted mean over all keys: 3.8)." in plain(
            contribution_sentence(long, "2: c", ["a", "b", "c"])
        )

    def test_where_values_are_alike_it_says_that_they_are(self) -> None:
        words = plain(contribution_sentence(moving([0.7, 0.3, 0], [4, 4.1, 90]), "2: c", ["a", "b", "c"]))
        assert "no key's share differs by 5 percentage points. The norms of the values are between 4 and 4.1." in words

    def test_of_one_key_nothing_is_compared(self) -> None:
        assert plain(contribution_sentence(moving([0, 1, 0], [1, 2.05, 3]), "2: c", ["a", "b", "c"])) == (
            "2: c attends to 1: b alone, whose value vector has norm 2.05."
        )

    def test_a_row_that_looks_at_nothing_carries_nothing(self) -> None:
        assert "its output is 0" in contribution_sentence(moving([0, 0], [1, 2]), "1: b", ["a", "b"])
        assert plain(contributions_table(moving([0, 0], [1, 2]), ["a", "b"])) == "key|v|weightweight × |v|"

    def test_the_rest_of_many_keys_is_added_up(self) -> None:
        size = MAX_KEYS + 5
        weights = np.full(size, 0.01) + np.r_[np.full(MAX_KEYS, 0.05), np.zeros(5)]
        table = plain(contributions_table(moving(list(weights), [2.0] * size), [f"t{index}" for index in range(size)]))
        assert table.endswith("the other 50.05000.100")

    def test_effects_have_signs_and_labels_are_text(self) -> None:
        table = effect_table(DirectEffect((("<b>", 1.5),), (("down", -0.25),), 0.1))
        assert "&lt;b&gt;" in table
        assert plain(table).endswith("+1.500down−0.250")

    def test_a_head_that_adds_nothing_pushes_no_token(self) -> None:
        """A query whose keys are all blocked has this effect."""
        nothing = effect_table(DirectEffect((("$", 0.0),), (("a", 0.0),), 0.0))
        assert "adds nothing" in nothing
        assert "$" not in nothing

    @pytest.mark.parametrize(("value", "text"), [(1.25, "+1.250"), (-1.25, "−1.250"), (0.0001, "0.000"), (0, "0.000")])
    def test_signed(self, value: float, text: str) -> None:
        assert signed(value) == text


def split() -> ScoreSplit:
    chance = np.random.default_rng(5)
    q, k, terms = chance.normal(size=7), chance.normal(size=7), chance.normal(size=(11, 11))
    score = float((q * k).sum() * 0.5)
    terms += (score - terms.sum()) / terms.size
    return ScoreSplit(q, k, 0.5, q * k * 0.5, score, sources=tuple(f"s{index}" for index in range(11)), terms=terms)


class TestScoreSplit:
    @pytest.mark.parametrize("table", ["pairs", "query", "key"])
    def test_what_a_table_shows_sums_to_the_score(self, table: str) -> None:
        found = split()
        shown = pairs_table(found) if table == "pairs" else sources_table(found, table)
        texts = re.findall(r'class="number">([+−]?[\d.]+)<', shown)
        *terms, score = [float(text.replace("−", "-")) for text in texts]
        assert score == pytest.approx(found.score, abs=6e-4)
        assert sum(terms) == pytest.approx(score, abs=0.01)
        assert len(terms) == (MAX_PAIRS + 1 if table == "pairs" else 9)

    def test_the_strips_are_q_k_and_their_products(self) -> None:
        found = split()
        strips = strips_figure(found, dark=False).to_dict()["data"]
        for strip, values in zip(strips, (found.q, found.k, found.by_dimension), strict=True):
            np.testing.assert_allclose(array(strip["z"])[0], values, atol=1e-6)
        assert strips[0]["zmax"] == strips[1]["zmax"] == max(np.abs(found.q).max(), np.abs(found.k).max())
        largest = int(np.abs(found.by_dimension).argmax())
        assert f"dimensions {largest} (" in largest_dimensions(found)

    def test_a_cap_or_a_bias_of_the_model_is_told_and_a_blocked_cell_named(self) -> None:
        found = split()
        words = sum_words(found, "3: a", "1: b", score=found.score, weight="0.5000", blocked=[])
        assert words.endswith("× 0.5. Its weight is 0.5000.")
        found = replace(found, added=1.25, softcap=30.0)
        words = sum_words(found, "3: a", "1: b", score=7.5, weight="", blocked=["causal", "padding"])
        assert "caps it at ±30. The model adds its own bias, +1.250. +7.500 goes into the softmax." in words
        assert '<td class="wraps" colspan="2">the model&#39;s own bias' in pairs_table(found)
        never = sum_words(replace(found, added=-np.inf), "3: a", "1: b", score=-np.inf, weight="0", blocked=[])
        assert "The model adds its own bias, −∞. −∞ goes into the softmax." in never
        assert words.endswith("Blocked by causal and padding: the score has no effect.")
