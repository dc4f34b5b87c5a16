"""The Padding page without a browser: every way to pad, any text, any kind of model."""

import html
import re

import pytest
from streamlit.testing.v1.element_tree import Button

from model import padding
from model.base import Model
from model.padding import CHOICES, PaddingChoice
from tests.model.runs_alone import runs_alone
from tests.pages.page import Page, plain
from ui.padding import OURS
from ui.sidebar.models import FIRST
from viz.html import amount

LINES = "Once upon a time\nThe king said to his\nThe little girl ran down the hill and home"


class Padding(Page):
    """One user's page."""

    SCRIPT = "pages/padding.py"

    @property
    def keys(self) -> set[str]:
        """Return the keys of the page's segmented controls."""
        return {one.key for one in self.app.get("button_group")} - {"language_switch"}

    def ways(self) -> list[Button]:
        """Return the buttons of the table of ways to pad, in order."""
        return [button for button in self.app.button if (button.key or "").startswith("way_")]

    def verdicts(self) -> list[str]:
        """Return "correct" or "wrong" for every way."""
        return [re.findall("[✓✗] (correct|wrong)", button.label)[0] for button in self.ways()]

    def framed(self) -> str:
        """Return the label of the button of the way shown."""
        (found,) = [button for button in self.ways() if button.proto.type == "primary"]
        return found.label

    def texts(self) -> list[list[str]]:
        """Return the cells of the table of sentences."""
        (table,) = re.findall(r'<table class="numbers texts">(.*?)</table>', "".join(self.html()))
        rows = [re.findall("<td.*?>(.*?)</td>", row) for row in table.split("<tr>")[2:]]
        return [[plain(cell) for cell in row] for row in rows]

    def tokens(self) -> list[str]:
        """Return the grid's tokens, including padding."""
        (table,) = re.findall(r'<table class="padded">(.*?)</table>', "".join(self.html()))
        return [html.unescape(token) for token in re.findall(r'<td[^>]*><span class="t">(.*?)</span>', table)]


class TestFirstView:
    def test_shows_something_wrong_and_how_to_mend_it(self) -> None:
        page = Padding()
        assert "Left padding, padding mask on keys, position ids 0…22: wrong." in page.sentence()
        assert "position ids from the mask" in page.sentence()
        assert page.verdicts() == ["correct"] * 6 + ["wrong"] * 4 + ["correct"] * 2
        assert page.tokens().count("<pad>") > 10
        assert not page.boxes("error") + page.boxes("warning") + page.boxes("info")


class TestEveryWay:
    @pytest.mark.parametrize("causal", [True, False])
    def test_each_choice_is_measured_and_framed(self, story: Model, causal: bool) -> None:
        page = Padding(text=LINES).set(causal=causal)
        texts = LINES.split("\n")
        by_themselves = runs_alone(story, texts, causal)
        verdicts = page.verdicts()
        assert len(verdicts) == 12
        for index, choice in enumerate(CHOICES):
            page.set(pad=choice.side, padding_mask=choice.mask, position_ids=choice.positions)
            differences = padding.compare(story, texts, choice, causal, *by_themselves).largest()
            assert [row[2] for row in page.texts()] == [amount(one) for one in differences]
            assert verdicts[index] in page.framed()
            assert amount(max(differences)) in page.framed()
            assert f": {verdicts[index]}." in page.sentence()
            assert page.verdicts() == verdicts

    def test_pressing_a_way_chooses_it(self) -> None:
        page = Padding(text=LINES)
        for index, choice in list(enumerate(CHOICES))[::5]:
            verdict = page.verdicts()[index]
            page.ways()[index].click()
            page.run()
            assert (page.app.session_state.pad, page.app.session_state.padding_mask) == (choice.side, choice.mask)
            assert page.app.session_state.position_ids == choice.positions
            assert verdict in page.framed()
            assert f": {verdict}." in page.sentence()

    def test_next_tokens_are_the_models(self, story: Model) -> None:
        texts = LINES.split("\n")
        page = Padding(text=LINES, pad="right", padding_mask="off", position_ids="counted")
        by_themselves = runs_alone(story, texts, True)
        alone = padding.alone(story, *by_themselves)
        found = padding.compare(story, texts, PaddingChoice("right", "off", "counted"), True, *by_themselves)
        for row, cells in enumerate(page.texts()):
            for cell, guess in zip(cells[3:5], (alone.guesses[row], found.guesses[row]), strict=True):
                assert cell.startswith(story.label(guess.token) + " ")
        assert page.texts()[0][5].startswith(story.label(found.at_end[0].token) + " ")  # type: ignore[union-attr]


