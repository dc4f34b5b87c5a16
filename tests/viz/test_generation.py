"""Tests of the pictures and words of the Generation page: all their numbers, and that text stays text."""

import re
from dataclasses import replace
from typing import Any

import numpy as np

from model.kv_cache import Cost
from model.sampling import Sampling
from viz.generation import (
    Chance,
    Costs,
    Token,
    WritingScene,
    cached_row_figure,
    chance_html,
    chances_head,
    cost_figure,
    cost_sentence,
    differences_table,
    sentence,
    settings,
    text_html,
)

NASTY = "<script>alert(1)</script>"


SCENE = WritingScene(
    name="L4 H0",
    heads=36,
    query=(7, "·silver"),
    key=(3, "·whist"),
    weight=0.512,
    index=None,
    chosen=Chance(9, "·cat", 0.25, 0.5),
    left=3,
    vocabulary=4096,
    sampling=Sampling(0.8, 40, 0.95, seed=5),
)


def scene(**changes: Any) -> WritingScene:
    return replace(SCENE, **changes)


class TestTheSentence:
    def test_says_where_the_newest_row_looks_and_what_is_drawn(self) -> None:
        words = re.sub("<.*?>", "", sentence(scene()))
        assert words == (
            "Row 7 of L4 H0, “·silver”, puts 51.2% of its attention on “·whist” (position 3). "
            "The next token depends on the rows of every head (36 in all) and everything computed between them, not on "
            "this row alone: temperature 0.8 and seed 5 give “·cat”, 25.0% by the model, 50.0% with temperature 0.8, "
            "top-k 40 and top-p 0.95 as set now, which leaves 3 of 4,096 tokens."
        )

    def test_is_silent_about_a_sampling_that_changes_nothing(self) -> None:
        assert settings(Sampling()) == ()
        words = sentence(scene(sampling=Sampling(seed=5), left=4096, chosen=Chance(9, "·cat", 0.25, 0.25)))
        assert re.sub("<.*?>", "", words).endswith("seed 5 give “·cat”, 25.0% by the model.")

    def test_names_what_changes_the_probabilities_and_calls_no_temperature_a_filter(self) -> None:
        assert settings(Sampling(0.0, 9, 0.5)) == ("temperature 0", "top-k 9", "top-p 0.5")
        words = sentence(scene(sampling=Sampling(0.7), left=4096))
        assert "50.0% with temperature 0.7 as set now" in words
        assert "filter" not in words + chance_html(SCENE.chosen, drawn=True) + chances_head("next")

    def test_says_that_a_token_taken_before_is_now_left_out(self) -> None:
        words = sentence(scene(index=1, chosen=Chance(9, "·cat", 0.25, 0.0), sampling=Sampling(top_k=1)))
        assert "25.0% by the model, 0% with top-k 1 as set now" in words

    def test_is_about_the_choice_that_is_looked_at(self) -> None:
        assert "There the next token was" in sentence(scene(index=1))

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


MEASURED = [Cost(2, 0.02, 0.004, 0.02), Cost(9, 0.05, 0.003, 0.05)]


class TestTheCachedRow:
    def test_shows_the_last_64_keys_of_many(self) -> None:
        row = np.arange(100, dtype=np.float32) / 100
        figure = cached_row_figure(row, row, np.ones(100, bool), [str(n) for n in range(100)])
        assert figure.data[1].z.shape == (3, 64)
        assert figure.data[1].x[0] == "36: 36"
        np.testing.assert_array_equal(figure.data[1].z[1], row[36:])


class TestCosts:
    costs = Costs([10_000_000, 40_000_000], [10_000_000, 11_000_000], MEASURED, clear=True)

    def test_are_counted_where_nothing_was_measured(self) -> None:
        words = cost_sentence(Costs([1, 4], [1, 1], [], clear=False))
        assert "easured" not in words

    def test_never_let_noise_reverse_the_lesson(self) -> None:
        """11.4 ms at 2 tokens and 7.0 ms at 40 were once given as the times of a step without a cache."""
        noisy = replace(self.costs, measured=[Cost(2, 0.0114, 0.004, 0.02), Cost(9, 0.007, 0.003, 0.05)], clear=False)
        words = cost_sentence(noisy)
        assert "too noisy" in words
        assert " ms" not in words
        assert "grew 4.0-fold" in words, "what is counted is said in any case"
        assert "too noisy" in cost_figure(noisy).layout.yaxis2.title.text


def test_a_table_of_differences_leaves_out_what_is_not_to_be_had() -> None:
    page = differences_table(("what", "on <b>"), [("rows", [2e-6]), ("logits", [float("nan")])])
    assert re.findall('<td class="number">(.*?)</td>', page) == ["2\u202f×\u202f10⁻⁶", "–"]
    assert "on &lt;b&gt;" in page
