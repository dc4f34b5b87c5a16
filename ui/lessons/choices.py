"""A user's choices on the Lessons page: lesson, step, and answers, which the browser's local storage keeps."""

import json
import re
from dataclasses import asdict
from typing import Annotated, Any

import streamlit as st
from pydantic import Field, StringConstraints

from i18n import N_, say
from lessons.lesson import Lesson
from lessons.statement import SHOWN as SHOWN
from serving import rooms
from serving.rooms import RoomKey
from ui.link import LONGEST_LINK, Link, Whole
from ui.streamlit_internals.session import session_id
from ui.widgets import component_value
from viz.components import source

PACKED = r"^[A-Za-z0-9_-]*$"
ANSWERS = r"^(\d{1,2}-\d(,\d{1,2}-\d){0,29})?$"  # step-choice


class LessonLink(Link):
    """The link of the Lessons page. lesson: the name of one on the shelf; packed: a lesson itself. Steps count from 1.

    lesson_given: the answers, so that they survive a reload; a link for others (`address`) does not have them.
    """

    lesson: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{0,60}$")] = ""
    lesson_packed: Annotated[str, StringConstraints(pattern=PACKED, max_length=LONGEST_LINK)] = Field(
        "", alias="packed"
    )
    lesson_step: Whole = Field(1, alias="step")
    lesson_edit: bool = Field(False, alias="edit")
    lesson_present: bool = Field(False, alias="present")
    lesson_given: Annotated[str, StringConstraints(pattern=ANSWERS)] = Field("", alias="answers")

    @classmethod
    def first(cls) -> dict[str, Any]:
        linked, state = super().first(), st.session_state
        state.lesson_linked = linked.pop("lesson_given")
        return linked | {"lesson_asks": state.get("lesson_asks", True), "lesson_own": ""}

    def address(self) -> str:
        return super(LessonLink, self.model_copy(update={"lesson_given": ""})).address()


def turn(steps: int) -> None:
    """Go this many steps on in the lesson, or back if negative, from the step that an earlier press has led to."""
    st.session_state.lesson_step = max(st.session_state.lesson_step + steps, 1)


def open_shelved(lesson: str) -> None:
    """Open a lesson of this server at its first step; "" for the list of all."""
    st.session_state.update(lesson=lesson, lesson_packed="", lesson_own="", lesson_step=1)


def take_linked(lesson: str) -> None:
    """Take the answers in the link that was just read, if any. Call when the lesson is known. Once answers have been
    deleted, a link with answers is one to which the browser went back: it is ignored, as the session has all others."""
    state = st.session_state
    linked = _choices(state.pop("lesson_linked", ""))
    if state.get("lesson_forgotten") or lesson in state.get("lesson_anew", []):
        return
    for step, choice in linked.items():
        give(lesson, step, choice)


def _choices(text: str) -> dict[int, int]:
    """Parse the answers in a link. Returns the choice of each step."""
    return {int(step): int(choice) for step, choice in re.findall(r"(\d+)-(\d)", text)}


def _answers() -> dict[tuple[str, int], int]:
    return st.session_state.setdefault("lesson_answers", {})


def given(lesson: str, step: int) -> int | None:
    """Return this user's answer to the question of a step, the number of a choice or SHOWN; None if there is none."""
    return _answers().get((lesson, step))


def give(lesson: str, step: int, choice: int) -> None:
    """Store an answer. A browser may send any: beyond MAX_ANSWERS, the oldest is dropped."""
    answers = _answers()
    answers[lesson, step] = choice
    if len(answers) > MAX_ANSWERS:
        del answers[next(iter(answers))]


def forget(lesson: str) -> None:
    """Delete all answers to a lesson."""
    for key in [key for key in _answers() if key[0] == lesson]:
        del _answers()[key]


NAME = "unmask lessons"  # not shown: in the local storage
MAX_STORED_LENGTH = 40_000  # maximum number of characters in the local storage
MAX_ANSWERS = MAX_STORED_LENGTH // len("1-1,")  # of a session
DRAFT = "draft"  # the key of the answers to the lesson in the editor, which are not stored
LESSON = re.compile(r"[a-z0-9_ ]{1,100}")  # keys of answers
HELP = N_("Answers are kept in this browser, and on the server only while this page is open.")

_storage = st.components.v2.component("unmask_storage", html="<span></span>", js=source("calls.js", "storage.js"))


def listen() -> None:
    """Take the answers that the browser has stored, and store new ones there. Call once on the page."""
    key = "listening_progress"  # CSS hides keys that begin with "listening_" (ui/page.py)

    def take() -> None:
        _take(component_value(key).get("stored"))

    state = st.session_state
    room, taken, forgotten = (state.get(f"lesson_{name}") for name in ("room", "taken", "forgotten"))
    progress = {"answers": answers_by_lesson(), "room": asdict(room) if room else None, "forgotten": forgotten or 0}
    progress |= {"anew": state.get("lesson_anew", []), "session": session_id()}
    _storage(
        data={"name": NAME, "most": MAX_STORED_LENGTH, "taken": bool(taken)} | progress, key=key, on_stored_change=take
    )


def reset_answers(lesson: str) -> None:
    """Delete all answers to a lesson, in the browser too."""
    forget(lesson)
    st.session_state.lesson_anew = [*st.session_state.get("lesson_anew", []), lesson]


def answered(name: str, lesson: Lesson) -> str:
    """Return how many questions of a lesson have an answer, in words; "" for none."""
    questions = [number for number, step in enumerate(lesson.steps, 1) if step.ask]
    count = sum(given(name, number) is not None for number in questions)
    return say("{given} of {count} answered", given=count, count=len(questions)) if count else ""


def offer_to_forget() -> None:
    """Draw a button that deletes all answers, if there are any."""
    if answers_by_lesson():
        st.button(say("Forget my answers"), key="lesson_forget_all", help=say(HELP), on_click=_forget, type="tertiary")


def answers_by_lesson() -> dict[str, str]:
    """Return the answers to each lesson, in the format of a link."""
    found: dict[str, list[str]] = {}
    for (lesson, step), choice in sorted(_answers().items()):
        if lesson == DRAFT:
            continue
        found.setdefault(lesson, []).append(f"{step}-{choice}")
    return {lesson: ",".join(steps) for lesson, steps in found.items()}


def _take(stored: Any) -> None:
    """Take what a browser sends, which may be anything: only valid answers and a valid room are used."""
    st.session_state.lesson_taken = True
    try:
        sent = json.loads(stored) if isinstance(stored, str) and len(stored) <= MAX_STORED_LENGTH else {}
        answers, key = dict(sent.get("answers") or {}), sent.get("room")
    except (ValueError, TypeError, AttributeError, RecursionError):
        return
    for lesson, linked in answers.items():
        if LESSON.fullmatch(lesson) and isinstance(linked, str) and re.fullmatch(ANSWERS, linked):
            for step, choice in _choices(linked).items():
                if given(lesson, step) is None:
                    give(lesson, step, choice)
    if isinstance(key, dict) and all(isinstance(key.get(name), str) for name in ("id", "secret")):
        room = RoomKey(key["id"], key["secret"])
        if not st.session_state.get("lesson_room") and rooms.served.is_set():
            st.session_state.lesson_room = room  # a teacher's; if it has ended, its button shows that


def _forget() -> None:
    _answers().clear()
    st.session_state.lesson_forgotten = st.session_state.get("lesson_forgotten", 0) + 1
