"""The lesson editor: a lesson's source beside its screens. Every step is run; each mistake is shown with its line."""

import re
from functools import cache
from typing import Any

import streamlit as st

from i18n import N_, language, say, say_all, say_count, together
from lessons.lesson import Lesson
from lessons.reading import FOLDER, GALLERY, MAX_BYTES, ListedLesson, Mistakes, read, shelf, written
from model import catalog
from serving.loaded_models import PAGE_MODELS
from ui.controls import OWN_TEXT
from ui.guard import USER_FACING_ERRORS, guarded, message_for
from ui.lessons import screen, shelves, steps
from ui.lessons.choices import DRAFT, forget
from ui.markdown import escaped
from ui.sidebar import models
from ui.streamlit_internals.selectors import css
from ui.widgets import bound, component_value, whole
from viz.components import source
from viz.lessons.pictures import DRAWN

USUAL = "lessons"  # the default template
SOURCE = "lesson_source"
HELP = N_(
    "Start from a built-in lesson, or from the short lesson of a page. It replaces the text in the editor; text of "
    "your own that it replaces can be chosen here again."
)

_source = st.components.v2.component(
    "unmask_lesson_editor",
    html='<div class="lesson_editor"></div>',
    js=source("calls.js", "editor.js"),
    isolate_styles=False,
)


def open_with(text: str, *, own: bool = True) -> None:
    """Edit this source. The one that it replaces is kept if it is the user's own. own: whether this source is the
    user's own even while unchanged: not a template, nor a file or a lesson that can be opened again."""
    state = st.session_state
    before = state.get("lesson_draft", "")
    if before not in ("", text, state.get("lesson_opened_text")):
        state.lesson_replaced = before
    state.lesson_opened_text = "" if own else text
    version = max(state.get("lesson_draft_version", 0), 0) + 1
    state.update(lesson_edit=True, lesson_draft=text, lesson_draft_version=version, lesson_step=1, lesson_readable="")
    forget(DRAFT)


def offer(opened: shelves.Open | None) -> None:
    """Draw a button to edit the open lesson, or else to write one or continue the one that is being written."""
    label = say("Edit a copy of this lesson") if opened else say("Write a lesson")

    def start() -> None:
        if opened:
            open_with(opened.own or shelves.source_of(opened.key), own=False)
        st.session_state.lesson_edit = True

    st.button(label, key="lesson_editor", icon=":material/edit:", on_click=start)


def show(found: list[ListedLesson]) -> None:
    """Draw the whole editor."""
    state = st.session_state
    with guarded():
        if "lesson_draft" not in state:
            linked = shelves.unpacked(state.lesson_packed) if state.lesson_packed else ""
            open_with(linked or _templates(language())[USUAL][1], own=bool(linked))
            state.lesson_draft_version = -1 if linked else 0  # 0: the browser's draft has precedence
        text = state.lesson_draft
    names = [item.name for item in found]
    lesson, problems = _read(text, names)
    fine = ""
    if lesson:
        ran, missing, problems = _run(lesson)
        notes = [say_count("{count} step runs, no mistakes.", "{count} steps run, no mistakes.", ran)] if ran else []
        if missing:
            notes.append(say("Not run, as the model is not loaded: {models}.", models=say_all(missing)))
        fine = together(notes)
    st.html(css(f"<style>{source('editor.css')}</style>"))
    _buttons(lesson)
    left, right = st.columns([1, 1.15], gap="medium")
    with left:
        _show_source(text, lesson, problems, fine)
    state.lesson_packed = shelves.packed(text)
    with right, st.container(key="lesson_preview"):
        if lesson and not problems:
            state.lesson_readable = text
        shown = lesson or _read(state.get("lesson_readable", ""), names)[0]
        if shown:
            number = state.lesson_step = min(state.lesson_step, len(shown.steps))
            where = say("{step} of {steps}", step=number, steps=len(shown.steps) + 1)
            st.caption(escaped(where) if lesson else say("The last version that could be read:"))
            screen.show(shown, DRAFT, number)
        else:
            st.info(say("The screen of each step appears here once the source can be read."))


@cache
def _templates(language: str) -> dict[str, tuple[str, str]]:
    """Return the title and the source of each template, by name. Read-only."""
    found = {}
    for folder in (GALLERY, FOLDER):
        for item in shelf(folder, language):
            if item.lesson:
                found[item.name] = item.lesson.title, written(folder, item.name, language)
    return found


def _read(text: str, names: list[str]) -> tuple[Lesson | None, list[str]]:
    try:
        return read(text, names), []
    except Mistakes as error:
        return None, list(error.problems)
    except ValueError as error:
        return None, [str(error)]


