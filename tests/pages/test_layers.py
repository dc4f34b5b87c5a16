"""The Across layers page without a browser: its three pictures, any masks, any kind of model."""

import html
import re

import numpy as np
import pytest

from model.base import Model
from model.heads import layers
from model.heads.layers import logit_lens
from model.masks import MaskSpec
from tests.pages.explore import Explore, array
from ui.layers import MAX_LENS, STEP, lens_part
from ui.sidebar.models import FIRST

TEXT = "the cat sat on a mat and then it saw the cat"


class Layers(Explore):
    """One user's page."""

    SCRIPT = "pages/layers.py"

    def cells(self) -> list[str]:
        """Return the most likely tokens of the table, row by row."""
        (table,) = [one for one in self.html() if 'class="lens"' in one]
        return [html.unescape(one) for one in re.findall(r'<td class="s\d+[^>]*>([^<]*)</td>', table)]

    def chart(self, key: str, name: str = "weights") -> list[np.ndarray]:
        return [array(trace["z"]) for trace in self.figures()[key]["data"] if trace["name"] == name]


def test_the_lens_shows_what_the_model_computes(story: Model) -> None:
    page = Layers()
    batch = story.encode([FIRST])
    length = batch.ids.shape[1]
    found = logit_lens(story, batch, MaskSpec(), 0, range(length))
    assert page.cells() == [story.label(int(one)) for position in range(length) for one in found.ids[:, position, 0]]
    assert (
        page.sentence()
        == "After “·silver” the model predicts “·whist” (99.4%), ranked first from L4 on. After L3 it was “·and”."
    )


def test_a_lifted_mask_is_compared_with_the_standard_ones() -> None:
    page = Layers()
    before = page.cells()
    page.set(causal=False)
    assert page.cells() != before
    assert "Under the standard masks it predicts “·whist” (99.4%)" in page.sentence()
    assert any("a different token than under the standard masks" in one for one in page.html())


@pytest.mark.parametrize("over", ["mean", "rollout", "flow"])
def test_one_token_layer_by_layer(story: Model, over: str) -> None:
    page = Layers(across="token", over=over, query="11", causal="false")
    batch = story.encode([FIRST])
    now, standard = page.chart("token_layers")
    for spec, found in ((MaskSpec(causal=False), now), (MaskSpec(), standard)):
        trace = story.run(batch, spec)
        if over == "flow":
            expected = layers.token_flow(trace, 0, spec, 11)
        else:
            expected = layers.layer_maps(trace, 0, spec, over).maps[:, 11]  # type: ignore[arg-type]
        closed = np.zeros(expected.shape, bool)
        if spec.causal:
            closed[:, 12:] = True
        np.testing.assert_allclose(found, np.where(closed, np.nan, expected), atol=1e-6)
    (change,) = page.chart("token_layers", "difference")
    np.testing.assert_allclose(change, now - np.nan_to_num(standard), atol=1e-6)
    assert "largest change from the standard masks" in page.sentence()


def test_all_tokens_at_a_layer(story: Model) -> None:
    page = Layers(across="all", over="rollout", layer="3")
    trace = story.run(story.encode([FIRST]))
    expected = layers.layer_maps(trace, 0, MaskSpec(), "rollout").maps[3]
    np.testing.assert_allclose(page.weights(), np.where(np.tri(len(expected), dtype=bool), expected, np.nan), atol=1e-6)
    (trace_shown,) = [one for one in page.figures()["head_figure"]["data"] if one["name"] == "weights"]
    assert "rollout" in trace_shown["hovertemplate"]
    assert "score" not in str(page.figures()["head_figure"]["data"])
    page.set(layer=0, over="maximum")
    assert page.weights()[0, 0] == 1
    assert "in a single head" in page.sentence()
    page.set(layer=4, over="mean", causal=False)
    assert page.sentence().startswith("In L4, the largest mean weight over heads that “·silver” gives is ")
    assert "In L4, the largest change from the standard masks is on " in page.sentence()


@pytest.mark.parametrize("by", ["tokens", "words", "sentences"])
def test_the_columns_are_called_what_they_are(by: str) -> None:
    page = Layers(across="token", by=by, text="He lost his hat. He saw a dog.", query="1")
    sentence = " ".join(one.value for one in page.app.caption)
    assert re.search(rf"Columns: the {by} that “.*” \(1\) attends to\.", sentence)


def test_flow_is_of_one_token_alone() -> None:
    page = Layers(across="all", over="flow")
    assert page.value("over") == "rollout"
    assert page.widget("over").options == ["mean over heads", "maximum over heads", "rollout"]
    page.set(across="token")
    assert (page.value("over"), page.url["over"]) == ("flow", "flow"), "what was chosen is kept"


