"""The lessons that can be opened: built-in ones, those of a folder, an uploaded one, and one in a link."""

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from i18n import N_, language, say
from lessons.lesson import Lesson
from lessons.reading import FOLDER, MAX_BYTES, ListedLesson, read, shelf, written
from serving.job import digest
from serving.settings import Settings
from ui import page
from ui.link import LONGEST_LINK
from ui.sidebar.models import EXAMPLES, FIRST
from ui.streamlit_internals.selectors import css


@dataclass(frozen=True)
class Open:
    """A lesson that is open. key: of its answers."""

    lesson: Lesson
    key: str
    own: str = ""  # the source of a lesson that is not on the shelf


@st.cache_resource(show_spinner=False, max_entries=8, ttl=20)  # seconds: a teacher may be writing a lesson
def _shelf(folder: str, language: str, others: tuple[str, ...] = ()) -> list[ListedLesson]:
    return shelf(Path(folder), language, others)


def shelved() -> list[ListedLesson]:
    """Return all lessons, the built-in ones first."""
    folder, spoken = Settings.from_environment().lessons, language()
    found = _shelf(str(FOLDER), spoken)
    names = tuple(item.name for item in found)
    try:
        own = _shelf(str(folder), spoken, names) if folder else []
    except ValueError:  # its message names the server's folder
        own = [ListedLesson("", None, say("This server's own lessons cannot be opened."))]
    return found + [item if item.name not in names else _taken(item) for item in own]


def source_of(name: str) -> str:
    """Return the source of a lesson on the shelf."""
    ships = name in [item.name for item in _shelf(str(FOLDER), language())]
    own = None if ships else Settings.from_environment().lessons
    return written(own or FOLDER, name, language())


def _taken(item: ListedLesson) -> ListedLesson:
    """Return, as an unreadable file, a lesson that has the name of a built-in one."""
    template = N_("{file}: expected a unique name such as lesson.en.md or lesson.zh.md (a-z, 0-9 and _)")
    return ListedLesson(f"{item.name}.md", None, item.problem or say(template, file=item.file), item.file)


def opened(found: list[ListedLesson]) -> Open | None:
    """Return the chosen lesson; None for the list of all. Raises ValueError, a sentence, if it cannot be read."""
    state = st.session_state
    if state.lesson_packed and not state.lesson_own:
        state.lesson_own = unpacked(state.lesson_packed)
    if state.lesson_own:
        lesson = read(state.lesson_own, [item.name for item in found])
        return Open(lesson, f"own {digest(state.lesson_own).hex()}", state.lesson_own)
    if not state.lesson:
        return None
    item = next((item for item in found if item.name == state.lesson), None)
    if item is None:
        raise ValueError(say("There is no lesson named “{name}” here: choose one in the list.", name=state.lesson))
    if item.lesson is None:
        raise ValueError(item.problem)
    return Open(item.lesson, item.name)


def packed(text: str) -> str:
    """Encode a lesson for a link. Returns "" if it is too long for that."""
    found = base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")
    return found if len(found) <= LONGEST_LINK - 200 else ""


def unpacked(link: str) -> str:
    """Decode what `packed` returned. Raises ValueError for anything else, and for a lesson that is too long."""
    try:
        open_ = zlib.decompressobj()
        data = open_.decompress(base64.urlsafe_b64decode(link + "=" * (-len(link) % 4)), MAX_BYTES)
        if open_.unconsumed_tail or not open_.eof:
            raise ValueError
        return data.decode()
    except (ValueError, zlib.error, binascii.Error):
        raise ValueError(say("expected a whole lesson in the link; ask for the link again")) from None


MODEL = "story"  # the model of the heads in STARTING_POINTS
TWO_LINES = EXAMPLES["Two lines of very different length"]
STANDARD = {"row": 1, "pad": "left", "scope": "model", "causal": True, "padding": True, "zoom": None, "query": None}
STARTING_POINTS: Mapping[str, Mapping[str, Any]] = {  # the choices that each button sets
    "start_previous": {"text": FIRST, "layer": 0, "head": 3},
    "start_future": {"text": FIRST, "layer": 4, "head": 0, "causal": False},
    "start_padding": {"text": TWO_LINES, "layer": 0, "head": 3, "padding": False, "show_padding": True},
}
LABELS = {
    "start_previous": N_("a head that attends one token back"),
    "start_future": N_("let every token see the future"),
    "start_padding": N_("let tokens attend to padding"),
}
STYLE = """<style>
  .st-key-start { margin-bottom: -.6rem; } .st-key-start p { font-size: .9rem; }
  .st-key-start :is(button, a) { min-height: 24px; min-width: 24px; padding: 0 .2rem; }
</style>"""


def show(model: str) -> None:
    """Draw the line of things to try, if the user has its model and has not closed the line in this session."""
    state = st.session_state
    if model != MODEL or state.get("start_closed"):
        return
    seen = state.get("start_seen", ())

    def take(name: str) -> None:
        # the user's own text is kept, and restored after the lines that padding needs
        if state.text != state.get("start_text"):
            state.start_own = state.text
        chosen = {**STANDARD, **STARTING_POINTS[name]}
        if name != "start_padding" and state.start_own.strip():
            chosen["text"] = state.start_own
        state.update(chosen, start_text=chosen["text"])
        state.start_seen = (*state.get("start_seen", ()), name)

    with st.container(key="start", horizontal=True, vertical_alignment="center", gap="xsmall"):
        st.html(css(STYLE), width="content")
        st.markdown(say("Three things to try:"), width="content")
        for name in STARTING_POINTS:
            icon = ":material/check_circle:" if name in seen else ":material/radio_button_unchecked:"
            st.button(say(LABELS[name]), key=name, icon=icon, type="tertiary", on_click=take, args=(name,))
        page.link_to("pages/lessons.py", say("or take the lessons"))
        close = lambda: state.update(start_closed=True)  # noqa: E731
        st.button("", key="start_close", icon=":material/close:", type="tertiary", help=say("Dismiss"), on_click=close)
