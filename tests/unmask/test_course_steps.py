"""Tests of the steps of a teacher's own lesson in `unmask course`: whose tokens are named, what is compared."""

import re

import pytest

from lessons.reading import read
from unmask.course import CourseModels
from viz.saved.course import CourseStep, lesson_page

LESSON = "---\ntitle: T\naim: A\nminutes: 1\n---\n## One\n\n```run\n{}\n```\nprose\n"
DATES = 'model: dates\ntext: "3 May 2021"\nattention: {}\nshow: {}'


@pytest.fixture(scope="module")
def models() -> CourseModels:
    return CourseModels(download=False)


def step_of(models: CourseModels, settings: str) -> CourseStep:
    return models.step(read(LESSON.format(settings)).steps[0])


def drawn(models: CourseModels, settings: str) -> str:
    step = step_of(models, settings)
    assert step.drawn is not None
    return str(step.drawn)


def test_the_keys_of_a_cross_attention_are_named_by_the_source(models: CourseModels) -> None:
    html = drawn(models, DATES.format("cross", "norms") + "\nquery: 3")
    assert re.findall(r'<th class="token">(.*?)</th>', html) == ["3", "·", "M", "a", "y", "·", "2", "0", "2", "1"]


def test_the_likeliest_tokens_of_an_encoder_follow_the_output_that_was_written(models: CourseModels) -> None:
    """The selected source token makes no difference."""
    last, other = (drawn(models, DATES.format("encoder", "logits") + more) for more in ("", "\nquery: 3"))
    assert last.count('class="track"') >= 10
    assert last == other


def test_runs_of_other_lengths_are_not_compared_token_by_token_or_text_by_text(models: CourseModels) -> None:
    text, other = "text: The king had a ring. The cat ran away.", "beside: {text: The king had a ring.}"
    html = drawn(models, f'{text}\nmasks: {{"positions": "cells"}}\n{other}\nshow: losses')
    assert ">before<" not in html
    assert html.count("<tr>") == 1 + 12
    two = "text: |\n  The king had a ring.\n  The cat ran away."
    html = drawn(models, f'{two}\nmasks: {{"positions": "cells"}}\n{other}\nshow: texts')
    assert ">before<" not in html


def test_what_is_shown_before_the_answer_bears_the_name_that_it_has_beside_the_other(models: CourseModels) -> None:
    step = step_of(models, 'text: The king had a ring.\nmasks: {"causal": false}\nask: loss\nshow: losses')
    assert (step.before["titles"]["now"], step.after["titles"]["standard"]) == ("before", "before")
    assert step.after["titles"]["now"] == "now"


def test_a_run_that_needs_the_app_is_not_said_to_be_of_a_model_that_does(models: CourseModels) -> None:
    """The browser supports no other positions; the same model runs there in other steps."""
    step = step_of(models, 'text: The king had a ring.\nmasks: {"positions": "cells"}')
    page = lesson_page("mine", read(LESSON.format("text: The king")), [step], {})
    assert step.pictures
    assert "runs only in the app" not in page
    assert "This run needs the app." in page


def test_links_to_pages_of_the_app_are_text(models: CourseModels) -> None:
    settings = "text: The king\nask: looks\nnotice: See [Bug clinic](bug_clinic)."
    lesson = read(
        LESSON.format(settings).replace("minutes: 1", "minutes: 1\nsummary: '[Lab](mask_lab)'") + "[Serving](serving)"
    )
    page = lesson_page("mine", lesson, [models.step(lesson.steps[0])], {})
    assert all(name in page for name in ("See Bug clinic.", "<p>Lab</p>", "Serving"))
    assert not re.search('href="(bug_clinic|mask_lab|serving)"', page)


@pytest.mark.parametrize("run", ["text: {}", "text: The cat sat.\nbeside: {{text: {}}}"])
def test_a_text_that_is_not_read_whole_is_a_mistake(models: CourseModels, run: str) -> None:
    with pytest.raises(ValueError, match=rf"line {9 + run.count(chr(10))}: The model reads at most 256 tokens"):
        step_of(models, run.format("The cat sat. " * 100))
    with pytest.raises(ValueError, match="line 9: expected at most 16 lines, got 20"):
        step_of(models, "text: |\n  " + "\n  ".join(["The cat sat."] * 20))


