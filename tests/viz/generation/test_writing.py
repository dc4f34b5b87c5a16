"""The pictures and words of the Generation page: what stands in them, number by number, and that text stays text."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from viz.generation.cache import (
    CachedRow,
    Costs,
    cached_row_figure,
    cost_figure,
    cost_sentence,
    differences_table,
    old_rows_figure,
)
from viz.generation.writing import Chance, Token, WritingScene, chance_html, chances_head, sentence, settings, text_html

NASTY = "<script>alert(1)</script>"


SCENE = WritingScene(
    name="L4 H0",
    heads=36,
    query=(7, "·silver"),
    key=(3, "·whist"),
    weight=0.512,
    place=None,
    chosen=Chance(9, "·cat", 0.25, 0.5),
    by_hand=False,
    left=3,
    vocabulary=4096,
    temperature=0.8,
    settings=("temperature 0.8", "top-k 40", "top-p 0.95"),
    seed=5,
)


def scene(**changes: Any) -> WritingScene:
    return replace(SCENE, **changes)


class TestTheSentence:
    def test_says_where_the_newest_row_looks_and_what_is_drawn(self) -> None:
        words = re.sub("<.*?>", "", sentence(scene()))
        assert words == (
            "The newest row of L4 H0, “·silver” at position 7, puts 51.2% of its attention on “·whist” (position 3). "
            "The next token depends on the rows of all 36 heads and everything computed between them, not on "
            "this row alone: seed 5 samples “·cat”, 25.0% by the model, 50.0% with temperature 0.8, top-k 40 and "
            "top-p 0.95; 3 of 4,096 tokens are left."
        )

    def test_is_silent_about_a_sampling_that_changes_nothing(self) -> None:
        assert settings(1.0, 0, 1.0) == ()
        words = sentence(scene(settings=(), left=4096, chosen=Chance(9, "·cat", 0.25, 0.25)))
        assert re.sub("<.*?>", "", words).endswith("samples “·cat”, 25.0% by the model.")

    def test_names_what_changes_the_probabilities_and_calls_no_temperature_a_filter(self) -> None:
        assert settings(0.7, 0, 1.0) == ("temperature 0.7",)
        assert settings(0.0, 9, 0.5) == ("temperature 0", "top-k 9", "top-p 0.5")
        words = sentence(scene(settings=("temperature 0.7",), left=4096))
        assert "50.0% with temperature 0.7." in words
        assert "filter" not in words + chance_html(SCENE.chosen, drawn=True) + chances_head("next")

    def test_says_that_a_token_taken_before_is_now_left_out(self) -> None:
        words = sentence(scene(place=1, chosen=Chance(9, "·cat", 0.25, 0.0), settings=("top-k 1",)))
        assert "25.0% by the model, left out by top-k 1 as set now" in words

    def test_says_that_nothing_is_drawn_at_temperature_0(self) -> None:
        assert "temperature 0 takes the most likely" in sentence(scene(temperature=0.0))

    @pytest.mark.parametrize(("by_hand", "who"), [(True, "you chose"), (False, "it was followed by")])
    def test_is_about_the_choice_that_is_looked_at(self, by_hand: bool, who: str) -> None:
        words = sentence(scene(place=1, by_hand=by_hand))
        assert who in words
        assert "The row before that choice" in words

    def test_escapes_every_token(self) -> None:
        words = sentence(scene(query=(7, NASTY), key=(3, NASTY), chosen=Chance(9, NASTY, 0.25, 0.5)))
        assert "<script" not in words
        assert words.count("&lt;script") == 3


class TestTheText:
    def test_shows_spaces_and_line_ends_and_marks_one_token(self) -> None:
        page = text_html([Token("Once"), Token("·upon"), Token("⏎", 0.5), Token("·", 0.1, True)], 2)
        assert re.sub("<.*?>", "", page) == "Once upon⏎·"
        assert page.count("<br>") == 1
        assert re.findall('class="(.*?)"', page)[2:] == ["prompt", "prompt", "written newest", "written by-hand"]
        assert "50.0% by the model" in page
        assert "chosen by you" in page
        assert 'title="0: a"' in text_html([Token("a")], 5)

    def test_is_escaped_in_text_and_tooltip(self) -> None:
        page = text_html([Token(NASTY), Token('"onmouseover="x', 0.2)], 0)
        assert "<script" not in page
        assert 'title="1: &#34;onmouseover=&#34;x' in page


class TestACandidate:
    def test_has_both_probabilities_as_numbers_and_bars(self) -> None:
        page = chance_html(Chance(1, "a", 0.25, 0.5), drawn=True)
        assert re.findall('class="share">(.*?)<', page) == ["25.0%", "50.0%"]
        assert re.findall("width:(.*?)%", page) == ["25.0", "50.0"]
        assert "drawn" in page

    def test_that_is_filtered_out_says_so(self) -> None:
        page = chance_html(Chance(1, "a", 0.25, 0.0), drawn=False)
        assert re.findall('class="share">(.*?)<', page) == ["25.0%", "out"]
        assert "gone" in page
        assert ' drawn"' not in page


class TestTheCachedRow:
    def test_holds_the_mask_and_both_rows(self) -> None:
        cached, full = np.array([0.25, 0.5, 0.25], np.float32), np.array([0.25, 0.25, 0.5], np.float32)
        figure = cached_row_figure(CachedRow(cached, full, np.array([False, True, True]), ["<s>", "a", "a"]))
        go.Figure(figure.to_dict())  # unchecked until here; raises ValueError
        mask, weights = figure.data
        np.testing.assert_array_equal(mask.z[0], [0, 1, 1])
        assert np.isnan(mask.z[1:]).all()
        assert mask.text[0].tolist() == ["blocked", "visible", "visible"]
        np.testing.assert_array_equal(weights.z[1:], [cached, full])
        assert weights.zmax == 0.5
        assert list(weights.x) == ["0: &lt;s&gt;", "1: a", "2: a"]

    def test_shows_the_last_64_keys_of_many(self) -> None:
        row = np.arange(100, dtype=np.float32) / 100
        figure = cached_row_figure(CachedRow(row, row, np.ones(100, bool), [str(n) for n in range(100)]))
        assert figure.data[1].z.shape == (3, 64)
        assert figure.data[1].x[0] == "36: 36"
        np.testing.assert_array_equal(figure.data[1].z[1], row[36:])


class TestCosts:
    costs = Costs([10_000_000, 40_000_000], [10_000_000, 11_000_000], [2, 9], [0.02, 0.05], [0.004, 0.003], clear=True)

    def test_are_drawn_as_counted_and_as_measured(self) -> None:
        figure = cost_figure(self.costs)
        go.Figure(figure.to_dict())  # unchecked until here; raises ValueError
        full, full_measured, cached, cached_measured = figure.data
        assert list(full.y) == [10, 40]
        assert list(cached.y) == [10, 11]
        assert (list(full_measured.x), list(full_measured.y)) == ([2, 9], [20, 50])
        assert list(cached_measured.y) == [4, 3]

    def test_are_said_in_numbers(self) -> None:
        words = cost_sentence(self.costs)
        assert "without a cache and 11.0 million with it: 3.6 times as many" in words
        assert "grew 4.0-fold, the cached one 1.10-fold" in words
        assert (
            "from 2 to 9 tokens a step without a cache goes from 20.0 to 50.0 ms; a cached one takes 3.0 to 4.0"
            in words
        )

    def test_are_counted_where_nothing_was_measured(self) -> None:
        words = cost_sentence(Costs([1, 4], [1, 1], [], [], [], clear=False))
        assert "easured" not in words

    def test_never_let_noise_reverse_the_lesson(self) -> None:
        """11.4 ms at 2 tokens and 7.0 ms at 40 were once said to be what a step without a cache takes."""
        noisy = replace(self.costs, full=[0.0114, 0.007], clear=False)
        words = cost_sentence(noisy)
        assert "too noisy" in words
        assert " ms" not in words
        assert "grew 4.0-fold" in words, "what is counted is said in any case"
        assert "too noisy" in cost_figure(noisy).layout.yaxis2.title.text


def test_old_rows_are_bars_of_their_changes() -> None:
    figure = old_rows_figure(np.array([0.1, 0.3]), ["<s>", "a"], causal=False)
    go.Figure(figure.to_dict())  # unchecked until here; raises ValueError
    (bars,) = figure.data
    np.testing.assert_allclose(bars.y, [0.1, 0.3], rtol=1e-6)
    assert list(bars.x) == ["0: &lt;s&gt;", "1: a"]
    assert figure.layout.yaxis.range[1] == pytest.approx(0.33)
    assert old_rows_figure(np.zeros(2), ["a", "b"], causal=True).layout.yaxis.range[1] == 0.01


def test_a_table_of_differences_leaves_out_what_is_not_to_be_had() -> None:
    page = differences_table(("what", "on <b>"), [("rows", [2e-6]), ("logits", [float("nan")])])
    assert re.findall('<td class="number">(.*?)</td>', page) == ["2\u202f×\u202f10⁻⁶", "–"]
    assert "on &lt;b&gt;" in page
