"""What a reader of the lessons has chosen: the lesson, the step, and the answers given so far."""

from typing import Annotated, Any

import streamlit as st
from pydantic import Field, StringConstraints

from ui import choices
from ui.link import LONGEST_LINK, Link, Whole

PACKED = r"^[A-Za-z0-9_-]*$"


class LessonLink(Link):
    """lesson: the name of one on the shelf; packed: the lesson itself (own.packed). Steps count from 1."""

    lesson: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{0,60}$")] = ""
    lesson_packed: Annotated[str, StringConstraints(pattern=PACKED, max_length=LONGEST_LINK)] = Field(
        "", alias="packed"
    )
    lesson_step: Whole = Field(1, alias="step")
    lesson_present: bool = Field(False, alias="present")


def restore() -> None:
    """Put the choices where their widgets find them."""
    choices.restore("kept_lessons", _first)


def _first() -> dict[str, Any]:
    linked, state = LessonLink.read().model_dump(), st.session_state
    return linked | {"lesson_asks": state.get("lesson_asks", True), "lesson_own": ""}


def go(step: int, lesson: str | None = None) -> None:
    """To a step, of another lesson where one is named."""
    if lesson is not None:
        st.session_state.update(lesson=lesson, lesson_packed="", lesson_own="")
    st.session_state.lesson_step = max(step, 1)


def given(lesson: str, step: int) -> int | None:
    """The answer of this reader to the question of a step, the number of a choice; None until there is one."""
    return st.session_state.get("lesson_answers", {}).get((lesson, step))


def give(lesson: str, step: int, choice: int) -> None:
    """Remember an answer for this session."""
    st.session_state.setdefault("lesson_answers", {})[lesson, step] = choice
