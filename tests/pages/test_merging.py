"""Merged tokens, several queries, and tables of numbers on pages. Run: python -m pytest tests/pages/test_merging.py"""

import re
from itertools import pairwise

import numpy as np
import pytest

from model.base import Model
from model.heads import layers
from model.heads.layers import logit_lens
from model.heads.merging import groups_of, merged_head
from model.masks import MaskSpec
from tests.pages.explore import Explore
from tests.pages.page import array
from tests.pages.test_compare import Compare
from tests.pages.test_layers import Layers
from tests.pages.test_mask_lab import Lab
from tests.viz.packet import unpacked
from viz import figure_table

TEXT = "Once upon a time there was Lily's cat. She ran and the cat ran."
FREE = MaskSpec(causal=False)


def edges(model: Model, text: str, by: str) -> list[tuple[int, int]]:
    """Return the tokens of each word or sentence as (first, last + 1)."""
    batch = model.encode([text])
    return list(pairwise([*groups_of(batch, 0, by), batch.ids.shape[1]]))  # type: ignore[arg-type]


def by_hand(weights: np.ndarray, groups: list[tuple[int, int]]) -> np.ndarray:
    """Merge weights [.., T,T]: sum over keys, mean over queries, each of which attends to something."""
    rows = [np.stack([weights[..., a:b, c:d].sum(-1).mean(-1) for c, d in groups], -1) for a, b in groups]
    return np.stack(rows, -2)


def heads(model: Model, spec: MaskSpec, text: str = TEXT) -> np.ndarray:
    """Return the weights of all heads, [L,H,T,T]."""
    trace = model.run(model.encode([text]), spec)
    return np.stack([[trace.weights(layer, head).numpy() for head in range(6)] for layer in range(6)])


def test_the_note_on_the_next_token_names_what_positions_count() -> None:
    page = Explore(text=TEXT, by="sentences", query="1", causal="false")
    name = re.escape(page.names()[1].partition(": ")[2])
    assert re.search(f"After {name} \\(1\\) the most likely next token was", page.words())


@pytest.mark.parametrize("by", ["words", "sentences"])
def test_the_heatmap_and_the_overview_are_of_merged_tokens(story: Model, by: str) -> None:
    page = Explore(text=TEXT, by=by, layer="3", head="2")
    trace = story.run(story.encode([TEXT]))
    expected = merged_head(trace, 0, trace.spec, 3, 2, by)  # type: ignore[arg-type]
    np.testing.assert_allclose(np.nan_to_num(page.weights()), expected.weights, atol=1e-6)
    np.testing.assert_array_equal(np.isnan(page.weights()), expected.any_blocked())
    _, pixels = page.packet()
    assert pixels.shape[2:] == expected.weights.shape
    assert any("Tokens are merged into" in words for words in page.boxes("caption"))
    assert "carried" not in page.app.session_state["view"]


def test_what_follows_a_word_follows_its_last_token(story: Model) -> None:
    batch = story.encode([TEXT])
    groups = groups_of(batch, 0, "words")
    word = next(index for index, (one, other) in enumerate(pairwise(groups)) if other > one + 1)
    of_word = Explore(text=TEXT, by="words", query=str(word))
    of_token = Explore(text=TEXT, query=str(groups[word + 1] - 1))
    assert of_word.candidates() == of_token.candidates()
    assert of_word.sentence() == of_token.sentence()


def test_positions_are_forgotten_where_they_would_count_something_else() -> None:
    page = Explore(text=TEXT, by="words", query="4", span="2-3")
    state = page.go("pages/compare.py").app.session_state
    assert (state["by"], state["query"], state["span"]) == ("words", 4, "2-3")
    page.go("pages/mask_lab.py")
    assert (state["by"], state["query"], state["span"]) == ("words", None, None)
    page.set(query=9, by="sentences")
    assert state["query"] == 9
    page.go("pages/layers.py")
    assert (state["by"], state["query"]) == ("sentences", None)
    page.set(query=2, by="words")
    assert state["query"] is None
    page.set(query=2).go("pages/ablation.py")
    assert (state["by"], state["query"]) == ("words", None)  # kept for the pages that merge


