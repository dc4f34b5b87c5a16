"""The Padding page without a browser: every way to pad, any text, any kind of model.

python -m pytest tests/pages/test_padding.py
"""

import html
import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Button

from model import padding
from model.base import Model
from model.padding import CHOICES, PaddingChoice
from tests.model.huggingface.families import save
from tests.model.runs_alone import runs_alone
from tests.pages.test_chinese import english, texts
from ui.padding import OURS
from ui.sidebar.models import FIRST
from viz.html import amount

ROOT = Path(__file__).parents[2]
LINES = "Once upon a time\nThe king said to his\nThe little girl ran down the hill and home"


class Padding:
    """One reader's page. Every run of it has to end without an exception."""

    def __init__(self, text: str | None = None, **query: str) -> None:
        self.app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)  # to which a page's links are relative
        self.app.switch_page("pages/padding.py")
        self.app.query_params.update(query | ({} if text is None else {"text": text}))
        self.run()

    def run(self) -> "Padding":
        self.app.run()
        assert not self.app.exception, self.app.exception[0].stack_trace
        return self

    def choose(self, **choices: str) -> "Padding":
        """Take an option of each of these segmented controls, by their keys."""
        for key, option in choices.items():
            self.app.button_group(key=key).set_value(option)
        return self.run()

    def causal(self, on: bool) -> "Padding":
        self.app.toggle(key="causal").set_value(on)
        return self.run()

    def type(self, text: str) -> "Padding":
        self.app.text_area(key="text").set_value(text)
        return self.run()

    @property
    def keys(self) -> set[str]:
        """The segmented controls that there are."""
        return {one.key for one in self.app.get("button_group")} - {"language_switch"}

    def pieces(self) -> str:
        """All of the page's own HTML."""
        return "".join(one.proto.body for one in self.app.get("html") if not one.proto.unsafe_allow_javascript)

    def sentence(self) -> str:
        """What is to be noticed."""
        (found,) = re.findall(r'<p class="sentence">(.*?)</p>', self.pieces())
        return html.unescape(re.sub("<.*?>", "", found))

    def ways(self) -> list[Button]:
        """The table of ways: its buttons, in its order."""
        return [button for button in self.app.button if (button.key or "").startswith("way_")]

    def verdicts(self) -> list[str]:
        """ "correct" or "wrong" of every way."""
        return [re.findall("[✓✗] (correct|wrong)", button.label)[0] for button in self.ways()]

    def framed(self) -> str:
        """What the button of the way shown says."""
        (found,) = [button for button in self.ways() if button.proto.type == "primary"]
        return found.label

    def texts(self) -> list[list[str]]:
        """The cells of the table of sentences."""
        (table,) = re.findall(r'<table class="numbers texts">(.*?)</table>', self.pieces())
        rows = [re.findall("<td.*?>(.*?)</td>", row) for row in table.split("<tr>")[2:]]
        return [[html.unescape(re.sub("<.*?>", "", cell)) for cell in row] for row in rows]

    def tokens(self) -> list[str]:
        """The grid's tokens, padding included."""
        (table,) = re.findall(r'<table class="padded">(.*?)</table>', self.pieces())
        return [html.unescape(token) for token in re.findall(r'<td[^>]*><span class="t">(.*?)</span>', table)]

    def said(self, kind: str) -> str:
        return " ".join(re.sub(r"\\([^A-Za-z0-9])", r"\1", box.value) for box in getattr(self.app, kind))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("models")
    return {name: str(save(name, root / name)) for name in ("llama", "bert", "roberta", "t5")}


class TestFirstView:
    def test_shows_something_wrong_and_how_to_mend_it(self) -> None:
        page = Padding()
        assert "Left padding, padding mask on keys, position ids 0…22: wrong." in page.sentence()
        assert "position ids from the mask" in page.sentence()
        assert page.verdicts() == ["correct"] * 6 + ["wrong"] * 4 + ["correct"] * 2
        assert page.tokens().count("<pad>") > 10
        assert not page.said("error") + page.said("warning") + page.said("info")

    def test_is_there_after_explore_too(self) -> None:
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120).run()
        app.switch_page("pages/padding.py").run()
        assert not app.exception
        assert app.button_group(key="padding_mask").value == "keys"


class TestEveryWay:
    @pytest.mark.parametrize("causal", [True, False])
    def test_each_choice_is_measured_and_framed(self, story: Model, causal: bool) -> None:
        page = Padding(text=LINES).causal(causal)
        texts = LINES.split("\n")
        by_themselves = runs_alone(story, texts, causal)
        verdicts = page.verdicts()
        assert len(verdicts) == 12
        for place, choice in enumerate(CHOICES):
            page.choose(pad=choice.side, padding_mask=choice.mask, position_ids=choice.positions)
            differences = padding.compare(story, texts, choice, causal, *by_themselves).largest()
            assert [row[2] for row in page.texts()] == [amount(one) for one in differences]
            assert verdicts[place] in page.framed()
            assert amount(max(differences)) in page.framed()
            assert f": {verdicts[place]}." in page.sentence()
            assert page.verdicts() == verdicts

    def test_pressing_a_way_chooses_it(self) -> None:
        page = Padding(text=LINES)
        for place, choice in list(enumerate(CHOICES))[::5]:
            verdict = page.verdicts()[place]
            page.ways()[place].click()
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
                assert guess is not None
                assert cell.startswith(story.label(guess.token) + " ")
        assert page.texts()[0][5].startswith(story.label(found.at_end[0].token) + " ")  # type: ignore[union-attr]

    def test_choices_are_in_the_url_and_stay_when_the_page_is_left(self) -> None:
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120).run()
        app.switch_page("pages/padding.py").run()
        app.button_group(key="padding_mask").set_value("off")
        app.button_group(key="pad").set_value("right")
        app.run()
        assert app.query_params["padding_mask"] in ("off", ["off"])
        app.switch_page("app.py").run()
        app.switch_page("pages/padding.py").run()
        assert not app.exception
        assert (app.button_group(key="padding_mask").value, app.button_group(key="pad").value) == ("off", "right")

    @pytest.mark.parametrize("query", [{"padding_mask": "everything"}, {"position_ids": "<b>"}, {"pad": "up"}])
    def test_a_link_that_makes_no_sense_shows_the_first_view(self, query: dict[str, str]) -> None:
        assert Padding(**query).sentence() == Padding().sentence()


