"""Tests of the pictures and sentences of Across layers, on small arrays given here."""

import re
from dataclasses import replace

import numpy as np
import pytest

from model.heads.layers import LogitLens
from model.heads.view import HeadView
from tests.viz.markup import plain
from viz.ablation import EffectsView, effects_alt
from viz.circuits import PatchView, patch_alt
from viz.layers import candidates_table, key, lens_table, ordinal, token_alt, token_figure, token_sentence

LABELS = {3: "cat", 5: "<b>", 7: "dog"}
IDS = np.array([[[3, 5], [7, 3]], [[5, 3], [3, 7]], [[7, 3], [3, 5]]])  # three readouts of two positions
SHARES = np.array([[[0.5, 0.2], [0.9, 0.05]], [[0.25, 0.2], [0.4, 0.3]], [[0.75, 0.1], [0.6, 0.2]]], np.float32)
NEXT = np.array([[0.01, np.nan], [0.2, np.nan], [0.75, np.nan]], np.float32)
LENS = LogitLens(IDS, SHARES, np.array([7, -1]), NEXT, np.array([[22, 0], [3, 0], [1, 0]]), LABELS)
TOKENS = {4: "the", 5: "<i>"}
VALUES = np.array([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]], np.float32)
VIEW = HeadView(VALUES, VALUES, {}, ["L0", "L3"], ["x", "<y>", "z"])


class TestLens:
    def test_each_cell_has_the_likeliest_and_says_the_rest(self) -> None:
        table = lens_table(LENS, TOKENS, 4)
        cells = re.findall(r'<td class="(s\d+[^"]*)" title="([^"]*)" translate="no">([^<]*)</td>', table)
        assert [content for *_, content in cells] == ["cat", "&lt;b&gt;", "dog", "dog", "cat", "cat"]
        assert cells[1][1] == "L0: &lt;b&gt; 25.0%, cat 20.0%. “dog”, the actual next token: 20.0%, 3rd"
        assert cells[0][1].endswith("1.0%, 22nd")
        assert cells[5][1] == "L1: cat 60.0%, &lt;b&gt; 20.0%"

    def test_colours_go_with_the_square_root_of_the_probability(self) -> None:
        shades = [int(found) for found in re.findall(r'<td class="s(\d+)', lens_table(LENS, TOKENS, 4))]
        assert shades == [round(share**0.5 * 31) for share in (0.5, 0.25, 0.75, 0.9, 0.4, 0.6)]

    def test_what_follows_is_marked_and_the_query_framed(self) -> None:
        table = lens_table(LENS, TOKENS, 5)
        assert re.findall(r'class="s\d+ follows"[^>]*>(\w+)', table) == ["dog"]
        rows = table.split("<tr")
        assert ["chosen" in row[:20] for row in rows[2:]] == [False, True]
        assert "&lt;i&gt;" in table
        assert "<i>" not in table

    def test_another_token_than_under_the_standard_masks_is_marked(self) -> None:
        standard = replace(LENS, ids=np.where(np.arange(3)[:, None, None] == 1, 7, IDS))
        marked = re.findall(
            r'class="s\d+[^"]* ?other"[^>]*title="[^"]*Standard masks: (\w+)', lens_table(LENS, TOKENS, 4, standard)
        )
        assert marked == ["dog", "dog"]
        assert "other" not in re.findall(r"<table.*", lens_table(LENS, TOKENS, 4, LENS), re.DOTALL)[0]

    def test_the_candidates_of_one_token(self) -> None:
        first, second = plain(candidates_table(LENS, 0)), plain(candidates_table(LENS, 1))
        assert "“dog”, the actual next token" in first
        assert "1.0%, 22nd" in first
        assert "the actual next token" not in second

    @pytest.mark.parametrize(
        ("rank", "text"),
        [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (112, "112th"), (1042, "1,042nd")],
    )
    def test_ranks(self, rank: int, text: str) -> None:
        assert ordinal(rank) == text