class TestCompare:
    OTHER = TEXT.replace("time", "whistle")  # a word of two tokens in place of one

    def test_each_side_is_merged_into_its_own_words(self, story: Model) -> None:
        given = {"text": TEXT, "differs": "text", "b_text": self.OTHER, "layer": "3", "head": "2"}
        assert "head_difference" not in Compare(**given).figures()
        page = Compare(by="words", **given)
        one, other = (by_hand(heads(story, MaskSpec(), text)[3, 2], edges(story, text, "words"))
                      for text in (TEXT, self.OTHER))  # fmt: skip
        np.testing.assert_allclose(page.shown("head_a"), one, atol=1e-6)
        np.testing.assert_allclose(page.shown("head_b"), other, atol=1e-6)
        np.testing.assert_allclose(page.shown("head_difference"), other - one, atol=1e-6)
        query, key = np.unravel_index(np.abs(other - one).argmax(), one.shape)
        assert re.search(rf"\({query}\) attends to .* \({key}\): {one[query, key]:.3f} in A", page.sentence())
        assert "query: what attends" in str(page.figures()["head_difference"]["layout"])
        assert "Activation patching works on tokens, not on words or sentences." in " ".join(page.boxes("caption"))

    def test_what_follows_a_word_and_what_is_patched_is_of_its_last_token(self, story: Model) -> None:
        given = {"differs": "text", "text": self.OTHER, "b_text": f"A{self.OTHER[4:]}", "patching": "true"}
        groups = edges(story, self.OTHER, "words")
        word = next(index for index, (one, end) in enumerate(groups) if end > one + 1)
        of_words, of_tokens = (
            Compare(by=by, query=str(query), patch_of="positions", **given)
            for by, query in (("words", word), ("tokens", groups[word][1] - 1))
        )
        assert of_words.candidates() == of_tokens.candidates()
        np.testing.assert_array_equal(*(array(page.figures()["patch_map"]["data"][0]["z"])
                                        for page in (of_words, of_tokens)))  # fmt: skip
        assert f"After “·whistle” ({word}) in A, after “·whistle” ({word}) in B." in of_words.boxes("caption")


class TestAcrossLayers:
    @pytest.mark.parametrize("by", ["words", "sentences"])
    @pytest.mark.parametrize("over", ["mean", "maximum", "rollout"])
    def test_all_queries_and_one(self, story: Model, by: str, over: str) -> None:
        """Heads are merged before their maximum, which is therefore at most 1; a rollout after its product."""
        every, groups = heads(story, FREE), edges(story, TEXT, by)
        if over == "rollout":
            expected = by_hand(layers.rollout(every.mean(1)), groups)
        else:
            expected = getattr(by_hand(every, groups), "mean" if over == "mean" else "max")(1)
        page = Layers(text=TEXT, by=by, across="all", over=over, layer="2", causal="false", query="1")
        np.testing.assert_allclose(page.weights(), expected[2], atol=1e-6)
        assert len(page.labels()) == len(groups)
        assert f"Tokens are merged into {by}" in " ".join(page.boxes("caption"))
        page.set(across="token")
        assert page.url["by"] == by
        np.testing.assert_allclose(page.chart("token_layers")[0], expected[:, 1], atol=1e-6)
        assert f"“{page.app.selectbox(key='query_0').options[1][3:]}”" in page.sentence()

    def test_cells_are_blocked_where_all_of_theirs_are(self, story: Model) -> None:
        groups = edges(story, TEXT, "words")
        closed = np.array([[key[0] >= query[1] for key in groups] for query in groups])
        for over in ("maximum", "rollout"):
            page = Layers(text=TEXT, by="words", across="all", over=over, layer="2")
            np.testing.assert_array_equal(np.isnan(page.weights()), closed)

    def test_flow_is_of_tokens_alone(self) -> None:
        page = Layers(text=TEXT, across="token", over="flow", by="words")
        assert (page.value("over"), "flow" in page.widget("over").options) == ("rollout", False)
        page.set(by="tokens")
        assert page.value("over") == "flow", "what was chosen is kept"

    @pytest.mark.parametrize("by", ["words", "sentences"])
    def test_the_lens_reads_the_last_token(self, story: Model, by: str) -> None:
        ends = [end - 1 for _, end in edges(story, TEXT, by)]
        found = logit_lens(story, story.encode([TEXT]), MaskSpec(), 0, ends)
        page = Layers(text=TEXT, by=by)
        assert page.cells() == [story.label(int(one)) for index in range(len(ends)) for one in found.ids[:, index, 0]]
        assert "What follows a word or a sentence is what follows its last token." in " ".join(page.boxes("caption"))
        of_tokens = Layers(text=TEXT)
        assert page.sentence().partition(" the model")[2] == of_tokens.sentence().partition(" the model")[2]