class TestTexts:
    def test_a_line_of_its_own_stands_with_ours_which_can_be_taken_over(self) -> None:
        page = Padding()
        assert "adds two lines of its own" in page.said("caption")
        next(button for button in page.app.button if button.label == "Edit these lines").click()
        page.run()
        assert page.app.text_area(key="text").value == "\n".join([FIRST, *OURS])
        assert "of its own" not in page.said("caption")
        assert len(page.texts()) == 3

    @pytest.mark.parametrize("text", ["", "   \n\n \t"])
    def test_no_text_shows_ours(self, text: str) -> None:
        page = Padding().type(text)
        assert len(page.texts()) == 2
        assert "No text yet" in page.said("caption")

    def test_lines_of_one_length_stand_with_ours(self) -> None:
        page = Padding(text="a cat\na cat")
        assert len(page.texts()) == 4
        assert "same length" in page.said("caption")

    @pytest.mark.parametrize(
        "text",
        [
            "🦊🦊\nthe fox",
            "<script>alert(1)</script>\n**bold** $x$",
            "a\nb c d",
            "漢字 é\nعربي ok then",
            "\x00\x07 a\nb",
        ],
    )
    def test_odd_texts_are_text(self, text: str) -> None:
        page = Padding(text=text)
        assert len(page.verdicts()) == 12
        assert "<script>alert" not in page.pieces()

    def test_a_long_text_is_said_to_be_cut(self) -> None:
        page = Padding(text="the cat " * 3000 + "\nshort")
        assert "Sentence 1 is cut to its first 128 tokens" in page.said("caption")
        assert len(page.tokens()) == 256

    def test_of_many_lines_the_first_eight(self) -> None:
        page = Padding(text="\n".join("word " * number for number in range(1, 30)))
        assert len(page.texts()) == 8
        assert "Only the first 8 lines are shown, 21 more are left out" in page.said("caption")

    def test_of_many_lines_of_one_length_none_is_lost_by_taking_ours(self) -> None:
        page = Padding(text="\n".join(["a cat"] * 11))
        assert len(page.texts()) == 8
        next(button for button in page.app.button if button.label == "Edit these lines").click()
        page.run()
        lines = page.app.text_area(key="text").value.split("\n")
        assert sorted(lines) == sorted(["a cat"] * 11 + list(OURS))


class TestOtherModels:
    def test_rotary_positions(self, folders: dict[str, str]) -> None:
        page = Padding(model=folders["llama"], text="the cat\nthe cat sat on a mat\na")
        assert page.verdicts() == ["correct"] * 6 + ["wrong", "correct", "correct"] * 2
        assert "works with any position ids" in page.pieces()

    def test_an_encoder_has_no_causal_mask_and_no_next_token(self, folders: dict[str, str]) -> None:
        page = Padding(model=folders["bert"], text="the cat\nthe cat sat on a mat\na")
        assert page.app.toggle(key="causal").value is False
        assert page.verdicts() == ["wrong", "correct", "correct"] * 2 + ["wrong"] * 4 + ["correct"] * 2
        assert "predicts no next token" in page.said("caption")
        assert all(len(row) == 3 for row in page.texts())
        page.causal(True)
        assert page.verdicts()[:6] == ["correct"] * 6

    def test_a_model_with_positions_of_its_own_has_no_control_for_them(self, folders: dict[str, str]) -> None:
        page = Padding(model=folders["roberta"], text="the cat\nthe cat sat on a mat\na")
        assert page.keys == {"pad", "padding_mask"}
        assert "its own position ids" in page.said("caption")
        assert page.verdicts() == ["wrong", "correct", "correct"] * 2

    def test_an_encoder_decoder_is_said_to_be_none_of_this_pages(self, folders: dict[str, str]) -> None:
        page = Padding(model=folders["t5"], text="the cat\na")
        assert "models with one stack" in page.said("info")
        assert not page.keys
        page.app.selectbox(key="model").set_value("story")
        assert len(page.run().verdicts()) == 12

    def test_a_model_that_cannot_be_had_is_a_sentence(self) -> None:
        page = Padding(model="/no/such/folder")
        assert "story" in page.said("error")
        assert len(page.verdicts()) == 12


@pytest.mark.parametrize("query", [
    {"pad": "right", "padding_mask": "off"},
    {"pad": "left", "padding_mask": "both", "position_ids": "counted", "text": "a b\nc d e f"},
    {"pad": "right", "causal": "0", "padding_mask": "off", "text": "a b\nc d e f"},
])  # fmt: skip
def test_in_chinese_no_way_is_told_in_english(query: dict[str, str]) -> None:
    page = Padding(lang="zh", **query)
    assert not [found for shown in texts(page.app) for found in english(shown)]
