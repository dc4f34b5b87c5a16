"""Tests of the twins' figures and tables: their values, colours and labels."""

import re

import numpy as np
import pytest

from viz.figure_table import figure_tables
from viz.palette import NOW, STANDARD
from viz.why_causal.charts import Curve, TwinCard, change_bars, copies, four, loss_curves, nats, token_losses

PIECES = ["<start>", "<b>", "·the", "·the", "&"]


def test_a_curve_is_blue_with_the_mask_red_without_and_dotted_under_the_other() -> None:
    lines = [Curve("with", [1, 2], [3.0, 2.0], True), Curve("back", [1, 2], [3.0, 9.0], False, dotted=True)]
    one, other = loss_curves(lines, unit="nats").data
    assert (one.line.color, one.line.dash) == (STANDARD, "solid")
    assert (other.line.color, other.line.dash) == (NOW, "dot")
    np.testing.assert_array_equal(other.y, [3.0, 9.0])


def test_a_growing_curve_has_an_axis_as_long_as_the_training() -> None:
    figure = loss_curves([Curve("1", [5, 10], [3, 2], True)], unit="nats", steps=300)
    assert tuple(figure.layout.xaxis.range) == (0, 300)


def test_a_training_without_a_step_is_an_empty_curve_and_no_error() -> None:
    (trace,) = loss_curves([Curve("1", (), (), False)], unit="nats", steps=100).data
    assert len(trace.y) == 0


def test_the_one_loss_of_a_text_of_one_token_is_a_point_for_no_line_joins_it() -> None:
    (one,) = token_losses([Curve("1", range(2), [np.nan, 3.0], True)], PIECES[:2]).data
    (more,) = token_losses([Curve("1", range(3), [np.nan, 3.0, 2.0], True)], PIECES[:3]).data
    assert (one.mode, more.mode) == ("markers", "lines")


def test_one_point_a_combination_tells_the_four_apart() -> None:
    ways = [(trained, dotted) for trained in (True, False) for dotted in (True, False)]
    lines = [Curve("", range(2), [np.nan, 3.0], trained, dotted) for trained, dotted in ways]
    points = token_losses(lines, PIECES[:2]).data
    assert len({(point.line.color, point.marker.symbol) for point in points}) == 4


def test_repeated_and_odd_tokens_have_their_own_places() -> None:
    figure = token_losses([Curve("1", range(5), [np.nan, 1, 2, 3, 4], True)], PIECES)
    assert list(figure.layout.xaxis.tickvals) == [0, 1, 2, 3, 4]
    assert figure.layout.xaxis.ticktext[1] == "&lt;b&gt;"


def test_bars_before_the_changed_token_are_red_and_all_rows_have_one_scale() -> None:
    moved = {"on": np.array([0, 0, 0, 2, 1], np.float32), "off": np.array([0.5, 1, 4, 3, 1], np.float32)}
    figure = change_bars(moved, PIECES, 3)
    for bars, values in zip(figure.data, moved.values(), strict=True):
        np.testing.assert_array_equal(bars.y, values)
        assert [colour == NOW for colour in bars.marker.color] == [True, True, True, False, False]
    assert figure.layout.yaxis.range == figure.layout.yaxis2.range
    assert figure.layout.yaxis.range[1] >= 4
    assert "&lt;b&gt;" in figure.data[0].customdata[1]


def test_a_table_s_rows_are_the_positions_with_their_tokens() -> None:
    losses = token_losses([Curve("1", range(5), [np.nan, 1, 2, 3, 4], True)], PIECES)
    changes = change_bars({"on": np.zeros(5, np.float32), "off": np.arange(5, dtype=np.float32)}, PIECES, 3)
    for figure in (losses, changes):
        (found,) = figure_tables(figure)
        assert found.table.index.tolist() == ["0: <start>", "1: <b>", "2: ·the", "3: ·the", "4: &"]


def test_bars_of_a_change_that_moves_nothing_have_a_scale_all_the_same() -> None:
    figure = change_bars({"on": np.zeros(5, np.float32)}, PIECES, 2)
    assert figure.layout.yaxis.range[1] > 0


def test_a_card_shows_its_numbers_and_no_markup_of_a_text() -> None:
    html = four([TwinCard(True, False, 4.6789, 0.136, "<b>Once", " a\n<i>time", 7, 48)])
    assert "trained <b>with</b> the mask, run <b>without</b>" in html
    assert re.findall(r"<b>([^<]+)</b> (?:nats|predicted|distinct)", html) == ["4.68", "13.6%", "7"]
    assert "&lt;b&gt;Once" in html
    assert "⏎&lt;i&gt;time" in html


def test_copy_scores_are_in_their_places_and_the_chosen_one_is_framed() -> None:
    html = copies(np.array([[0.5, 0.0, 0.25], [1.0, 0.125, 0.75]]), (1, 2))
    assert re.findall(r"<td[^>]*>(.*?)</td>", html) == ["50.0%", "0%", "25.0%", "100%", "12.5%", "75.0%"]
    assert re.findall(r'class="chosen"[^>]*>(.*?)<', html) == ["75.0%"]


@pytest.mark.parametrize(("loss", "shown"), [(15.402, "15.40"), (0.0312, "0.031"), (0.0004, "under 0.001")])
def test_small_losses_are_not_rounded_to_nothing(loss: float, shown: str) -> None:
    assert nats(loss) == shown
