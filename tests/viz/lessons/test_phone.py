"""Tests of what phones of a class receive: no answers before the reveal, after it how the class answered."""

import gzip
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from i18n import spoken
from lessons.lesson import Lesson
from lessons.questions import Answer
from lessons.reading import read
from lessons.statement import Statement
from tests.viz.markup import plain
from viz.lessons.phone import Drawn, PhoneStep, curve_body, end_body, language_of, losses_table, phone_page
from viz.lessons.screen import QuestionSummary, summary_page
from viz.why_causal.charts import Curve

LESSON = """---
title: A <b>lesson</b>
aim: To see <i>that</i>.
minutes: 1
text: one two
summary: It was seen.
---

## First

```run
ask: sees
notice: Three are open.
```

Look.

## Second

```run
```

More.
"""
ANSWER = Answer(tuple(map(Statement, ("two", "three <x>", "five"))), frozenset({1}), Statement("Count them: 3."))


@pytest.fixture
def lesson() -> Lesson:
    return read(LESSON)


def decoded(body: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(body))
    return found


def test_before_the_reveal_nothing_answers_the_question(lesson: Lesson) -> None:
    sent = decoded(PhoneStep(lesson, 1, "abc-1", ANSWER, None).body())
    assert set(sent) == {"name", "html", "lang"}
    assert "Three are open" not in sent["html"]
    assert "Count them" not in sent["html"]
    assert "A &lt;b&gt;lesson&lt;/b&gt; · 1 of 3" in sent["html"]
    buttons = [f'data-choice="{number}"' for number in range(3)]
    assert [sent["html"].count(button) for button in buttons] == [1, 1, 1]
    assert "three &lt;x&gt;" in sent["html"]


def test_after_it_each_phone_reads_of_its_own_answer_and_of_the_class_s(lesson: Lesson) -> None:
    sent = decoded(PhoneStep(lesson, 1, "abc-1", ANSWER, {1: 3, 2: 1}).body())
    starts = (
        "Your answer: two. Not",
        "Your answer: three <x>. That",
        "Your answer: five. Not",
        "The answer is: three <x>",
    )
    assert [start in plain(one) for start, one in zip(starts, sent["said"], strict=True)] == [True] * 4
    assert "Three are open" in sent["html"]
    bars = sent["html"].split('class="bars"')[1]
    assert [f"width:{share}%" in bars for share in (0, 75, 25)] == [True] * 3
    assert "three &lt;x&gt; ✓" in bars


def test_where_a_choice_was_given_nothing_is_said_of_numbers_that_are_near_enough(lesson: Lesson) -> None:
    sent = decoded(PhoneStep(lesson, 1, "abc-1", replace(ANSWER, number=3.0, within=0.5), {}).body())
    assert "Your answer: three <x>. That is right." in plain(sent["said"][1])
    assert "away counts" not in str(sent)


def test_pictures_with_blocked_cells_have_a_key(lesson: Lesson) -> None:
    for hatched in (True, False):
        sent = decoded(PhoneStep(lesson, 2, "abc-2", None, None, Drawn(hatched=hatched)).body())
        assert ("Hatched cells are blocked." in sent["html"]) is hatched


def test_a_step_without_a_question_is_shown_whole(lesson: Lesson) -> None:
    sent = decoded(PhoneStep(lesson, 2, "abc-2", None, None).body())
    assert set(sent) == {"name", "html", "lang"}
    assert "More." in sent["html"]
    assert "data-choice" not in sent["html"]


def test_at_the_end_there_is_a_sentence_for_every_number_of_answers(lesson: Lesson) -> None:
    sent = decoded(end_body(lesson, "abc-3", {"abc-1": [1]}))
    assert (sent["scores"], sent["right"]) == (["{right} of 1 answer correct."], {"abc-1": [1]})
    assert "It was seen." in sent["html"]


def test_a_training_is_drawn_from_0_to_its_largest_loss() -> None:
    lines = [Curve("1: with", [0, 50, 100], [4.0, 2.0, 1.0], True), Curve("2: without", [], [], False)]
    lines.append(Curve("3: without", [100], [0.0004], False))
    html = decoded(curve_body(lines, 200))["html"]
    assert 'points="0,0 150,130 300,195"' in html
    assert "1: with: 1.00 nats/character" in html
    assert "2: without: –" in html
    assert "3: without: under 0.001 nats/character" in html
    with spoken("zh"):
        chinese = decoded(curve_body(lines, 200))
        assert "：1.00 奈特/字符" in chinese["html"]
        assert chinese["lang"] == "zh"
    assert "Loss from 0 to 4.0 nats/character, over steps 0 to 200." in html


def test_losses_are_numbers_with_bars_and_a_gap_where_there_is_none() -> None:
    both = losses_table(["a", "<b>"], np.array([np.nan, 2.0]), np.array([np.nan, 4.0]), ("now", "then"), "loss")
    assert "&lt;b&gt;" in both
    assert ("width:50.0%" in both, "width:100.0%" in both) == (True, True)
    assert ("nan" in both, "then" in both) == (False, True)
    assert "then" not in losses_table(["a"], np.array([2.0]), None, ("now", "then"), "loss")
    shorter = losses_table(["a", "b"], np.array([1.0, 2.0]), np.array([3.0]), ("now", "then"), "loss")
    assert ("then" in shorter, "2.00" in shorter, "3.00" in shorter) == (False, True, False)


def test_the_page_is_in_the_language_that_the_phone_asks_for() -> None:
    accepted = {"zh-CN,zh;q=0.9,en;q=0.8": "zh", "de-DE,de;q=0.9,zh;q=0.8": "zh", "en-GB": "en", "": "en", "*": "en"}
    assert {one: language_of(one) for one in accepted} == accepted
    english, chinese = (gzip.decompress(phone_page(language)).decode() for language in ("en", "zh"))
    assert "等待老师" in chinese
    assert 'lang="zh"' in chinese
    assert "Waiting for the teacher" in english


def test_the_summary_sorts_what_was_predicted_from_what_to_review(lesson: Lesson) -> None:
    summaries = [
        QuestionSummary(number, f"T{number}", "sees", ANSWER, given) for number, given in enumerate((1, 0, 9, None), 1)
    ]
    html = summary_page(lesson, [*summaries, QuestionSummary(5, "T5", "sees", None, 1)])
    parts = html.split("<h2>")[1:]
    titles = ("Predicted correctly: 1", "To review: 1", "Answer shown without a prediction: 1", "Not answered yet: 2")
    assert [plain(part.split("</h2>")[0]) for part in parts] == [*titles, "Summary"]
    assert "Aim</b>: To see &lt;i&gt;that&lt;/i&gt;." in html
    assert ["Step 2: T2" in part for part in parts] == [False, True, False, False, False]
    assert "Your answer: two" in plain(parts[1])
    assert "The answer is: three <x>" in plain(parts[1])
    assert "Count them" not in parts[3]
    with spoken("zh"):
        assert "需要复习：1" in summary_page(lesson, summaries)