class TestToken:
    def test_of_many_keys_a_column_is_the_largest_of_several(self) -> None:
        values = np.zeros((2, 300), np.float32)
        values[0, 7], values[1, 299] = 0.5, 0.25
        blocked = {"causal": np.arange(300)[None].repeat(2, 0) > 4}
        long = HeadView(values, values, blocked, ["L0", "L1"], [f"t{key}" for key in range(300)])
        drop = replace(long, weights=np.where(values == 0.5, 0.0, values).astype(np.float32))
        figure = token_figure(replace(drop, blocked={}), replace(long, blocked={}), "mean weight", dark=False)
        z, change = np.array(figure.data[0].z), np.array(figure.data[2].z)
        assert z.shape == (2, 100)
        assert z[1, 99] == 0.25
        assert change[0, 2] == -0.5
        assert figure.data[0].x[2] == "6: t6t7t8"
        assert np.isnan(np.array(token_figure(long, None, "mean weight", dark=False).data[0].z)[0]).sum() == 98
        every_other = np.arange(300)[None].repeat(2, 0) % 2 == 0
        together = replace(
            long, blocked={"sliding": blocked["causal"] & every_other, "drawn": blocked["causal"] & ~every_other}
        )
        assert np.isnan(np.array(token_figure(together, None, "mean weight", dark=False).data[0].z)[0]).sum() == 98

    def test_one_layer_is_said_in_the_singular(self) -> None:
        one = HeadView(np.ones((1, 1), np.float32), np.ones((1, 1), np.float32), {}, ["L0"], ["a"])
        assert token_alt(one, "mean weight", "a").startswith("Mean weight of “a”, 1 layer by 1 key. ")
        assert effects_alt(EffectsView(np.zeros((1, 1)), [0], frozenset())).startswith(
            "Effect of each head, 1 layer by 1 head."
        )
        patches = PatchView(np.ones((1, 1)), ["L0"], ["H0"], "nats", (0.0, 1.0), ("A", "B"))
        assert patch_alt(patches).startswith("Effect of each patch, 1 layer by 1 column.")

    def test_what_can_flow(self) -> None:
        assert token_sentence(VIEW, "flow", 0, "q") == (
            "By the end of L3, the most that can flow to “q” from another token is 0.30, from “&lt;y&gt;” (1)."
        )

    def test_what_is_as_large_is_counted(self) -> None:
        values = np.array([[0, 0, 0, 0, 0.5], [0.999, 1, 0, 1, 1]], np.float32)
        view = replace(VIEW, weights=values, scaled=values, keys=["a", "b", "c", "d", "e"])
        assert token_sentence(view, "flow", 4, "e").endswith("is 1.00, from “b” (1) and 2 other tokens.")
        assert token_sentence(view, "flow", 0, "a", replace(view, weights=values * 0)) == (
            "By the end of L3, the most that can flow to “a” from another token is 1.00, from “b” (1) and 2 other "
            "tokens. The largest change from the standard masks is in L3, on “b” (1) and 3 other tokens: 0.00 → 1.00."
        )
        assert token_alt(view, "flow", "e").endswith("The largest, 1.00, is in L3 on 1 (b) and 3 other tokens.")
        assert token_alt(replace(view, weights=values * 0), "flow", "e").endswith(
            "The largest, 0.00, is in L0 on 0 (a)."
        )
        assert "other share, 100%, from “b” (1) and 1 other token." in token_sentence(view, "rollout", 4, "e")
        both = replace(view, weights=np.repeat(values[1:], 3, 0), queries=["L0", "L1", "L3"])
        assert token_sentence(both, "mean", 1, "b") == (
            "The largest mean weight over heads that “b” gives is in L0: 100% to itself, and in 8 other cells."
        )

    def test_another_layer_s_as_large_weight_is_not_laid_to_the_same_key(self) -> None:
        values = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0]], np.float32)
        view = replace(VIEW, weights=values, scaled=values, keys=["a", "b", "c"], queries=["L0", "L1", "L2"])
        assert token_sentence(view, "mean", 2, "c", replace(view, weights=values * 0)) == (
            "The largest mean weight over heads that “c” gives is in L0: 100% to “a” (0), and in 1 other cell. "
            "The largest change from the standard masks is in L0, on “a” (0), and in 1 other cell: 0.00 → 1.00."
        )
        assert token_alt(view, "mean weight", "c").endswith("1.00, is in L0 on 0 (a), and in 1 other cell.")

    def test_of_one_layer_nothing_is_said_of_the_others(self) -> None:
        one = replace(VIEW, weights=VALUES[:1], scaled=VALUES[:1], queries=["L0"])
        nothing = replace(one, weights=VALUES[:1] * 0)
        assert token_sentence(one, "mean", 0, "x", nothing) == (
            "In L0, the largest mean weight over heads that “x” gives is 70.0%, to “z” (2). "
            "In L0, the largest change from the standard masks is on “z” (2): 0.00 → 0.70."
        )
        assert token_sentence(one, "maximum", 2, "z") == (
            "In L0, the largest weight that “z” gives in a single head is 70.0%, to itself."
        )
        assert token_sentence(nothing, "mean", 0, "x") == "“x” attends to nothing in L0."
        assert token_sentence(one, "rollout", 0, "x").startswith("By the end of L0, 10.0% of “x”'s rollout")


def test_how_to_read_the_table_is_html_below_it() -> None:
    page = lens_table(LENS, TOKENS, 4) + key(compared=True)
    assert '<p class="key">' in page
    assert page.count('<span class="lens-mark') == 2
