"""Tests of pictures for print in Chinese, on machines with and without a font for it."""

import io
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.font_manager import FontEntry
from matplotlib.text import Text
from pypdf import PdfReader

from i18n import language, spoken
from model.heads.view import HeadView, cropped
from tests.viz.export.test_picture import LABELS, PAPER, file_of, labelled, texts
from tests.viz.views import causal
from viz.export import fonts
from viz.export.paper import Paper, Sheet
from viz.export.picture import coloured_text_picture

HAN = "Some Han font"


def with_fonts(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Simulate a machine that has DejaVu, which lacks Chinese, and these fonts, which have all of it."""
    monkeypatch.setattr(fonts, "_in_ours", lambda character: ord(character) < 0x2E80)
    monkeypatch.setattr(fonts, "_covering", lambda character: next(iter(names), None))


def row() -> HeadView:
    return cropped(labelled(causal=causal(7)), (4, 5), (0, 7))


def test_words_are_in_the_readers_language_where_a_font_here_has_its_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    with_fonts(monkeypatch)
    with spoken("zh"):
        assert [fonts.language_of(kind) for kind in ("svg", "png", "pdf")] == ["zh", "en", "en"]
    assert fonts.language_of("pdf") == "en"
    with_fonts(monkeypatch, HAN)
    with spoken("zh"):
        assert [fonts.language_of(kind) for kind in ("svg", "png", "pdf")] == ["zh", "zh", "zh"]
    assert fonts.language_of("pdf") == "en"


def test_a_font_that_lacks_letters_of_chinese_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    with_fonts(monkeypatch, HAN)
    monkeypatch.setattr(fonts, "_covering", lambda character: None if character == "词" else HAN)  # as a Japanese font
    assert not fonts.writes("zh")


@pytest.mark.filterwarnings("ignore")  # the font does not exist
def test_every_word_of_a_picture_asks_that_font_after_the_present_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with_fonts(monkeypatch, HAN)
    with spoken("zh"):
        sheet = coloured_text_picture(Paper("故事 · L3 H1", "第 3 层。", "pdf"), row(), True)
    sheet.file()
    families = {words.get_text(): words.get_fontfamily() for words in sheet.figure.findobj(Text) if words.get_text()}
    for text in ("故事 · L3 H1", "第 3 层。", "查询词元", "被屏蔽"):
        assert families[text] == [fonts.FONT, HAN]
    assert families[LABELS[2] + "k"] == [fonts.FONT]


def test_without_a_font_a_pdf_is_english(monkeypatch: pytest.MonkeyPatch) -> None:
    with_fonts(monkeypatch)

    def drawn(paper: Paper) -> Sheet:
        with spoken(fonts.language_of(paper.kind)):
            return coloured_text_picture(paper, row(), True)

    with spoken("zh"), warnings.catch_warnings():
        warnings.simplefilter("error")
        pdf = PdfReader(io.BytesIO(file_of("pdf", drawn))).pages[0].extract_text()
    assert "the query token" in pdf
    assert "⟨U+" not in pdf
    with spoken("zh"):
        assert "查询词元" in texts(file_of("svg", drawn))
    assert language() == "en"


def test_lines_are_as_wide_as_they_may_be() -> None:
    assert fonts.wrapped("one two three four", 9) == ["one two", "three", "four"]
    assert fonts.wrapped("a-word-longer-than-that b", 9) == ["a-word-longer-than-that", "b"]
    assert fonts.wrapped(PAPER.caption, 1000) == [PAPER.caption]
    assert fonts.wrapped("注意力头 L3，看着前一个。词元", 9) == ["注意力头", "L3，看着", "前一个。", "词元"]
    assert fonts.wrapped("看见（掩码）了", 7) == ["看见", "（掩", "码）了"]


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Iterator[FontEntry]:
    """Yield a font that comes with matplotlib but is not on its list, unlike DejaVu."""
    manager = fonts.font_manager.fontManager
    (late, *_) = [font for font in manager.ttflist if font.name == "STIXGeneral"]
    monkeypatch.setattr(manager, "ttflist", [one for one in manager.ttflist if one.name == fonts.FONT])
    monkeypatch.setattr(fonts.font_manager, "findSystemFonts", lambda: [late.fname])
    for cached in (fonts._covering, fonts._newly_installed):
        cached.cache_clear()
    yield late
    for cached in (fonts._covering, fonts._newly_installed):
        cached.cache_clear()


def only_in(late: FontEntry) -> str:
    """Return a character that DejaVu lacks."""
    return chr(min(fonts._characters(late.fname) - fonts._characters(fonts.font_manager.findfont(fonts.FONT))))


def test_a_font_installed_after_matplotlib_made_its_list_is_found(late: FontEntry) -> None:
    assert fonts.families(only_in(late)) == [fonts.FONT, "STIXGeneral"]


def test_a_font_that_is_gone_but_still_on_matplotlib_s_list_is_passed_over(late: FontEntry, tmp_path: Path) -> None:
    listed = fonts.font_manager.fontManager.ttflist
    for name, content in (("Gone.ttf", None), ("Damaged.ttf", b"no font")):
        if content:
            (tmp_path / name).write_bytes(content)
        listed.insert(0, replace(late, fname=str(tmp_path / name), name=name))
    assert fonts.families(only_in(late)) == [fonts.FONT, "STIXGeneral"]
    assert fonts.drawable("\U0010fffd") == "⟨U+10FFFD⟩"  # no font has it
