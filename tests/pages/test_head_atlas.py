"""The Head atlas page without a browser: what it shows for each kind of texts, its choices, and what it refuses."""

import io
import json
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from model import catalog
from model.atlas import progress as atlas_progress
from model.atlas.progress import Measure
from model.atlas.table import measures_table
from model.atlas.unit import measure_unit, units_of_sample
from tests.pages.explore import Explore
from tests.pages.page import Page
from ui import results
from ui.head_atlas import controls


class HeadAtlas(Page):
    """One user's page."""

    SCRIPT = "pages/head_atlas.py"

    def points(self) -> dict[str, Any]:
        return self.trace("atlas_scatter", "heads")


def test_the_sample_is_there_at_once_with_the_head_that_is_chosen() -> None:
    page = HeadAtlas()
    assert "22 texts" in page.words()
    assert "previous token L0 H3;" in page.words()
    points = page.points()
    assert len(points["x"]) == 36
    assert page.app.session_state.get("atlas_unfinished", []) == []
    assert "L4 H0 matches first token" in page.words()
    assert "None matches induction on these texts" in page.words()
    assert page.words().count("(queries: ") == 10


def test_its_numbers_are_those_of_the_command() -> None:
    page = HeadAtlas(atlas_section="all")
    story = catalog.load("story")
    progress = atlas_progress.new_progress(story, 256)
    list(
        atlas_progress.measured(
            units_of_sample(), progress, lambda unit, bar: measure_unit(story, unit, story.standard, 256, bar)
        )
    )
    expected = measures_table(atlas_progress.atlas_from_progress(progress, story))
    (shown,) = page.app.dataframe
    pd.testing.assert_frame_equal(shown.value.reset_index(drop=True), expected, check_dtype=False, rtol=1e-5)
    points = page.points()
    assert points["x"] == pytest.approx(expected["induction"].tolist(), rel=1e-5)
    assert points["y"] == pytest.approx(expected["previous"].tolist(), rel=1e-5)


def test_random_tokens_name_the_card_s_induction_heads() -> None:
    page = HeadAtlas(source="random", layer="5", head="2")
    assert "induction L5 H2, " in page.words()
    assert "L5 H2 matches induction" in page.words()
    assert "None matches induction" not in page.words()


def test_the_table_is_shown_in_chinese_and_written_in_english() -> None:
    page = HeadAtlas(lang="zh", atlas_section="all")
    (shown,) = page.app.dataframe
    assert "前一词元" in set(shown.value["called"])
    button = next(one for one in page.app.get("download_button") if "CSV" in one.proto.label)
    assert button.proto.label == "此表（CSV）"


def test_a_measure_of_weights_on_an_axis_is_a_column_with_its_title_and_words() -> None:
    (shown,) = HeadAtlas(x="copying_scores", atlas_section="all").app.dataframe
    column = json.loads(shown.proto.columns)["copying_scores"]
    assert (column["label"], bool(column["help"])) == (controls.title("copying_scores"), True)


def test_an_atlas_is_measured_once_for_all_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    HeadAtlas()
    monkeypatch.setattr(results, "ask_anew", None)
    assert "22 段文本" in HeadAtlas(lang="zh").words()


def test_the_lifted_mask_gives_a_leak() -> None:
    page = HeadAtlas(y="leak")
    points = page.points()
    assert set(points["y"]) == {0.0}
    page.set(causal=False)
    points = page.points()
    assert min(points["y"]) > 0.01
    assert dict(page.app.query_params)["causal"] == "false"
    assert "later" in page.figures()["atlas_distances"]["data"][0]["customdata"]


def test_the_text_on_the_left_and_none() -> None:
    page = HeadAtlas(source="text", text="The cat saw the dog, and the cat saw the dog.\nA second text.")
    assert "2 texts" in page.words()
    page.set(text=" ")
    assert "Type a text on the left" in page.words()


def test_where_no_token_came_up_often_the_table_says_so_and_has_no_rows() -> None:
    none = "No token occurred 3 times with more than one allowed key."
    assert none in HeadAtlas(source="text", text="A cat").words()
    assert none not in HeadAtlas(source="text", text="a cat a cat a cat a cat").words()


def test_it_is_said_whether_the_examples_are_of_a_sample_of_the_queries() -> None:
    assert (
        "All queries (4), split into deciles; at most 3 random examples of each"
        in HeadAtlas(source="text", text="cat cat cat").words()
    )
    assert "A random sample of " in HeadAtlas().words()


def test_what_is_not_read_of_a_long_text_at_once_is_said() -> None:
    sentences = "cut into rows of 256", "among the first 48 tokens of"
    page = HeadAtlas(source="text", atlas_section="find", text="the cat sat on the mat and saw a dog. " * 40)
    assert [sentence in page.words() for sentence in sentences] == [True, True]
    assert "rows of 256: there are 2." in page.words()
    page.set(text="the cat sat on the mat")
    assert [sentence in page.words() for sentence in sentences] == [False, False]


