"""Tests of the numbers of a figure as tables. Run: python -m pytest tests/viz/test_figure_table.py"""

import numpy as np

from model.heads.view import HeadView
from viz.charts import bars, coloured_cells, flat, of_tokens, scatter
from viz.figure_table import MAX_COLUMNS, MAX_ROWS, figure_tables, values
from viz.head import comparison_figure, head_figure
from viz.heatmap import figure

CAUSAL = {"causal": np.triu(np.ones((3, 3), bool), 1)}
WEIGHTS = np.array([[1, 0, 0], [0.25, 0.75, 0], [0.5, 0.125, 0.375]], np.float32)
VIEW = HeadView(WEIGHTS, WEIGHTS, CAUSAL, ["<s>", "a&b", "·c"], ["<s>", "a&b", "·c"])


def test_a_heatmap_is_a_table_whose_blocked_cells_say_so() -> None:
    (found,) = figure_tables(head_figure(VIEW, dark=False))
    assert found.table.columns.tolist() == found.table.index.tolist() == ["0: <s>", "1: a&b", "2: ·c"]
    rows = [["1", "blocked", "blocked"], ["0.25", "0.75", "blocked"], ["0.5", "0.125", "0.375"]]
    assert found.table.to_numpy().tolist() == rows
    assert (found.title, found.left_out) == ("weight", "")


def test_pictures_side_by_side_are_a_table_each() -> None:
    lifted = HeadView(WEIGHTS, WEIGHTS, {}, VIEW.queries, VIEW.keys)
    found = figure_tables(comparison_figure(lifted, VIEW, dark=True))
    assert [one.title for one in found] == ["now", "standard masks", "now − standard"]
    assert found[0].table.iloc[0, 1] == "0"
    assert found[1].table.iloc[0, 1] == "blocked"


def test_bars_and_lines_over_the_same_x_are_columns() -> None:
    x = ["0: a", "1: b"]
    traces = [bars(x, np.array([1.5, 2.0]), "now", "", "red"), scatter(x, [3.0, np.nan], "standard", "%{y}")]
    traces += [scatter([5, 7], [2, 4], "points", "%{y}"), scatter([0, 1], [0, 1], "guide")]
    one, other = figure_tables(figure(traces, {}))
    assert one.table.to_dict() == {"now": {"0: a": "1.5", "1: b": "2"}, "standard": {"0: a": "3", "1: b": ""}}
    assert other.table.to_dict() == {"points": {"5": "2", "7": "4"}}


def test_heights_without_an_axis_are_no_numbers() -> None:
    traces = [
        bars(["a"], np.array([0.5]), "weight", "", "red"),
        scatter(["b"], [0.0], "to point at", "%{x}", yaxis="y2"),
    ]
    (found,) = figure_tables(figure(traces, {"yaxis2": {"visible": False}}))
    assert found.table.to_dict() == {"weight": {"a": "0.5"}}


def test_places_are_called_as_their_ticks_are_where_each_has_one() -> None:
    ticks = {"tickvals": [0, 1], "ticktext": ["itself", "1–<b>2</b>"]}
    (found,) = figure_tables(figure([bars([0, 1], np.array([0.25, 0.75]), "share", "", "red")], {"xaxis": ticks}))
    assert found.table.to_dict() == {"share": {"itself": "0.25", "1–2": "0.75"}}
    (found,) = figure_tables(figure([bars([0, 1, 2], np.ones(3), "share", "", "red")], {"xaxis": ticks}))
    assert found.table.index.tolist() == ["0", "1", "2"]


def test_colours_that_stand_for_something_are_what_they_stand_for() -> None:
    names = [f"call {number}" for number in range(1, 9)]
    calls = np.array([[0, -1, -1], [6, 7, -1]])
    (found,) = figure_tables(coloured_cells(calls, ["red", "green", "blue"], names, *of_tokens(["a", "b", "c"])))
    assert found.table.to_numpy().tolist() == [["call 1", "", ""], ["call 7", "call 8", ""]]
    assert found.table.columns.tolist() == ["a", "b", "c"]
    cells = flat(VIEW, ~CAUSAL["causal"], "red", "open", "<b>%{y}</b> may attend to <b>%{x}</b>")
    (found,) = figure_tables(figure([cells], {}))
    assert found.title == "row may attend to column"
    assert found.table.to_numpy().tolist() == [["yes", "", ""], ["yes", "yes", ""], ["yes", "yes", "yes"]]


def test_points_that_have_names_are_rows_by_them() -> None:
    points = scatter([0.5, 0.5], [0.25, 1], "heads", "%{text}", text=["<b>L0 H0</b>", "<b>L0 H1</b>, induction"])
    (found,) = figure_tables(figure([points], {"xaxis": {"title": {"text": "previous token"}}}))
    assert found.table.to_dict("index") == {
        "L0 H0": {"previous token": "0.5", "y": "0.25"},
        "L0 H1, induction": {"previous token": "0.5", "y": "1"},
    }


def test_a_large_picture_is_cut_and_says_so() -> None:
    side = 2 * MAX_ROWS
    labels = ["x"] * side
    weights = np.full((side, side), 1 / side, np.float32)
    (found,) = figure_tables(figure([{"type": "heatmap", "z": weights, "x": labels, "y": labels}], {}))
    assert found.table.shape == (MAX_ROWS, MAX_COLUMNS)
    assert found.left_out.startswith("128 of 256 rows and 64 of 256 columns")


def test_numbers_are_read_as_the_figure_writes_them() -> None:
    written = figure([{"type": "heatmap", "z": WEIGHTS}], {}).to_dict()["data"][0]["z"]
    np.testing.assert_array_equal(values(written), WEIGHTS)