def _run(lesson: Lesson) -> tuple[int, list[str], list[str]]:
    """Run the steps. Returns how many could be run, the models that others wait for, and the mistakes. A model that is
    not loaded is loaded when its step is shown, which asks before a download."""
    problems, ran = [], 0
    missing: dict[str, None] = {}
    for step in lesson.steps:
        setting = ""  # the setting that an error is about
        try:
            steps.check_models(step)
            absent = [name for name in (step.model, step.beside.model or step.model) if not _at_hand(name)]
            missing |= dict.fromkeys(absent)
            if absent:
                continue
            now, compared = steps.pair(step)
            runs = {"masks": now, "beside": compared}
            for setting in runs:
                runs[setting].head(*step.head)
            setting = "show"
            if step.show in DRAWN:
                steps.still(step, now)
            if step.ask:
                steps.answered(step, now, compared)
            ran += 1
        except USER_FACING_ERRORS as error:
            problem = say(message_for(error))
            problems.append(problem if re.search(r"\d", problem[:8]) else str(step.wrong(setting, problem)))
    return ran, list(missing), list(dict.fromkeys(problems))  # a mistake in the front matter's model is in each step


def _at_hand(name: str) -> bool:
    """Whether a model is built in or loaded."""
    return name in PAGE_MODELS or catalog.ships(name) or models.loaded().find(name) is not None


def _buttons(lesson: Lesson | None) -> None:
    title, row = st.columns([1, 2], vertical_alignment="bottom")
    title.markdown("### " + say("Lesson editor"))
    with row, st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="bottom"):
        templates, state = {**_templates(language())}, st.session_state
        if state.get("lesson_replaced", state.lesson_draft) != state.lesson_draft:
            templates[OWN_TEXT] = say(OWN_TEXT), state.lesson_replaced

        def take(name: str | None) -> None:
            if name in templates:
                open_with(templates[name][1], own=name == OWN_TEXT)

        look: Any = {"format_func": lambda name: templates[name][0], "placeholder": say("Begin with …"), "width": 260}
        look |= {"index": None, "help": say(HELP), "label_visibility": "collapsed"}
        st.selectbox(say("Begin with"), list(templates), **bound("lesson_template", None, take), **look)

        def use() -> None:
            _take_typed()  # typed text may arrive with the click
            own = state.lesson_draft  # it opens at the step that was being edited
            state.update(lesson_edit=False, lesson="", lesson_own=own, lesson_packed=shelves.packed(own))

        st.button(say("Open as a lesson"), key="lesson_use", type="primary", disabled=lesson is None, on_click=use)
        close = lambda: state.update(lesson_edit=False, lesson_packed="")  # noqa: E731
        st.button("", key="lesson_close", icon=":material/close:", help=say("Close the editor"), on_click=close)


def _take_typed() -> None:
    """Take what was typed since the last message, and the step that the cursor is in. For use in a callback."""
    state, typed = st.session_state, component_value(SOURCE).get("typed")
    text, step = (typed.get("text"), whole(typed.get("step"))) if isinstance(typed, dict) else (None, None)
    if isinstance(text, str) and len(text) <= MAX_BYTES:
        if text != state.lesson_draft:
            forget(DRAFT)
        state.update(lesson_draft=text, lesson_step=max(step or 1, 1))


def _take_replaced() -> None:
    """Take the text that this browser tab had stored and this new session does not have. For use in a callback."""
    state, before = st.session_state, component_value(SOURCE).get("replaced")
    fits = isinstance(before, str) and len(before) <= MAX_BYTES
    sources = {source for _, source in _templates(language()).values()}
    if fits and not state.get("lesson_replaced") and before not in sources:
        state.lesson_replaced = before


def _show_source(text: str, lesson: Lesson | None, problems: list[str], fine: str) -> None:
    state = st.session_state
    props = {"text": text, "version": state.lesson_draft_version, "step": state.lesson_step, "most": MAX_BYTES}
    lines = [re.search(r"\d+", problem[:12]) for problem in problems]  # the line number in each message; without one, 1
    placed = [[int(line[0]) if line else 1, problem] for line, problem in zip(lines, problems, strict=True)]
    props |= {"problems": placed, "fine": fine, "label": say("Source of the lesson")}
    name = re.sub(r"[^a-z0-9]+", "_", lesson.title.lower()).strip("_")[:40] if lesson else ""
    props |= {"save": say("Save"), "file": f"{name or 'lesson'}.{language()}.md"}
    _source(data=props, key=SOURCE, on_typed_change=_take_typed, on_replaced_change=_take_replaced)