class TestMaskLab:
    def test_the_head_is_merged_and_the_mask_is_drawn_on_tokens(self, story: Model) -> None:
        groups = edges(story, TEXT, "words")
        word = next(index for index, (one, end) in enumerate(groups) if end > one + 1)
        page = Lab(text=TEXT, by="words", layer="3", head="2", causal="false", query=str(groups[word][0]))
        now, standard = (by_hand(heads(story, spec)[3, 2], groups) for spec in (FREE, MaskSpec()))
        np.testing.assert_allclose(page.weights(), now, atol=1e-6)
        (frame,) = page.figures()["head_figure"]["layout"]["shapes"]
        assert (frame["y0"], frame["y1"]) == (word - 0.5, word + 0.5)
        page.set(shown="change")
        change = array(page.trace("head_figure", "difference")["z"])
        np.testing.assert_allclose(change, now - standard, atol=1e-6)
        header, *_ = unpacked(page.packets()["unmask_mask"])
        tokens = groups[-1][1]
        assert f"queries in rows ({tokens})" in str(header)
        assert len(page.widget("query").options) == tokens
        assert any("Masks are drawn on tokens" in sentence for sentence in page.boxes("caption"))
        assert page.url["by"] == "words"

    def test_the_words_of_the_tokens_zoomed_into(self, story: Model) -> None:
        groups = edges(story, TEXT, "words")
        word = next(index for index, (one, end) in enumerate(groups) if end > one + 1)
        first, last = groups[word][1] - 1, groups[word + 2][0]
        page = Lab(text=TEXT, by="words", zoom=f"{first}-{last},0-{last}")
        assert page.weights().shape == (3, word + 3)


@pytest.mark.parametrize(("how", "times"), [("mean", 1), ("sum", 3)])
def test_several_queries_together(how: str, times: int) -> None:
    page = Explore(text=TEXT, view="span", span="5-6,9", pooled=how)
    bars = array(page.figures()["span_bars"]["data"][0]["y"])
    expected = np.nan_to_num(page.weights())[[5, 6, 9]].mean(0) * times
    np.testing.assert_allclose(np.nan_to_num(bars), expected, atol=1e-6)


def test_rows_that_are_zoomed_into_are_the_queries() -> None:
    page = Explore(text=TEXT, view="span", zoom="3-7,0-9")
    assert any(one.value == "3-7" for one in page.app.text_input)


def test_canvases_have_tables_of_what_they_draw() -> None:
    page = Explore(text=TEXT, layer="3", head="2", view="tokens")
    page.app.session_state["numbers_of_head_tokens"] = page.app.session_state["numbers_of_overview"] = True
    page.run()
    assert not page.app.exception
    weights = page.weights()
    tables = [one.value for one in page.app.dataframe]
    (of_head,) = [table for table in tables if table.shape == weights.shape]
    assert (of_head.iloc[0, 1], float(of_head.iloc[5, 2])) == ("causal", pytest.approx(weights[5, 2], abs=0.006))
    of_heads = [table for table in tables if table.shape == (6, 6)]
    assert float(of_heads[-1].iloc[3, 2]) == pytest.approx(np.nanmax(weights), rel=1e-3)
    assert any(caption.value == "first token" for caption in page.app.caption)


def test_a_table_is_made_once_it_is_opened_and_has_the_figure_s_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    whole = figure_table.figure_tables
    monkeypatch.setattr(figure_table, "figure_tables", lambda figure: made.append(1) or whole(figure))
    page = Explore(text=TEXT, layer="3", head="2")
    assert not made
    page.app.session_state["numbers_of_head_figure"] = True
    page.run()
    (table,) = [one.value for one in page.app.dataframe if one.value.shape == page.weights().shape]
    assert table.iloc[0, 1] == "blocked"
    assert float(table.iloc[5, 2]) == pytest.approx(page.weights()[5, 2], rel=1e-4)
