"""Steps of a teacher's own lesson as `unmask course` computes them: whose tokens are named, what is compared."""

import re

import pytest

from lessons.reading import read
from unmask.course import CourseModels
from viz.saved.course import CourseStep

LESSON = "---\ntitle: T\naim: A\nminutes: 1\n---\n## One\n\n```run\n{}\n```\nprose\n"
DATES = 'model: dates\ntext: "3 May 2021"\nattention: {}\nshow: {}'


@pytest.fixture(scope="module")
def models() -> CourseModels:
    return CourseModels(download=False)


def made(models: CourseModels, settings: str) -> CourseStep:
    return models.step(read(LESSON.format(settings)).steps[0])


def drawn(models: CourseModels, settings: str) -> str:
    step = made(models, settings)
    assert step.drawn is not None
    return str(step.drawn)


def test_the_keys_of_a_cross_attention_are_named_by_the_source(models: CourseModels) -> None:
    html = drawn(models, DATES.format("cross", "norms") + "\nquery: 3")
    assert re.findall(r'<th class="token">(.*?)</th>', html) == ["3", "·", "M", "a", "y", "·", "2", "0", "2", "1"]


def test_the_likeliest_tokens_of_an_encoder_follow_the_output_that_was_written(models: CourseModels) -> None:
    """At whichever token of the source is looked."""
    last, other = (drawn(models, DATES.format("encoder", "logits") + more) for more in ("", "\nquery: 3"))
    assert last.count('class="track"') >= 10
    assert last == other
