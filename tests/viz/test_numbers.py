"""Tests of shares and probabilities in words, and of the loss as a figure."""

import math

import numpy as np
import plotly.graph_objects as go
import pytest

from viz.numbers import Candidate, chance, loss_figure, next_token_table, percent


class TestPercent:
    @pytest.mark.parametrize(
        ("share", "words"),
        [
            (0, "0%"),
            (0.4132, "41.3%"),
            (1, "100%"),
            (0.99949, "99.9%"),
            (0.9996, ">99.9%"),
            (0.99999, ">99.9%"),
            (0.00042, "<0.1%"),
            (0.0006, "0.1%"),
            (1 / 16, "6.3%"),  # a tie is rounded up, as in the browser
            (math.nan, "–"),
        ],
    )
    def test_words(self, share: float, words: str) -> None:
        assert percent(share) == words

    def test_only_nothing_at_all_is_0_and_only_all_of_it_100(self) -> None:
        shares = [*np.geomspace(1e-12, 0.5, 50), *(1 - np.geomspace(1e-12, 0.5, 50))]
        assert not {"0%", "100%", "0.0%", "100.0%"} & {percent(share) for share in shares}

    def test_no_probability_that_float32_rounds_is_said_to_be_certain(self) -> None:
        assert chance(float(np.float32(1 - 1e-9))) == ">99.9%"
        assert chance(float(np.float32(1e-60))) == "<0.1%"
        assert [chance(one) for one in (0.4132, math.nan)] == ["41.3%", "–"]


def test_the_shorter_of_two_lists_of_next_tokens_ends_in_empty_cells() -> None:
    some = [Candidate(f"t{number}", 0.1) for number in range(5)]
    rows = next_token_table(some, some[:2], changed=True).split("<tr>")[2:]
    assert [row.count('class="token"') for row in rows] == [2, 2, 1, 1, 1]
    assert all('<td colspan="3"></td>' in row for row in rows[2:])


class TestLoss:
    pieces = ("<s>", "the", "·cat", "the")
    now = np.array([np.nan, 1.5, 2.5, 3.5], np.float32)
    standard = np.array([np.nan, 2.0, 4.0, 8.0], np.float32)

    def test_repeated_tokens_stay_apart_and_markup_is_text(self) -> None:
        figure = loss_figure(self.now, self.standard, self.pieces, changed=False)
        assert list(figure.data[0].x) == ["0: &lt;s&gt;", "1: the", "2: ·cat", "3: the"]
        assert list(figure.layout.xaxis.ticktext) == ["&lt;s&gt;", "the", "·cat", "the"]

    def test_a_long_text_has_few_labels_at_their_right_places(self) -> None:
        pieces = [f"t{index}" for index in range(200)]
        losses = np.arange(200, dtype=np.float32)
        axis = loss_figure(losses, losses, pieces, changed=False).layout.xaxis
        assert 10 <= len(axis.tickvals) <= 30
        assert [pieces[index] for index in axis.tickvals] == list(axis.ticktext)

    def test_cut_labels_end_in_dots_and_lines_cut_alike_begin_with_their_numbers(self) -> None:
        lines = ["There was once a house", "A short one", "There was once a Mouse", "Once more", "A Cat heard"]
        losses = np.zeros(5, np.float32)
        axis = loss_figure(losses, losses, lines, changed=False, first=1).layout.xaxis
        assert list(axis.ticktext) == ["1: There wa…", "A short one", "3: There wa…", "Once more", "A Cat heard"]
        tokens = ["·Charcoal-burner", "·the", "·Charcoal-burner"]
        axis = loss_figure(losses[:3], losses[:3], tokens, changed=False).layout.xaxis
        assert list(axis.ticktext) == ["·Charcoal-b…", "·the", "·Charcoal-b…"], "the same word has the same label"


@pytest.mark.parametrize("changed", [False, True])
def test_plotly_accepts_every_property_of_the_losses(changed: bool) -> None:
    losses = np.array([np.nan, 1.5, 2.5])
    drawn = loss_figure(losses, losses + 1, ["a", "<b>", "c"], changed=changed)
    assert len(go.Figure(drawn.to_dict()).data) == 1 + changed  # not validated before; raises ValueError
