"""The words of the lessons: every language says the same things, and what is typed by anybody is shown as text.

python -m pytest tests/viz/lessons/test_words.py
"""

import re
from string import Formatter

import pytest

from model.lessons.lesson import Lesson
from model.lessons.questions import KINDS
from model.lessons.said import Said
from model.lessons.shelf import FOLDER, LANGUAGES, shelf
from model.lessons.words import words
from viz.lessons import words as spoken
from viz.lessons.glossary import PICTURES
from viz.lessons.prose import prose
from viz.numbers import one_in


def places(sentence: str) -> set[tuple[str | None, str | None]]:
    return {(name, form) for _, name, form, _ in Formatter().parse(sentence) if name}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_the_same_sentences_with_the_same_places_and_the_same_words(language: str) -> None:
    first, other = words(LANGUAGES[0]), words(language)
    assert list(other.sentences) == list(first.sentences)
    assert {name for name in first.sentences if places(first.sentences[name]) != places(other.sentences[name])} == set()
    assert list(other.glossary) == list(first.glossary) == list(PICTURES)
    assert {f"ask_{kind}" for kind in KINDS} <= set(other.sentences)


def test_the_chinese_lessons_show_the_same_runs_and_ask_the_same() -> None:
    def runs(language: str) -> list[object]:
        lessons: list[Lesson] = [one.lesson for one in shelf(FOLDER, language) if one.lesson]
        left_out = {"title", "prose", "notice"}
        return [step.model_dump(exclude=left_out) for lesson in lessons for step in lesson.steps]

    assert runs("zh") == runs("en")


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_word_that_a_lesson_links_is_in_the_glossary(language: str) -> None:
    linked = [word for path in FOLDER.glob("*.md") for word in re.findall(r"\(word:(.*?)\)", path.read_text("utf-8"))]
    assert len(set(linked)) > 5
    assert set(linked) <= set(words(language).glossary)


def test_a_sentence_is_said_with_the_field_s_numbers_and_with_sentences_inside() -> None:
    why = Said(
        "looks_why", {"query": Said("token", {"position": 4, "token": "cat"}), "key": Said("mask_none"), "share": 0.25}
    )
    assert (
        spoken.plain("en", why)
        == "Of all that “cat” at 4 may look at, it gives the most to no mask: 25.0 % of its attention."
    )
    masks = Said("list", {"parts": (Said("mask_causal"), Said("mask_sliding", {"size": 3}))})
    assert spoken.plain("zh", masks) == "因果掩码 + 宽 3 的滑动窗口"
    assert spoken.plain("en", Said("model_a/{b}")) == "a/{b}"


@pytest.mark.parametrize(
    ("nats", "said"),
    [
        (0, "1"),
        (0.05, "1.05"),
        (0.5, "1.6"),
        (0.6931472, "2"),
        (2.5, "12"),
        (4.787, "120"),
        (7.1, "1,200"),
        (40, "10¹⁷"),
    ],
)
def test_a_loss_as_odds(nats: float, said: str) -> None:
    assert one_in(nats) == said


def test_prose_is_never_markup_of_its_writer_s() -> None:
    html = prose(
        '<img src=x onerror=a()> ![p](http://x/y) [j](javascript:a()) [k](word:key) [n](word:"no) `<b>`', "en", "p"
    )
    assert "<img src=x" not in html
    assert re.findall(r"<img ", html.partition('class="card"')[0]) == []
    assert "href" not in html.replace('href="http://x/y"', "")
    assert html.count('popovertarget="p_key"') == html.count('id="p_key"') == 1
    assert ">n</" not in html
    assert "&lt;b&gt;" in html