def test_a_padded_row_shows_its_own_tokens() -> None:
    page = Layers(text="the cat\nthe cat sat on the mat and saw a dog", across="token")
    (shown,) = page.chart("token_layers")
    assert shown.shape[1] == 3
    page.set(padding=False)
    assert page.chart("token_layers")[0].shape[1] > 3
    page.set(across="lens")
    assert len(page.cells()) == 3 * 7


def test_a_long_text_says_which_part_of_it_is_shown() -> None:
    page = Layers(text="the cat sat on the mat and then the dog saw it. " * 12, query="60")
    sentence = " ".join(one.value for one in page.app.caption)
    assert re.search(r"64 of \d\d\d positions are shown, those around the query: 16 to 79\.", sentence)
    assert len(page.cells()) == 64 * 7


@pytest.mark.parametrize(("begin", "end"), [(0, 257), (5, 139), (3, 60)])
def test_the_part_shown_has_the_query_in_it_and_stays_for_the_next_ones(begin: int, end: int) -> None:
    parts = [lens_part(begin, end, query) for query in range(begin, end)]
    for query, (first, last) in zip(range(begin, end), parts, strict=True):
        assert begin <= first <= query < last <= end
        assert last - first == min(MAX_LENS, end - begin)
    assert len(set(parts)) == 1 + max(-(-(end - begin - MAX_LENS) // STEP), 0), "a run of the model each"


def test_what_a_cell_of_a_long_text_stands_for_is_said() -> None:
    page = Layers(text="the cat sat on the mat and then the dog saw it. " * 16, across="token")
    (shown,) = page.chart("token_layers")
    tokens = len(page.app.selectbox(key="query_0").options)
    step = -(-tokens // 128)
    assert (shown.shape[1], step) == (-(-tokens // step), 2)
    words = f"{tokens:,} positions do not fit on the screen: each"
    assert f"{words} column shows the largest of 2." in " ".join(one.value for one in page.app.caption)
    page.set(across="all")
    words = f"{tokens:,} positions are too many for a screen: each"
    assert f"{words} cell is the largest of 2\u00a0×\u00a02." in " ".join(one.value for one in page.app.caption)


def test_a_text_too_long_for_flow_is_a_sentence() -> None:
    page = Layers(text="the cat sat on the mat and then the dog saw it. " * 30, across="token", over="flow")
    (error,) = page.boxes("error")
    assert "expected at most 140 tokens for attention flow over 6 layers" in error
    assert "shorten the text, or take attention rollout" in error
    page.set(over="rollout")
    assert not page.boxes("error")


class TestOtherModels:
    def test_an_encoder_predicts_nothing_and_has_attention(self, folders: dict[str, str]) -> None:
        page = Layers(model=folders["bert"], text=TEXT)
        assert "predicts no next token" in " ".join(page.boxes("info"))
        page.set(across="token")
        assert page.chart("token_layers")[0].shape == (3, 14)

    def test_a_window_reaches_further_by_the_end_of_every_layer(self, folders: dict[str, str]) -> None:
        page = Layers(model=folders["mistral"], text=TEXT, across="token")
        (shown,) = page.chart("token_layers")
        assert (~np.isnan(shown)).sum(1).tolist() == [3, 5, 7]
        assert len(page.set(across="lens").cells()) == 4 * shown.shape[1]

    def test_an_encoder_decoder_s_two_stacks(self, folders: dict[str, str]) -> None:
        page = Layers(model=folders["t5"], text=TEXT, target="on a mat")
        target = len(page.cells()) // 3
        page.set(across="token")
        assert page.chart("token_layers")[0].shape == (2, target)
        page.set(attention="encoder")
        assert page.chart("token_layers")[0].shape == (3, 13)

    def test_a_model_whose_layers_are_not_known_says_so(self) -> None:
        page = Layers(model="dates", text="3 March 2021")
        assert "the states after each of its layers are not available" in " ".join(page.boxes("error"))
        assert not page.set(across="token").boxes("error")


def test_padding_that_looks_keeps_its_own_state(story: Model) -> None:
    """The padding mask hides the padding's column; a sentence about padding is not about the other columns alone."""
    page = Layers(text="Once\nThe little girl ran down the hill.", across="token", causal="false", query="0")
    run = story.run(story.encode(["Once", "The little girl ran down the hill."], "left"), MaskSpec(causal=False))
    own = layers.layer_maps(run, 0, run.spec, "rollout").maps[-1, 0, 0]
    assert f"{own:.1%} of “<pad>”'s rollout comes from itself" in page.sentence()
    assert own == pytest.approx(1 / 2**6, rel=1e-4)  # each layer keeps half of it


def test_a_mask_that_changes_nothing_is_said_to_change_nothing() -> None:
    page = Layers(text="Once upon a time", across="token", padding="false")
    assert "rollout comes from itself" in page.sentence()
    assert "The largest change" not in page.sentence()
    assert "The largest change" in Layers(text="Once upon a time", across="token", causal="false", query="2").sentence()