def test_an_encoder_decoder_has_no_atlas_and_the_page_says_so() -> None:
    page = HeadAtlas(model="dates")
    (error,) = page.app.error
    assert "dates is an encoder-decoder" in error.value
    (error,) = HeadAtlas(model="dates", lang="zh").app.error
    assert "dates 是编码器-解码器" in error.value


def test_an_uploaded_file_and_a_damaged_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for st.file_uploader returns the files."""
    import streamlit as st

    sent: list[Any] = [None]
    monkeypatch.setattr(st, "file_uploader", lambda *_, **__: sent[0])
    page = HeadAtlas(source="file")
    assert "Choose a file" in page.words()
    assert "source" not in dict(page.app.query_params)
    for name, data, words in (
        ("my.csv", b"id,text\n1,The cat saw the dog and the cat ran.\n", "1 text ·"),
        ("my.txt", b"\xff\xfe\x00", "my.txt: expected text"),
        ("my.txt", b"x" * 2_000_001, "expected a file of at most 2 MB, got 2.0 MB"),
    ):
        sent[0] = io.BytesIO(data)
        sent[0].name = name
        page.run()
        assert words in page.words(), name


def test_the_finder_by_distance_and_by_marked_tokens() -> None:
    page = HeadAtlas(atlas_section="find", back="1")
    assert "L0 H3" in page.app.button(key="atlas_take_back").label
    assert "L4 H4" in page.app.button(key="atlas_take_marks").label  # "whistle" followed an earlier "silver"
    page.press("atlas_take_back")
    assert (page.app.session_state["layer"], page.app.session_state["head"]) == (0, 3)
    page.set(atlas_back=-1)
    assert "may attend there" in page.words()


def test_what_is_marked_is_in_the_link_and_comes_back_with_it() -> None:
    page = HeadAtlas(atlas_section="find", looks="7,9", at="3")
    marks = [page.app.button_group(key=key) for key in ("atlas_queries", "atlas_keys")]
    assert [one.value for one in marks] == [[7, 9], [3]]
    marks[1].set_value([2, 5])
    page.run()
    assert page.app.query_params["looks"] in ("7,9", ["7,9"])
    assert page.app.query_params["at"] in ("2,5", ["2,5"])
    for key in ("atlas_queries", "atlas_keys"):
        page.app.button_group(key=key).set_value([])
    page.run()
    assert any("Mark at least one query token" in one.value for one in page.app.info)
    again = HeadAtlas(**page.url)
    assert not again.app.session_state["atlas_queries"] + again.app.session_state["atlas_keys"]
    page.set(text="another text with other tokens")
    assert "looks" not in page.app.query_params, "the marks of one text are not another's"


def test_the_marked_tokens_of_one_model_are_not_those_of_another(folders: dict[str, str]) -> None:
    """The other tokenizer cuts the same line into fewer tokens: the first model's last position does not exist."""
    page = HeadAtlas(atlas_section="find", text="extraordinarily unbelievable circumstances")
    marked = page.app.session_state["atlas_queries"]
    page.set(model="another")
    page.set(other=folders["gpt2"])
    assert page.app.session_state["atlas_queries"] < marked
    assert page.app.button_group(key="atlas_keys").value == page.app.session_state["atlas_keys"] != []


def test_an_example_is_named_with_a_gap_only_where_something_is_left_out() -> None:
    names = HeadAtlas().widget("atlas_example").options
    assert any(". <start>" in name for name in names)
    assert any(". … " in name for name in names)
    assert not any("… <start>" in name for name in names)


def test_an_example_goes_to_explore() -> None:
    page = HeadAtlas(layer="0", head="3", chat="true")
    page.press("atlas_open")
    assert page["chat"] is False, "an example is no message"
    assert page.app.session_state["text"] in units_of_sample()[0].texts
    assert page.app.session_state["page"] == "Explore"
    assert (page.app.session_state["layer"], page.app.session_state["head"]) == (0, 3)
    assert page.app.text_area(key="text").value == page.app.session_state["text"]


def test_an_example_is_about_its_query_where_explore_showed_a_padded_row() -> None:
    rows = "The bird sang\nThe bird sang in the old wood near here, and nobody heard it"
    page = Explore(text=rows, pins="12", query="13").go("pages/head_atlas.py").press("atlas_open")
    chosen = page["query"]
    assert page.run()["query"] == chosen
    assert page["pins"] is None
    again = HeadAtlas().press("atlas_open")
    assert (page["text"], chosen) == (again["text"], again["query"])


def test_an_example_is_about_its_query_where_explore_merged_tokens() -> None:
    page = Explore(by="words").go("pages/head_atlas.py").press("atlas_open")
    assert (page["page"], page["by"]) == ("Explore", "tokens")
    assert page["query"] is not None


def progress_of(page: HeadAtlas) -> str:
    (bar,) = page.app.get("progress")
    return bar.proto.text