@pytest.mark.parametrize(
    ("settings", "page"),
    [
        ("text: The cat\nmodel: twin trained without the mask", "explore"),
        ("text: across a large\nmodel: captioner-prefix\nimage: white_square-red-large-12-14", "mask_lab"),
        (DATES.format("cross", "head"), "layers"),
        (DATES.format("cross", "head"), "serving?cached=2"),
    ],
)
def test_a_page_that_does_not_run_the_model_is_a_mistake(models: CourseModels, settings: str, page: str) -> None:
    line, name = 9 + settings.count("\n") + 1, page.partition("?")[0]
    with pytest.raises(ValueError, match=rf"line {line}: expected a page that runs .*, got {name}"):
        step_of(models, f"{settings}\npage: {page}")


@pytest.mark.parametrize(
    "settings",
    [
        "text: The cat\nmodel: twin trained without the mask\npage: why_causal",
        DATES.format("cross", "head") + "\npage: mask_lab",
        "text: The cat\nbeside: {model: twin trained with the mask}\npage: layers",
        "text: abcabc\nmodel: induction-375\npage: layers",
    ],
)
def test_a_page_that_runs_the_model_is_none(models: CourseModels, settings: str) -> None:
    step_of(models, settings)


def test_a_picture_that_the_model_does_not_have_is_a_mistake_with_its_line(models: CourseModels) -> None:
    with pytest.raises(ValueError, match="line 12: dates: the states after each of its layers are not available"):
        step_of(models, DATES.format("cross", "embedding"))


def test_the_next_token_is_not_asked_for_after_one_of_the_source(models: CourseModels) -> None:
    settings = 'model: dates\ntext: "3 May 2021"\nquery: 3\nask: next\nattention: {}'
    for attention in ("decoder", "cross"):
        step_of(models, settings.format(attention))
    with pytest.raises(ValueError, match="line 13: expected an attention of dates, one of decoder, cross, got encoder"):
        step_of(models, settings.format("encoder"))


THREE = "text: |\n  The king had a ring.\n  The cat ran home.\n  The dog sat down.\n"
ITSELF = "expected `masks` or `beside` that make the two runs differ, got a run compared with itself"
COMPARES = ["ask: lower", "ask: loss", "ask: row", "ask: texts", "ask: {kind: how_many, within: 1}", "show: pair"]


@pytest.mark.parametrize("compares", COMPARES)
@pytest.mark.parametrize(
    "same",
    [
        "",
        'masks: {"causal": true}\n',  # the standard masks
        "beside: {model: story}\n",
        'beside: {text: "The king had a ring.\\nThe cat ran home.\\nThe dog sat down."}\n',
        'masks: {"causal": false}\nbeside: {masks: {"causal": false}}\n',
    ],
)
def test_a_run_compared_with_itself_is_a_mistake(models: CourseModels, same: str, compares: str) -> None:
    settings = THREE + same
    with pytest.raises(ValueError, match=rf"^line {9 + settings.count(chr(10))}: {ITSELF}$"):
        step_of(models, settings + compares)


@pytest.mark.parametrize("compares", COMPARES)
@pytest.mark.parametrize(
    "other",
    [
        'masks: {"causal": false}',
        'beside: {masks: {"sliding": 99}}',  # that it blocks nothing here may be what the lesson is about
        "model: twin trained without the mask\nbeside: {model: twin trained with the mask}",
        'beside: {text: "The king had a ring.\\nThe cat ran home.\\nThe dog sat up."}',
    ],
)
def test_a_run_compared_with_another_one_is_none(models: CourseModels, other: str, compares: str) -> None:
    step_of(models, f"{THREE}pad: right\n{other}\n{compares}")


@pytest.mark.parametrize("alone", ["show: losses", "show: losses\nask: next", "show: texts", "ask: future"])
def test_what_needs_no_other_run_is_no_mistake(models: CourseModels, alone: str) -> None:
    step_of(models, THREE + alone)
