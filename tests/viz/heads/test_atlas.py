"""Tests of the pictures and words of Head atlas: its points, bars and tokens, and that nothing typed becomes HTML."""

import re
from dataclasses import replace

import numpy as np
import pytest

from model.atlas.result import BINS, NAMES, Atlas, Decile, Example, TokenShare
from model.atlas.tally import Sample
from viz.heads import atlas as tables
from viz.heads.atlas import deciles_html, distance_names, distances, ranked_table, scatter, tokens_table

MEASURES, LAYERS, HEADS, LONGEST = len(NAMES), 2, 3, 7


def atlas_of(**given: dict[str, list[list[float]]]) -> Atlas:
    """Return an atlas with these means by a measure's name; all others are 0.1, those of an even head 0.2."""
    means = np.full((MEASURES, LAYERS, HEADS), 0.1)
    for name, values in given.items():
        means[NAMES.index(name)] = values
    spread = np.zeros((LAYERS, HEADS, 2 + len(BINS)))
    spread[..., 1], spread[..., 2], spread[..., 4] = 0.5, 0.25, 0.25
    even_spread = np.zeros((LAYERS, 2 + len(BINS)))
    even_spread[:, 1:5] = 0.25
    none = np.zeros((LAYERS, HEADS, 0), np.int64)
    return Atlas(
        texts=2, rows=2, read=14, means=means, counts=np.full((MEASURES, LAYERS), 40),
        even=np.full((MEASURES, LAYERS), 0.2), at_offset=np.zeros((LAYERS, HEADS, 2 * LONGEST - 1)),
        spread=spread, even_spread=even_spread, top_keys=none,
        key_shares=none, key_counts=none, top_queries=none, query_peaks=none, query_counts=none, labels={},
        numbers=(3, 7), sample=Sample.empty(MEASURES, LAYERS, HEADS),
    )  # fmt: skip


INDUCTION = [[0.9, 0.1, 0.2], [0.45, 0.55, float("nan")]]


def test_a_point_for_every_head_that_both_measures_count_for() -> None:
    figure = scatter(atlas_of(induction=INDUCTION), "induction", "previous", (1, 0))
    ring, points, labels = figure.to_dict()["data"]
    assert points["x"] == [0.9, 0.1, 0.2, 0.45, 0.55]
    assert points["y"] == [0.1] * 5
    assert points["customdata"] == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1]]
    assert points["marker"]["color"] == [3, 3, 3, 7, 7]  # layers as numbered in the network
    assert (ring["x"], ring["y"]) == ([0.45], [0.1])
    assert "L7 H0" in labels["text"]
    assert "<b>L3 H0</b>, induction" in points["text"]
    lines = figure.to_dict()["layout"]["shapes"]
    assert [(line.get("x0"), line.get("y0")) for line in lines] == [(0.2, 0), (0, 0.2)]


def test_the_colours_of_a_few_layers_have_whole_numbers_each_once() -> None:
    bar = scatter(atlas_of(), "induction", "previous", (0, 0)).to_dict()["data"][1]["marker"]["colorbar"]
    assert (bar["tick0"], bar["dtick"]) == (3, 1)
    many = scatter(replace(atlas_of(), numbers=(0, 35)), "induction", "previous", (0, 0)).to_dict()["data"][1]
    assert many["marker"]["colorbar"]["dtick"] == 6


def test_labels_keep_apart() -> None:
    close = [[0.9, 0.901, 0.902], [0.1, 0.903, 0.904]]
    labels = scatter(atlas_of(induction=close), "induction", "previous", (1, 0)).to_dict()["data"][2]["text"]
    assert labels == ["L7 H0", "L3 H0"]


def test_the_bars_are_as_many_as_a_row_is_long() -> None:
    atlas = atlas_of()
    assert distance_names(atlas) == ["later", "itself", "1", "2", "3–4"]
    bars, even = distances(atlas, 0, 1).data
    assert list(bars["customdata"]) == ["itself", "1", "2", "3–4"]  # no later token is visible
    assert bars["y"].tolist() == [0.5, 0.25, 0.0, 0.25]
    assert even["y"].tolist() == [0.25] * 4