def test_a_measurement_that_is_stopped_shows_what_there_is_and_continues_to_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "\n".join(f"the cat sat on the mat and saw {number} dogs" for number in range(80))  # three units of work
    whole = HeadAtlas(source="text", text=text, atlas_section="all")
    assert "80 texts" in whole.words()
    (expected,) = whole.app.dataframe
    results.result_cache().forget(lambda key: isinstance(key, tuple) and key[0] == "atlas")
    monkeypatch.setattr(controls, "SHOW_EVERY", 0.0)  # one unit at a time
    monkeypatch.setattr(controls, "MAX_SECONDS", 0.0)
    page = HeadAtlas(source="text", text=text, atlas_section="all")
    assert progress_of(page).startswith("Stopped after 0 minutes. The result covers 33% of the texts: 32 texts")
    page.press("atlas_go_on")
    assert "64 texts" in page.words()
    page.press("atlas_go_on")
    (shown,) = page.app.dataframe
    assert "atlas_go_on" not in [button.key for button in page.app.button]
    pd.testing.assert_frame_equal(shown.value.drop(columns="called"), expected.value.drop(columns="called"))


def test_a_measurement_goes_on_by_itself_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(f"the dog sat on {number} mats" for number in range(80))
    monkeypatch.setattr(controls, "SHOW_EVERY", 0.0)
    page = HeadAtlas(source="text", text=text)
    assert "80 texts" in page.words()
    page.set(text=text + "\nand a cat")
    results.result_cache().forget(lambda key: isinstance(key, tuple) and key[0] == "atlas")
    grow = controls.GrowingAtlas.grow

    def stopped_after_two(self: controls.GrowingAtlas, measure: Measure) -> None:
        grow(self, measure)
        if self.done == 2:
            self.stop()

    monkeypatch.setattr(controls.GrowingAtlas, "grow", stopped_after_two)
    page.set(text=text + "\nand two cats")
    assert progress_of(page).startswith("Stopped. The result covers 67% of the texts: 64 texts")


def test_a_stopped_measurement_is_kept_while_other_texts_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(f"a queen sat on {number} thrones" for number in range(80))
    monkeypatch.setattr(controls, "SHOW_EVERY", 0.0)
    monkeypatch.setattr(controls, "MAX_SECONDS", 0.0)
    page = HeadAtlas(source="text", text=text)
    stopped = progress_of(page)
    assert "33% of the texts: 32 texts" in stopped
    page.set(text="the queen sat")
    assert "1 text" in page.words()
    page.set(text=text)
    assert progress_of(page) == stopped
    page.set(language_switch="zh")
    assert "Stopped" not in progress_of(page)


def test_one_text_is_in_the_singular(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(controls.st, "progress", lambda share, words: shown.append(words))
    monkeypatch.setattr(controls.st, "button", lambda *some, **named: None)
    growing: Any = SimpleNamespace(done=1, units=[1, 2], stopped=None, stop=None)
    atlas: Any = SimpleNamespace(texts=1, read=7)
    controls._show_progress(growing, atlas)
    assert shown == ["Measuring: 50%, 1 text and 7 tokens so far"]


def test_an_error_while_more_is_measured_is_a_sentence_and_what_there_is_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(f"the king sat on {number} chairs" for number in range(40))
    monkeypatch.setattr(controls, "SHOW_EVERY", 0.0)
    ask = results.ask_anew

    def fails(function: Any, *arguments: Any, **options: Any) -> Any:
        if arguments[1].number:
            raise ValueError("expected something else, got this")
        return ask(function, *arguments, **options)

    monkeypatch.setattr(results, "ask_anew", fails)
    page = HeadAtlas(source="text", text=text)
    assert [error.value for error in page.app.error] == ["expected something else, got this."]
    assert "32 texts" in page.words()
    assert progress_of(page).startswith("Measuring: 50%")


@pytest.mark.parametrize(("text", "there"), [("Tom sat", False), ("Tom sat and Tom sat", True)])
def test_where_a_measure_counts_nowhere_it_says_so_and_offers_no_picture(text: str, there: bool) -> None:
    page = HeadAtlas(source="text", text=text, x="induction")
    assert ("No head has a value for induction" in page.words()) != there
    labels = [one.proto.popover.label for one in page.app.get("popover")]
    assert ("Picture for print" in labels) == there


def test_of_points_is_spoken_only_where_there_are_some() -> None:
    page = HeadAtlas(source="text", text="a")
    sentence = " ".join(one.value for one in page.app.caption)
    assert "Each point is a head" not in sentence
    assert "A head matches a pattern (" in sentence
    page.set(atlas_source="sample")
    assert "Each point is a head; click one. Dotted: " in page.words()


def test_dotted_lines_are_spoken_of_only_where_there_are_some() -> None:
    page = HeadAtlas(x="copying_scores", y="strongest_reads")
    assert not page.figures()["atlas_scatter"]["layout"]["shapes"]
    assert "Each point is a head; click one. A head matches" in page.words()
    page.set(atlas_y="previous")
    assert page.figures()["atlas_scatter"]["layout"]["shapes"]
    assert "Dotted: the value for uniform attention" in page.words()
