"""Tests of the table of laws: what it states of a finding, in which order, and that no text leaves its cell."""

import math
import re
from dataclasses import dataclass

import numpy as np
import pytest

from model.bug_clinic import spot
from model.bug_clinic.laws import Law, Verdict
from model.heads.view import HeadView
from viz.bug_clinic import FEATURES, amount_text, bug_figure, difference_sentence, law_html, law_table
from viz.numbers import number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (7.968, "7.97"),
        (0.125, "0.125"),
        (0.0006, "0.0006"),
        (4110, "4,110"),
        (1.4e-6, "1\u202f×\u202f10⁻⁶"),
        (3e-12, "3\u202f×\u202f10⁻¹²"),
        (math.inf, "NaN"),
        (math.nan, "NaN"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (Verdict(0.31, True), "violated: 0.31"),
        (Verdict(2e-7, False), "holds: 2\u202f×\u202f10⁻⁷"),
        (Verdict(math.nan, False), "–"),
        (Verdict(math.inf, True), "violated: NaN"),
        (Verdict(math.inf, True, "sizes do not fit"), "crashes: sizes do not fit"),
        (Verdict(math.nan, False, "sizes do not fit"), "–"),
    ],
)
def test_findings(finding: Verdict, text: str) -> None:
    assert amount_text(finding) == text


def law(words: str, needs: str = "") -> Law:
    return Law(words, lambda _: 0.0, "errors", needs=needs)


def test_a_table_has_a_row_for_each_law_in_order() -> None:
    held, broken, silent = (Verdict(amount, amount == 1) for amount in (0.0, 1.0, math.nan))
    rows = [
        (law("held <b>"), held, held),
        (law("broken"), broken, held),
        (law("silent", 'a "quote"'), silent, silent),
    ]
    table = law_table(rows)
    assert re.findall(r'white-space:normal">([^<]*?) <span', table) == ["held &lt;b&gt;", "broken", "silent"]
    assert table.count("<b>violated: 1</b>") == 1
    assert table.count('title="needs a &#34;quote&#34;"') == 2


def test_a_law_by_itself_says_both_sides_and_leaves_a_crash_in_words_to_the_page() -> None:
    crash, held = Verdict(math.inf, True, "got <b>float</b>"), Verdict(0.0, False)
    html = law_html(*(law("runs <i>"), crash, held), title="The violated property")
    plain = re.sub("<[^>]*>", "|", html)
    assert re.sub(r"\|+", "|", plain) == (
        "|The violated property|runs &lt;i&gt; |(errors)|with the bug |crashes| · correct version |holds: 0|"
    )


def test_what_pytorch_said_stays_in_its_cell() -> None:
    crash, held = Verdict(math.inf, True, "got <b>float</b>"), Verdict(0.0, False)
    table = law_table([(law("runs"), crash, held)])
    assert "crashes: got &lt;b&gt;float&lt;/b&gt;" in table


@dataclass(frozen=True)
class Apart:
    feature: str
    cell: tuple[int, int]
    one: float
    other: float


def test_two_heatmaps_are_told_apart_by_a_feature_or_a_cell() -> None:
    assert set(FEATURES) == set(spot.FEATURES)
    labels = [f"t{index}" for index in range(20)]
    view = HeadView(np.zeros((20, 20), np.float32), np.zeros((20, 20), np.float32), {}, labels, labels)
    text = difference_sentence(Apart("later", (-1, -1), 0.352, 0.0), "with that bug", "here", view)
    assert text == "of the weight on real tokens 35.2% goes to later ones with that bug, and 0% here."
    text = difference_sentence(Apart("", (12, 3), 0.98, 0.121), "right", "here", view)
    assert text == "query 12 (“t12”) gives key 3 (“t3”) a weight of 0.98 right, and 0.12 here."
    text = difference_sentence(Apart("", (12, 3), 0.98, 0.121), "right", "here", view, same_tokens=False)
    assert text == "the weight in row 12 and column 3 (“t12” and “t3” here) is 0.98 right, and 0.12 here."


@pytest.mark.parametrize("nan", [True, False])
def test_rows_that_a_bug_makes_nan_say_so(nan: bool) -> None:
    labels, blocked = ["a", "b", "c"], np.triu(np.ones((3, 3), bool), 0)
    weights = np.tril(np.ones((3, 3), np.float32), -1) / 2
    view = HeadView(weights, weights, {"causal": blocked}, labels, labels)
    plain = bug_figure(view, view, dark=False, nan=nan).to_dict()
    notes = {(note["xref"], note["text"]) for note in plain["layout"]["annotations"] if note["xref"] != "paper"}
    assert notes == {
        ("x domain", "NaN" if nan else "nothing to attend to"),
        ("x2 domain", "nothing to attend to"),
    }
