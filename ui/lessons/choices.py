"""What a user of the lessons has chosen: the lesson, the step, and the answers given so far."""

import re
from typing import Annotated, Any

import streamlit as st
from pydantic import Field, StringConstraints

from lessons.statement import SHOWN as SHOWN
from ui.link import LONGEST_LINK, Link, Whole

PACKED = r"^[A-Za-z0-9_-]*$"
ANSWERS = r"^(\d{1,2}-\d(,\d{1,2}-\d){0,29})?$"  # step-choice


class LessonLink(Link):
    """lesson: the name of one on the shelf; packed: the lesson itself (own.packed). Steps count from 1.

    lesson_given: the answers, so that they outlive a reload; a link for others (`address`) is without them.
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


def go(step: int, lesson: str | None = None) -> None:
    """To a step, of another lesson where one is named."""
    if lesson is not None:
        st.session_state.update(lesson=lesson, lesson_packed="", lesson_own="")
    st.session_state.lesson_step = max(step, 1)


def take_linked(lesson: str) -> None:
    """Call when the lesson is known: the link that was just read, if one was, may have answers to it."""
    pairs = re.findall(r"(\d+)-(\d)", st.session_state.pop("lesson_linked", ""))
    _answers().update({(lesson, int(step)): int(choice) for step, choice in pairs})


def link(lesson: str) -> LessonLink:
    answers = [f"{step}-{choice}" for (name, step), choice in sorted(_answers().items()) if name == lesson]
    return LessonLink.of_choices(lesson_given=",".join(answers))


def _answers() -> dict[tuple[str, int], int]:
    return st.session_state.setdefault("lesson_answers", {})


def given(lesson: str, step: int) -> int | None:
    """The answer of this user to the question of a step, the number of a choice or SHOWN; None until there is one."""
    return _answers().get((lesson, step))


def give(lesson: str, step: int, choice: int) -> None:
    _answers()[lesson, step] = choice
