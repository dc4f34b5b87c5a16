"""What a user has done of the lessons: kept in the browser's local storage, and as a summary to print."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import streamlit as st

from i18n import N_, say
from lessons.lesson import Lesson, Step
from lessons.questions import Answer
from serving.rooms import RoomKey
from ui.lessons import choices, classroom
from ui.widgets import component_value, deferred, download
from viz.components import source
from viz.lessons.screen import QuestionSummary, summary_page

NAME = "unmask lessons"  # not shown: in the local storage
LONGEST = 40_000  # characters there
DRAFT = "draft"  # what is being written (editor.py): not remembered
LESSON = re.compile(r"[a-z0-9_ ]{1,100}")  # what answers are kept under
HELP = N_("Answers are kept in this browser, and on the server only while this page is open.")

_storage = st.components.v2.component("unmask_storage", html="<span></span>", js=source("storage.js"))


def listen() -> None:
    """Call once on the page: what the browser remembers is taken, what is answered is remembered."""
    key = "listening_progress"  # by this name it is out of sight (ui/page.py)

    def take() -> None:
        _take(component_value(key).get("stored"))

    room = st.session_state.get("lesson_room")
    kept = json.dumps({"answers": _answers(), "room": asdict(room) if room else None})
    taken = st.session_state.get("lesson_taken", False)
    _storage(data={"name": NAME, "keep": kept, "most": LONGEST, "taken": taken}, key=key, on_stored_change=take)


def answered(name: str, lesson: Lesson) -> str:
    """How many questions of a lesson have an answer, in words; "" for none."""
    asked = [number for number, step in enumerate(lesson.steps, 1) if step.ask]
    given = sum(choices.given(name, number) is not None for number in asked)
    return say("{given} of {count} answered", given=given, count=len(asked)) if given else ""


def offer_to_forget() -> None:
    """A button, where there is something to forget."""
    if _answers():
        st.button(say("Forget my answers"), key="lesson_forget_all", help=say(HELP), on_click=_forget, type="tertiary")


def offer_summary(
    lesson: Lesson, asked: Mapping[int, Step], answers: Mapping[int, Answer], given: Mapping[int, int | None]
) -> None:
    """The summary of a lesson, to print. All by the number of the step."""
    lines = [
        QuestionSummary(number, step.title, step.ask.kind, answers.get(number), given[number])
        for number, step in asked.items()
        if step.ask
    ]
    page = deferred(partial(summary_page, lesson, lines))
    download(say("Summary to print"), page, "summary.html", "text/html", key="lesson_summary")


def _answers() -> dict[str, str]:
    """As a link has them, by lesson."""
    found: dict[str, list[str]] = {}
    for (lesson, step), choice in sorted(st.session_state.get("lesson_answers", {}).items()):
        if lesson == DRAFT:
            continue
        found.setdefault(lesson, []).append(f"{step}-{choice}")
    return {lesson: ",".join(steps) for lesson, steps in found.items()}


def _take(stored: Any) -> None:
    """What a browser sends, which may be anything: what is no answer and no room is left out."""
    st.session_state.lesson_taken = True
    try:
        told = json.loads(stored) if isinstance(stored, str) and len(stored) <= LONGEST else {}
        answers, key = dict(told.get("answers") or {}), told.get("room")
    except (ValueError, TypeError, AttributeError, RecursionError):
        return
    own = st.session_state.setdefault("lesson_answers", {})
    for lesson, given in answers.items():
        if LESSON.fullmatch(lesson) and isinstance(given, str) and re.fullmatch(choices.ANSWERS, given):
            for step, choice in re.findall(r"(\d+)-(\d)", given):
                own.setdefault((lesson, int(step)), int(choice))
    if isinstance(key, dict) and all(isinstance(key.get(name), str) for name in ("id", "secret")):
        classroom.take_up(RoomKey(key["id"], key["secret"]))


def _forget() -> None:
    st.session_state.lesson_answers = {}
