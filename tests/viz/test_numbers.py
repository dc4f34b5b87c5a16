"""The strip of numbers: tables that say what they were given, as text, and the loss as a figure."""

import math
import re
from html.parser import HTMLParser

import numpy as np
import plotly.graph_objects as go
import pytest

from viz.numbers import TOP, Candidate, LeakShares, chance, leak_table, loss_figure, next_token_table, percent
from viz.palette import NOW, STANDARD

NOW_LIST = [Candidate(f"now{place}", 0.5 / (place + 1)) for place in range(TOP)]
STANDARD_LIST = [Candidate(f"old{place}", 0.25 / (place + 1)) for place in range(TOP)]


class Rows(HTMLParser):
    """The words of each cell of each row, as a browser would show them, and every tag."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self._in_cell = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.rows[-1][-1] += data


class TestPercent:
    @pytest.mark.parametrize(
        ("share", "words"),
        [
            (0, "0%"),
            (0.4132, "41.3%"),
            (1, "100%"),
            (0.99949, "99.9%"),
            (0.9996, "> 99.9%"),
            (0.99999, "> 99.9%"),
            (0.00042, "< 0.1%"),
            (0.0006, "0.1%"),
            (math.nan, "–"),
        ],
    )
    def test_words(self, share: float, words: str) -> None:
        assert percent(share) == words

    def test_only_nothing_at_all_is_0_and_only_all_of_it_100(self) -> None:
        shares = [*np.geomspace(1e-12, 0.5, 50), *(1 - np.geomspace(1e-12, 0.5, 50))]
        assert not {"0%", "100%", "0.0%", "100.0%"} & {percent(share) for share in shares}

    def test_no_probability_that_float32_rounds_is_said_to_be_certain(self) -> None:
        assert chance(float(np.float32(1 - 1e-9))) == "> 99.9%"
        assert chance(float(np.float32(1e-60))) == "< 0.1%"
        assert [chance(one) for one in (0.4132, math.nan)] == ["41.3%", "–"]


class TestNextTokens:
    def test_one_list_while_nothing_is_changed(self) -> None:
        rows = Rows(next_token_table(STANDARD_LIST, STANDARD_LIST, changed=False)).rows
        assert [row[:2] for row in rows[1:]] == [[one.label, percent(one.probability)] for one in STANDARD_LIST]

    def test_two_lists_side_by_side_now_on_the_left(self) -> None:
        rows = Rows(next_token_table(NOW_LIST, STANDARD_LIST, changed=True)).rows
        assert rows[0] == ["now", "standard"]
        assert [row[0] for row in rows[1:]] == [one.label for one in NOW_LIST]
        assert [row[3] for row in rows[1:]] == [one.label for one in STANDARD_LIST]
        assert [row[4] for row in rows[1:]] == [percent(one.probability) for one in STANDARD_LIST]

    def test_bars_are_as_wide_as_the_probabilities(self) -> None:
        html = next_token_table(NOW_LIST, STANDARD_LIST, changed=True)
        bars = re.findall(r"width:([\d.]+)%;background:(#\w+)", html)
        expected = [one.probability for pair in zip(NOW_LIST, STANDARD_LIST, strict=True) for one in pair]
        np.testing.assert_allclose([float(width) / 100 for width, _ in bars], expected, atol=5e-4)
        assert [colour for _, colour in bars] == [NOW, STANDARD] * TOP

    @pytest.mark.parametrize("label", ["<s>", "<script>alert(1)</script>", "&amp;", '"><img src=x>', "</td>"])
    def test_a_token_that_looks_like_markup_is_shown_as_text(self, label: str) -> None:
        found = Rows(next_token_table([Candidate(label, 0.5)], [Candidate(label, 0.5)], changed=True))
        assert found.rows[1][0] == found.rows[1][3] == label
        assert found.tags == {"table", "tr", "th", "td", "div"}


def test_leaks_stand_in_their_rows_and_columns() -> None:
    head = (LeakShares(0.11, 0.12), LeakShares(0.13, 0.14))
    model = (LeakShares(0.21, 0.22), LeakShares(0.23, math.nan))
    rows = Rows(leak_table(head, model, "L3 <b>", changed=True)).rows
    assert rows[0][1:] == ["now", "standard"]
    assert [row[1:] for row in rows[1:]] == [
        ["11.0%", "13.0%"], ["12.0%", "14.0%"], ["21.0%", "23.0%"], ["22.0%", "–"],
    ]  # fmt: skip
    assert rows[1][0].startswith("L3 <b>")
    assert ["later" in row[0] for row in rows[1:]] == [True, False, True, False]
    assert ["padding" in row[0] for row in rows[1:]] == [False, True, False, True]


def test_leaks_have_one_column_while_nothing_is_changed() -> None:
    rows = Rows(leak_table((LeakShares(0.1, 0.2),) * 2, (LeakShares(0.3, 0.4),) * 2, "L3 H2", changed=False)).rows
    assert [row[1:] for row in rows[1:]] == [["10.0%"], ["20.0%"], ["30.0%"], ["40.0%"]]


class TestLoss:
    pieces = ("<s>", "the", "·cat", "the")
    now = np.array([np.nan, 1.5, 2.5, 3.5], np.float32)
    standard = np.array([np.nan, 2.0, 4.0, 8.0], np.float32)

    def test_both_curves_hold_their_losses_and_no_point_where_there_is_none(self) -> None:
        figure = loss_figure(self.now, self.standard, self.pieces, changed=True)
        found = {trace.name: trace for trace in figure.data}
        assert set(found) == {"now", "standard"}
        np.testing.assert_array_equal(found["now"].y, self.now)
        np.testing.assert_array_equal(found["standard"].y, self.standard)
        assert found["now"].line.color != found["standard"].line.color
        assert figure.layout.showlegend

    def test_one_curve_while_nothing_is_changed(self) -> None:
        figure = loss_figure(self.standard, self.standard, self.pieces, changed=False)
        assert [trace.name for trace in figure.data] == ["standard"]

    def test_repeated_tokens_stay_apart_and_markup_is_text(self) -> None:
        figure = loss_figure(self.now, self.standard, self.pieces, changed=False)
        assert list(figure.data[0].x) == ["0: &lt;s&gt;", "1: the", "2: ·cat", "3: the"]
        assert list(figure.layout.xaxis.ticktext) == ["&lt;s&gt;", "the", "·cat", "the"]

    def test_a_long_text_has_few_labels_at_their_right_places(self) -> None:
        pieces = [f"t{place}" for place in range(200)]
        losses = np.arange(200, dtype=np.float32)
        axis = loss_figure(losses, losses, pieces, changed=False).layout.xaxis
        assert 10 <= len(axis.tickvals) <= 30
        assert [pieces[place] for place in axis.tickvals] == list(axis.ticktext)

    def test_its_axis_says_what_it_counts(self) -> None:
        assert "nats" in loss_figure(self.now, self.standard, self.pieces, changed=True).layout.yaxis.title.text


@pytest.mark.parametrize("changed", [False, True])
def test_plotly_accepts_every_property_of_the_losses(changed: bool) -> None:
    losses = np.array([np.nan, 1.5, 2.5])
    drawn = loss_figure(losses, losses + 1, ["a", "<b>", "c"], changed=changed)
    assert len(go.Figure(drawn.to_dict()).data) == 1 + changed  # unchecked until here; raises ValueError