def test_a_head_without_a_name_may_put_half_of_its_attention_in_one_place() -> None:
    """99% is not twice the half that an even head has on two tokens, and too few queries give no name."""
    most = atlas_of(previous=[[0.99] * 3] * 2)
    for unnamed in (replace(most, even=most.even * 2.5), replace(most, counts=most.counts // 4)):
        text = tables.summary(unnamed, random=False)
        assert "Heads that match a pattern, out of 6: none." in text
        assert "half" not in text
        assert "L3 H0</b> matches no pattern here" in tables.head_sentence(unnamed, 0, 0)
    few, even = replace(most, counts=most.counts // 4), replace(most, even=most.even * 2.5)
    for words in (tables.summary(few, random=False), tables.head_sentence(few, 0, 0)):
        assert "A match needs 20 queries with such a token, and these texts have 10 for “previous token”." in words
    for words in (tables.summary(even, random=False), tables.head_sentence(even, 0, 0)):
        assert "needs 20 queries" not in words
    punctuation = atlas_of(punctuation=[[0.9] * 3] * 2)  # not a pattern
    assert "Of the patterns, the largest share: previous token" in tables.head_sentence(punctuation, 0, 0)
    assert "a pattern (previous token, first token, itself, duplicate token, induction) if" in tables.naming()
    assert "None matches induction" not in tables.summary(few, random=False)
    assert "50% of its attention" in tables.naming()
    assert "at least 20 queries" in tables.naming()


def test_the_sentence_names_heads_by_what_they_are_called() -> None:
    atlas = atlas_of(induction=INDUCTION, same=[[0.1, 0.1, 0.6], [0.1, 0.1, 0.1]])
    text = re.sub("<[^>]*>", "", tables.summary(atlas, random=False))
    assert text == "Heads that match a pattern, out of 6: itself L3 H2; induction L3 H0, L7 H1."
    assert re.sub("<[^>]*>", "", tables.head_sentence(atlas, 0, 0)) == (
        "L3 H0 matches induction: induction 90.0%, uniform attention 20.0%."
    )
    assert "matches no pattern here" in tables.head_sentence(atlas, 0, 1)
    assert "Heads that match a pattern, out of 6: none." in tables.summary(atlas_of(), random=False)
    without = atlas_of(same=[[0.1, 0.1, 0.6], [0.1, 0.1, 0.1]])
    assert "None matches induction" in tables.summary(without, random=False)
    assert "None matches induction" not in tables.summary(without, random=True)


@pytest.mark.parametrize(
    ("even", "count", "named"), [(0.2, 40, True), (0.3, 40, False), (0.2, 19, False), (float("nan"), 0, False)]
)
def test_a_name_needs_twice_an_even_head_s_and_enough_queries(even: float, count: int, named: bool) -> None:
    atlas = atlas_of(previous=[[0.55, 0.49, 0.1], [0.1, 0.1, 0.1]])
    atlas.even[NAMES.index("previous")] = even
    atlas.counts[NAMES.index("previous")] = count
    assert atlas.named(0, 0) == (("previous",) if named else ())
    assert atlas.named(0, 1) == ()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("previous", 0.4132, "41.3%"), ("distance", 3.25, "3.2 tokens"), ("entropy", float("nan"), "–")],
)
def test_an_amount_has_its_unit(name: str, value: float, expected: str) -> None:
    assert tables.amount(name, value) == expected


def test_tokens_are_shown_and_never_are_html() -> None:
    pieces = ("<start>", "·<script>", "·a", "·&", "·b")
    one = Example(0.5, "text", pieces, 3, ((1, 0.5), (0, 0.25)), 0, 0)
    html = deciles_html([Decile(10, 0.25, 0.5, 12, (one,))], "previous")
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "<h4>Strongest decile: 25.0% to 50.0% (queries: 12)</h4>" in html  # the page's own heading is an h3
    assert html.count('class="query"') == 1
    assert 'title="weight 0.5000"' in html
    table = tokens_table([TokenShare("<b>", 0.125, 1234)], "most attended to")
    assert "&lt;b&gt;" in table
    assert "12.5%" in table
    assert "1,234" in table
    assert tables.no_token() not in tokens_table([TokenShare("a", 0.5, 3)], "sharpest queries", tables.no_token())
    none = tokens_table([], "sharpest queries", tables.no_token())
    assert f'style="white-space:normal">{tables.no_token()}' in none  # beside another table it takes three lines
    assert "L3 H0" in ranked_table([("L3 H0", 0.25, "induction")], "weight there")


def test_a_heavy_key_far_before_its_query_is_shown_before_a_gap() -> None:
    pieces = tuple(f"·t{index}" for index in range(60))
    one = Example(0.5, "text", pieces, 50, ((3, 0.5), (4, 0.01)), 0, 0)
    plain = re.sub("<[^>]*>", "", deciles_html([Decile(10, 0.5, 0.5, 1, (one,))], "previous"))
    assert re.search(r"t3 … +t34 t35", plain)
    assert "t4 " not in plain
    assert plain.rstrip().endswith("t55 …")


def test_a_heavy_key_far_behind_its_query_is_shown_behind_it() -> None:
    pieces = tuple(f"·t{index}" for index in range(60))
    one = Example(0.5, "text", pieces, 20, ((3, 0.5), (40, 0.25), (59, 0.125)), 0, 0)
    plain = re.sub("<[^>]*>", "", deciles_html([Decile(10, 0.5, 0.5, 1, (one,))], "previous"))
    assert re.search(r"… +t3 t4 t5 .* t25 +… +t40 +… +t59$", plain.strip())  # no gap between 3 and 4, nor at the end
