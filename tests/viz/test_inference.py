"""Tests of the figures of the Serving page at lengths that a screen and a message of Streamlit's have no room for."""

import csv
import io
from types import SimpleNamespace
from typing import Any

import numpy as np

from viz.charts import MAX_SIDE
from viz.export.chart import as_csv
from viz.figure_table import figure_tables
from viz.inference import calls_figure, kernel_figure, tree_mask_figure

LENGTH, CHUNK = 1201, 7  # primes: the last call and the last cell are shorter
MOST_BYTES = 8e6  # Streamlit refuses messages of 20 MB


def served() -> Any:
    """Return what a CallsComparison has of chunked prefill: each call computes its triangle and all before it."""
    starts = range(0, LENGTH, CHUNK)
    cells = np.full((LENGTH, LENGTH), -1)
    for call, start in enumerate(starts):
        for query in range(start, min(start + CHUNK, LENGTH)):
            cells[query, : query + 1] = call
    calls = [(min(start + CHUNK, LENGTH) - start, min(start + CHUNK, LENGTH)) for start in starts]
    return SimpleNamespace(cells=cells, calls=calls)


def test_a_cell_of_many_is_the_last_call_that_computes_one() -> None:
    found, labels = served(), [f"t{index}" for index in range(LENGTH)]
    figure = calls_figure(found, labels)
    assert len(figure.text) < MOST_BYTES
    step = -(-LENGTH // MAX_SIDE)
    assert f"{step} × {step}" in figure.to_dict()["layout"]["title"]["text"]
    lines = list(csv.DictReader(io.StringIO(as_csv(figure)[1:])))
    side = -(-LENGTH // step)
    assert len(lines) > side**2 / 2  # with cells that are only in part in the mask
    for line in lines:
        row, column = int(line["y"]), int(line["x"])
        assert (line["y name"], line["x name"]) == (labels[row], labels[column])
        last = found.cells[row : row + step, column : column + step].max()
        assert line["value"] == f"call {last + 1}"
    (table,) = figure_tables(figure)
    assert table.table.index.tolist()[:3] == ["0", str(step), str(2 * step)]


def test_short_texts_keep_one_cell_each_and_no_note() -> None:
    found = SimpleNamespace(cells=np.tril(np.ones((5, 5), int)) - 1, calls=[(5, 5)])
    layout = calls_figure(found, list("abcde")).to_dict()  # type: ignore[arg-type]
    assert "title" not in layout["layout"]
    assert len(layout["data"][0]["hovertext"]) == 5


def test_rectangles_of_many_calls_are_as_large_as_a_message_may_be() -> None:
    figure = kernel_figure(served())
    assert len(figure.text) < MOST_BYTES
    drawn = {text for row in figure.to_dict()["data"][0]["hovertext"] for text in row}
    assert {"", "call 1", f"call {-(-LENGTH // CHUNK)}"} <= drawn


def test_a_tree_after_a_long_text_is_drawn_with_the_text_s_end() -> None:
    nodes = 3
    allowed = np.tril(np.ones((LENGTH + nodes, LENGTH + nodes), bool))
    found = SimpleNamespace(allowed=allowed, start=LENGTH, parents=[-1, 0, 1], labels=["x", "y", "z"],
                            seen=lambda node: range(node + 1))  # fmt: skip
    figure = tree_mask_figure(found, [f"t{index}" for index in range(LENGTH)], 1)  # type: ignore[arg-type]
    plain = figure.to_dict()
    assert len(figure.text) < MOST_BYTES
    assert "512 of 1,204" in plain["layout"]["title"]["text"]
    texts, rows = plain["data"][0]["hovertext"], plain["layout"]["meta"]["rings"]["rows"]
    assert (len(texts), len(rows)) == (MAX_SIDE, MAX_SIDE + 1)
    assert texts[-2][-3:] == ["seen by the chosen token", "seen by the chosen token", "blocked"]
    assert plain["layout"]["yaxis"]["categoryarray"][-4:] == [f"t{LENGTH - 1}", "x", "y", "z"]
    lines = list(csv.DictReader(io.StringIO(as_csv(figure)[1:])))
    assert {(line["x"], line["x name"]) for line in lines[-2:]} == {("1202", "y"), ("1203", "z")}
    (table,) = figure_tables(figure)
    assert table.table.index[0] == str(LENGTH + nodes - MAX_SIDE)
    tick = plain["layout"]["xaxis"]["tickvals"][0]
    assert plain["data"][0]["x0"] == tick == LENGTH + nodes - MAX_SIDE
    assert rows[-4:] == [[0, 3, 0, 0], [0, 3, 3, 0], [0, 3, 3, 3], [0, 3, 3, 0]]  # the last: the chosen one
