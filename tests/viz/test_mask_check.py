"""Tests of the picture of a check, measured beside declared, with disagreements marked; and of the table of laws."""

import re
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest

from mask_check.findings import CheckReport, Finding, MeasuredMask, Noise, verdict_of
from viz.figure_table import figure_tables
from viz.mask_check import laws_table, mask_figure, named_pairs, report_html, sentence

TOKENS = ["<s>", "a&b", "cat", "sat", "on"]
LAWS = [
    Finding("does not apply", "nothing", law="training"),
    Finding("obeys", "the same as alone.", 0.0, 1.5e-6, law="padding-left"),
    Finding("cannot tell", "it raised.", law="cache"),
    Finding("broken", "output 1 moves by <i>.", 0.731, 1.5e-6, law="reach"),
]
OBEYED = Finding("obeys", "as declared.", law="reach")


def report_of(mask: MeasuredMask | None, findings: list[Finding], name: str = "m") -> CheckReport:
    length = len(TOKENS) if mask is None else len(mask.declared)
    pieces = tuple(TOKENS[:length])
    return CheckReport(name, "", "", length, pieces, "", "", 0, 0, Noise(0, 0), tuple(findings), mask)


@pytest.fixture
def view() -> CheckReport:
    """Return a report with one leak, (1, 3), and one open pair without influence, (4, 1); column 2 was not tried."""
    declared = np.tri(5, dtype=bool)
    moved = np.where(declared, 0.25, 0.0)
    moved[1, 3], moved[4, 1], moved[:, 2] = 0.5, 0.0, np.nan
    return report_of(MeasuredMask(moved, declared, 0.1), LAWS, "a <model>")


def traces(figure: go.Figure, name: str) -> list:
    return [trace for trace in figure.data if trace.name == name]


def test_cells_that_disagree_are_marked_in_both(view: CheckReport) -> None:
    figure = mask_figure(view, dark=False)
    assert [(mark.x, mark.y) for mark in traces(figure, "leak")] == [(("3: sat",), ("1: a&amp;b",))] * 2
    assert [(mark.x, mark.y) for mark in traces(figure, "not seen")] == [(("1: a&amp;b",), ("4: on",))] * 2
    assert {mark.xaxis for mark in traces(figure, "leak")} == {"x", "x2"}


def test_no_marks_where_all_agrees(view: CheckReport) -> None:
    whole = np.tri(5, dtype=bool)
    agreed = report_of(MeasuredMask(whole * 0.5, whole, 0.1), [*LAWS[:2], OBEYED])
    figure = mask_figure(agreed, dark=False)
    assert not traces(figure, "leak")
    assert not traces(figure, "not seen")
    assert named_pairs(agreed) == ""
    text = re.sub("<.*?>", "", sentence(agreed))
    assert text == (
        f"{verdict_of(agreed)} Pairs of tokens that its mask blocks: 10; no effect measured. "
        "Pairs of tokens that it allows: 10; effect measured in 10 of them."
    )


def test_a_mask_with_nothing_measured_is_drawn_all_the_same() -> None:
    empty = report_of(MeasuredMask(np.full((3, 3), np.nan), np.ones((3, 3), bool), 0.1), [OBEYED])
    assert len(traces(mask_figure(empty, dark=True), "open")) == 1
    assert "<svg" in report_html(empty)


def test_an_output_that_became_nan_is_drawn_as_reached(view: CheckReport) -> None:
    view.mask.moved[4, 0] = np.inf
    (measured,) = traces(mask_figure(view, dark=False), "measured")
    assert np.isfinite(measured.z[4, 0])


def test_the_table_of_what_was_measured_has_the_amounts(view: CheckReport) -> None:
    (found,) = [one for one in figure_tables(mask_figure(view, dark=False)) if one.title == "changes by"]
    reached = view.mask.reaches
    assert [cell != "" for row in found.table.to_numpy() for cell in row] == reached.ravel().tolist()
    assert list(map(float, found.table.to_numpy()[reached])) == pytest.approx(view.mask.moved[reached], rel=1e-2)


def test_the_table_begins_with_what_is_broken_and_escapes(view: CheckReport) -> None:
    table = laws_table(view)
    assert re.findall(r"</span>(?:<b>)?([a-z ]+)<", table) == ["broken", "cannot tell", "obeys", "does not apply"]
    assert "<i>" not in table
    assert "output 1 moves by &lt;i&gt;." in table
    assert '<td class="number">0.73</td><td class="number">1.5e-06</td>' in table


def test_the_pairs_are_named_by_their_tokens(view: CheckReport) -> None:
    assert "3 “sat” → 1 “a&amp;b”." in named_pairs(view)


def test_the_sentence_says_what_is_broken(view: CheckReport) -> None:
    text = sentence(view)
    assert f"<b>{verdict_of(view)}</b> Output 1 moves by &lt;i&gt;." in text
    assert "properties are violated" not in text  # there is only one
    (broken,) = view.broken
    named = replace(view, findings=(replace(broken, words="use_cache=False differs."),))
    assert "</b> use_cache=False differs." in sentence(named)


def test_a_notebooks_page_has_both_masks(view: CheckReport) -> None:
    page = report_html(view)
    assert page.count("<svg") == 2
    assert "a &lt;model&gt;" in page
    assert "<script" not in page


def test_a_law_that_silent_pairs_break_has_their_number(view: CheckReport) -> None:
    law = Finding("broken", "no gradient 4 back.", silent=57, law="gradients")
    table = laws_table(replace(view, findings=(law,)))
    assert re.findall('<td class="number">(.*?)</td>', table) == ["57 pairs without effect", "–"]