class TestTexts:
    def test_a_line_of_its_own_stands_with_ours_which_can_be_taken_over(self) -> None:
        page = Padding()
        assert "adds two of its own" in page.words()
        page.press("Edit these lines")
        assert page.app.text_area(key="text").value == "\n".join([FIRST, *OURS])
        assert "of its own" not in page.words()
        assert len(page.texts()) == 3

    @pytest.mark.parametrize("text", ["", "   \n\n \t"])
    def test_no_text_shows_ours(self, text: str) -> None:
        page = Padding().type(text)
        assert len(page.texts()) == 2
        assert "Padding needs lines of different lengths" in page.words()

    def test_lines_of_one_length_stand_with_ours(self) -> None:
        page = Padding(text="a cat\na cat")
        assert len(page.texts()) == 4
        assert "Padding needs lines of different lengths" in page.words()

    def test_a_long_text_is_said_to_be_cut(self) -> None:
        page = Padding(text="the cat " * 3000 + "\nshort")
        assert "Sentence 1 is cut to its first 128 tokens" in page.words()
        assert len(page.tokens()) == 256

    def test_of_many_lines_the_first_eight(self) -> None:
        page = Padding(text="\n".join("word " * number for number in range(1, 30)))
        assert len(page.texts()) == 8
        assert "Lines shown: the first 8 of 29" in page.words()

    def test_of_many_lines_of_one_length_none_is_lost_by_taking_ours(self) -> None:
        page = Padding(text="\n".join(["a cat"] * 11))
        assert len(page.texts()) == 8
        page.press("Edit these lines")
        lines = page.app.text_area(key="text").value.split("\n")
        assert sorted(lines) == sorted(["a cat"] * 11 + list(OURS))


class TestOtherModels:
    def test_a_models_own_window_is_named_in_the_reasons(self, folders: dict[str, str]) -> None:
        text = "the cat sat on a mat and it saw the cat\nthe cat"
        sentence = "Where a layer has a window or chunks, tokens attend only within these."
        assert sentence in Padding(model=folders["mistral"], text=text).words()
        assert sentence not in Padding(model=folders["llama"], text=text).words()

    def test_rotary_positions(self, folders: dict[str, str]) -> None:
        page = Padding(model=folders["llama"], text="the cat\nthe cat sat on a mat\na")
        assert page.verdicts() == ["correct"] * 6 + ["wrong", "correct", "correct"] * 2

    def test_an_encoder_has_no_causal_mask_and_no_next_token(self, folders: dict[str, str]) -> None:
        page = Padding(model=folders["bert"], text="the cat\nthe cat sat on a mat\na")
        assert page.app.toggle(key="causal").value is False
        assert page.verdicts() == ["wrong", "correct", "correct"] * 2 + ["wrong"] * 4 + ["correct"] * 2
        assert "predicts no next token" in page.words()
        assert all(len(row) == 3 for row in page.texts())
        page.set(causal=True)
        assert page.verdicts()[:6] == ["correct"] * 6

    def test_a_model_with_positions_of_its_own_has_no_control_for_them(self, folders: dict[str, str]) -> None:
        page = Padding(model=folders["roberta"], text="the cat\nthe cat sat on a mat\na")
        assert page.keys == {"pad", "padding_mask"}
        assert "its own position ids" in page.words()
        assert page.verdicts() == ["wrong", "correct", "correct"] * 2

    def test_an_encoder_decoder_is_said_to_be_none_of_this_pages(self, folders: dict[str, str]) -> None:
        page = Padding(model=folders["t5"], text="the cat\na")
        assert "models with one stack" in page.words()
        assert not page.keys
        page.set(model="story")
        assert len(page.verdicts()) == 12
