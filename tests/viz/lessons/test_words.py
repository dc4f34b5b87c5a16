"""Tests of the words of lessons: every language says the same, and what anyone types is shown as text."""

import re

import pytest

from i18n import LANGUAGES, N_, spoken
from lessons.glossary import glossary
from lessons.lesson import Ask, Lesson
from lessons.questions import KINDS
from lessons.reading import FOLDER, shelf
from lessons.statement import Statement
from ui.ask_first import ASKS as FIRST
from viz.lessons.glossary import PICTURES, prose
from viz.lessons.screen import ASKS, plain, question
from viz.numbers import perplexity


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_the_same_words_each_with_its_picture(language: str) -> None:
    with spoken(language):
        assert list(glossary()) == list(PICTURES)


def test_every_kind_of_question_is_asked_in_words() -> None:
    assert {name.partition(".")[0] for name in ASKS} == set(KINDS)
    assert set(FIRST) <= set(KINDS)


def test_what_is_asked_for_is_named_in_the_question() -> None:
    assert question(Ask(kind="weight", key=4)).endswith("to the token at 4?")
    assert "of “the”" in question(Ask(kind="number", of="score"))
    words = {question(Ask(kind="which_head", pattern=pattern)) for pattern in ("previous", "first", "induction")}
    assert len(words) == 3


def test_the_chinese_lessons_show_the_same_runs_and_ask_the_same() -> None:
    def runs(language: str) -> list[object]:
        lessons: list[Lesson] = [one.lesson for one in shelf(FOLDER, language) if one.lesson]
        left_out = {"title", "prose", "notice"}
        return [step.model_dump(exclude=left_out) for lesson in lessons for step in lesson.steps]

    assert runs("zh") == runs("en")


@pytest.mark.parametrize("language", LANGUAGES)
def test_lessons_point_at_nothing_that_phones_and_courses_do_not_have(language: str) -> None:
    for shelved in shelf(FOLDER, language):
        for step in shelved.lesson.steps:
            text = step.prose + step.notice
            assert not re.search(
                "slider|curves|[Pp]oint at|[Cc]lick|this app|滑块|曲线|指向|点击|本应用|图下方", text
            ), step.title


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_word_that_a_lesson_links_is_in_the_glossary(language: str) -> None:
    linked = [
        word
        for path in FOLDER.glob(f"{language}/*.md")
        for word in re.findall(r"\(word:(.*?)\)", path.read_text("utf-8"))
    ]
    assert len(set(linked)) > 5
    with spoken(language):
        assert set(linked) <= set(glossary())


def test_a_sentence_is_said_with_the_field_s_numbers_and_with_sentences_inside() -> None:
    cat = Statement(N_("“{token}” at {position}"), {"position": 4, "token": "cat {x}"})
    sentence = N_(
        "Of all tokens that {query} may attend to, it gives the most to {key}: {share:chance} of its attention."
    )
    why = Statement(sentence, {"query": cat, "key": Statement(N_("no mask")), "share": 0.25})
    assert (
        plain(why)
        == "Of all tokens that “cat {x}” at 4 may attend to, it gives the most to no mask: 25.0% of its attention."
    )
    masks = Statement(
        "{masks}", {"masks": (Statement(N_("causal mask")), Statement(N_("window of {size}"), {"size": 3}))}
    )
    assert plain(masks) == "causal mask + window of 3"
    with spoken("zh"):
        assert plain(why) == "在能看到的词元中，“cat {x}”（位置 4）给没有掩码的注意力最多，占 25.0%。"
        assert plain(masks) == "因果掩码 + 宽 3 的滑动窗口"
    assert plain(Statement("{name}", {"name": "a/{b}"})) == "a/{b}"


@pytest.mark.parametrize(
    ("nats", "text"),
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
def test_a_loss_as_perplexity(nats: float, text: str) -> None:
    assert perplexity(nats) == text


def test_prose_is_never_markup_of_its_writer_s() -> None:
    html = prose('<img src=x onerror=a()> ![p](http://x/y) [j](javascript:a()) [k](word:key) [n](word:"no) `<b>`', "p")
    assert "<img src=x" not in html
    assert re.findall(r"<img ", html.partition('class="card"')[0]) == []
    assert "href" not in html.replace('href="http://x/y"', "")
    assert html.count('popovertarget="p_key"') == html.count('id="p_key"') == 1
    assert ">n</" not in html
    assert "&lt;b&gt;" in html


def test_what_follows_a_word_stays_on_its_line() -> None:
    html = prose(
        "in [nats](word:nat): the [key](word:key) of [heads](word:head).” And [k](word:none), [nats](word:nat)", "p"
    )
    found = re.findall(r'<span class="whole"><button [^>]*>(.*?)</button>(.*?)</span>', html)
    assert found == [("nats", ":"), ("key", ""), ("heads", ".”"), ("nats", "")]
    assert "</span> the <span" in html
    assert "And k, <span" in html


def test_without_the_app_links_to_its_pages_are_text() -> None:
    links_kept = ["https://example.org/a", "//example.org", "mailto:a@example.org", "#step=2", "padding.html#step=2"]
    text = ["bug_clinic", "lessons?lesson=padding", "/explore", "../explore", "head", "mask_lab?section=hand#a.html"]
    links = " ".join(f"[of {address}]({address})" for address in (*links_kept, *text))
    html = prose(f"{links} [a key](word:key)", "p", app=False)
    assert re.findall(r'href="(.*?)"', html) == links_kept
    assert all(f"of {address}" in html for address in text)
    assert re.findall('popovertarget="(.*?)"', html) == ["p_key"]
    assert re.findall(r'href="(.*?)"', prose(links, "p")) == [*links_kept, *text]
