"""Words, several queries, and tables of numbers on pages. Run: python -m pytest tests/pages/test_merging.py"""

from itertools import pairwise

import numpy as np
import pytest

from model.base import Model
from model.heads.merging import groups_of, merged_head
from tests.pages.explore import Explore
from tests.pages.page import array
from viz import figure_table

TEXT = "Once upon a time there was Lily's cat. She ran and the cat ran."


@pytest.mark.parametrize("by", ["words", "sentences"])
def test_the_heatmap_and_the_overview_are_of_merged_tokens(story: Model, by: str) -> None:
    page = Explore(text=TEXT, by=by, layer="3", head="2")
    trace = story.run(story.encode([TEXT]))
    expected = merged_head(trace, 0, trace.spec, 3, 2, by)  # type: ignore[arg-type]
    np.testing.assert_allclose(np.nan_to_num(page.weights()), expected.weights, atol=1e-6)
    np.testing.assert_array_equal(np.isnan(page.weights()), expected.any_blocked())
    _, pixels = page.packet()
    assert pixels.shape[2:] == expected.weights.shape
    assert any("Tokens are merged into" in words for words in page.said("caption"))
    assert "carried" not in page.app.session_state["view"]


def test_what_follows_a_word_follows_its_last_token(story: Model) -> None:
    batch = story.encode([TEXT])
    groups = groups_of(batch, 0, "words")
    word = next(place for place, (one, other) in enumerate(pairwise(groups)) if other > one + 1)
    of_word = Explore(text=TEXT, by="words", query=str(word))
    of_token = Explore(text=TEXT, query=str(groups[word + 1] - 1))
    assert of_word.candidates() == of_token.candidates()
    assert of_word.sentence() == of_token.sentence()


def test_positions_are_forgotten_where_they_would_count_something_else() -> None:
    page = Explore(text=TEXT, by="words", query="4", span="2-3")
    page.go("pages/mask_lab.py")
    state = page.app.session_state
    assert (state["by"], state["query"], state["span"]) == ("tokens", None, None)


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
