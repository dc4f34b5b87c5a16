"""Tests of the tables of the value that blocks, and of masks before and after the softmax: each number in its row."""

from dataclasses import replace
from html import unescape

import pytest
import torch

from model.mask_lab.fills import DTYPES, FILLS, FillComparison, compare
from tests.viz.markup import cells_of
from viz.mask_lab.by_hand import fills_sentence, fills_table, order_sentence, order_table
from viz.numbers import percent

TOKENS = 13
ALLOWED = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()


def compared(spread: float = 3.0, allowed: torch.Tensor = ALLOWED, sink: float | None = None) -> FillComparison:
    return compare(torch.randn(allowed.shape, generator=torch.Generator().manual_seed(0)) * spread, allowed, sink)


class TestFills:
    def test_a_row_for_each_value_and_precision_and_our_own_at_the_end(self) -> None:
        rows = cells_of(fills_table(compared()))
        assert len(rows) == len(FILLS) * len(DTYPES) + 1
        assert [row[0] for row in rows[: -1 : len(DTYPES)]] == list(FILLS)
        assert rows[-1][0].startswith("Unmask")
        assert "0 everywhere" in rows[-1]

    def test_each_number_stands_in_its_row(self) -> None:
        found = compared()
        for one, row in zip(found.fills, cells_of(fills_table(found)), strict=False):
            row = row[-6:] if one.damage else row
            assert one.dtype in row
            if one.damage is None:
                assert row[-1] == f"does not fit: {one.overflow}"
            else:
                assert row[3:5] == [percent(one.damage.blocked_largest), percent(one.damage.blocked_total)]
                assert row[2].startswith("NaN" if one.name == "−∞" else "uniform: 0.07")

    def test_the_number_that_stands_in_the_cell_is_the_precisions_own(self) -> None:
        rows = cells_of(fills_table(compared()))
        written = {(list(FILLS)[index // 3], list(DTYPES)[index % 3]): row[-5] for index, row in enumerate(rows[:-1])
                   if len(row) >= 6}  # fmt: skip
        assert written["−∞", "float16"] == "−∞"
        assert written["finfo.min", "float32"] == "−3.4e38"
        assert written["finfo.min", "float16"] == "−65504"
        assert written["−1e9", "bfloat16"] == "−9.98e8"
        assert written["−1e4", "bfloat16"] == "−9984"

    def test_html_of_a_message_is_escaped(self) -> None:
        found = compared()
        fills = [replace(one, overflow=one.overflow and "a <script") for one in found.fills]
        assert "a &lt;script" in fills_table(replace(found, fills=tuple(fills)))


class TestOrder:
    def test_three_ways_in_three_precisions(self) -> None:
        rows = cells_of(order_table(compared()))
        assert len(rows) == 9
        assert [row[0] for row in rows[::3]] == [
            "before the softmax: −∞", "after it: multiply", "after it: multiply, then renormalize",
        ]  # fmt: skip

    def test_the_sums_are_those_measured(self) -> None:
        found = compared()
        lost = found.after[0].damage
        assert cells_of(order_table(found))[3][2] == f"{lost.least_total:.4f} to {lost.most_total:.4f}"


class TestSentences:
    def test_they_say_what_happened_to_the_blocked_row_what_leaks_and_what_does_not_fit(self) -> None:
        found = compared()
        words = fills_sentence(found)
        (leak,) = [one.damage.blocked_total for one in found.fills if one.name == "−10" and one.dtype == "float32"
                   if one.damage]  # fmt: skip
        assert "becomes NaN with: −∞; uniform attention over all 13 keys with: finfo.min, −1e20" in words
        assert f"on blocked cells in float32: {percent(leak)}, with −10." in words
        assert "What does not fit float16: −1e20, −1e9." in words

    def test_where_nothing_leaks_they_say_so(self) -> None:
        found = compare(torch.full((3, 3), 200.0), ALLOWED[:3, :3])
        assert "on blocked cells in float32: 0%," in fills_sentence(found)

    @pytest.mark.parametrize("allowed", [torch.ones(3, 3, dtype=torch.bool), torch.zeros(3, 3, dtype=torch.bool)])
    def test_where_nothing_or_everything_is_blocked_no_sentence_speaks_of_a_leak(self, allowed: torch.Tensor) -> None:
        found = compared(allowed=allowed)
        assert "attention on blocked cells" not in fills_sentence(found)
        assert "nan" not in fills_sentence(found) + fills_table(found) + order_table(found)
        assert order_sentence(found) == ""

    def test_of_the_order_how_little_a_row_keeps(self) -> None:
        found = compared()
        lost = found.after[0].damage
        assert f"keeps only {percent(lost.least_total)} of its attention" in unescape(order_sentence(found))
        assert "0 / 0" in order_sentence(found)

    @pytest.mark.parametrize(("blocked", "sink"), [(0, None), (-30, None), (-30, 4.0)])
    def test_of_a_blocked_cell_that_takes_nothing_no_share_is_told(self, blocked: float, sink: float | None) -> None:
        found = compare(torch.eye(2) * blocked, ~torch.eye(2, dtype=torch.bool), sink=sink)
        assert ("taken" in order_sentence(found)) == (blocked == 0)
        assert "Renormalized" in order_sentence(found)

    def test_rows_of_which_nothing_is_left_are_counted(self) -> None:
        found = compare(torch.tensor([[-200.0, 0.0], [0.0, 0.0]]), torch.tensor([[True, False], [True, True]]))
        assert "(1 of 2 rows here)" in order_sentence(found)
        assert "1 row NaN" in order_table(found)

    def test_beside_a_sink_the_order_is_held_against_what_that_leaves(self) -> None:
        found = compared(sink=4.0)
        right, lost = found.ours.damage, found.after[0].damage
        assert right.most_total < 0.99
        shares = [f"{percent(one.least_total)} to {percent(one.most_total)}" for one in (right, lost)]
        assert f"keeps {shares[0]} of its attention beside its sink; multiplied" in unescape(order_sentence(found))
        assert f"after it, {shares[1]}: the blocked" in unescape(order_sentence(found))

    def test_a_sink_leaves_no_nan(self) -> None:
        words = fills_sentence(compared(sink=0.5))
        assert "becomes NaN with: none;" in words

    def test_what_a_sink_leaves_a_fully_blocked_row_is_told_in_all(self) -> None:
        found = compared(sink=0.006)
        (empty,) = [one.empty for one in found.fills if (one.name, one.dtype) == ("−10", "float32")]
        assert "uniform: <0.1% on every key (13), 0.1% in all" in unescape(fills_table(found).striptags())
        assert "over all 13 keys with: −10 (0.1% in all)." in unescape(fills_sentence(found))
        assert empty.total == pytest.approx(13 / (13 + 2.718281828**10.006), rel=1e-3)
        assert "with: −10 (81.7% in all)." in fills_sentence(compared(sink=-8.93))
