"""Which lessons there are to choose from: those that ship, a folder's, an uploaded one, one that is in a link."""

import base64
import binascii
import zlib
from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from i18n import language, say
from lessons.lesson import Lesson
from lessons.reading import MOST_BYTES, read
from lessons.shelf import FOLDER, Shelved, shelf
from serving.job import digest
from serving.settings import Settings
from ui.link import LONGEST_LINK


@dataclass(frozen=True)
class Open:
    """A lesson that is open. key: what its answers are kept under."""

    lesson: Lesson
    key: str
    own: str = ""  # its text, of one that is on no shelf


@st.cache_resource(show_spinner=False, max_entries=8, ttl=20)  # seconds: a teacher may be writing one
def _shelf(folder: str, language: str, others: tuple[str, ...] = ()) -> list[Shelved]:
    return shelf(Path(folder), language, others)


def shelved() -> list[Shelved]:
    """All, those that ship first. Raises ValueError for a folder of UNMASK_LESSONS that cannot be read."""
    folder, spoken = Settings.from_environment().lessons, language()
    found = _shelf(str(FOLDER), spoken)
    names = tuple(one.name for one in found)
    return found + [one for one in (_shelf(str(folder), spoken, names) if folder else []) if one.name not in names]


def opened(found: list[Shelved]) -> Open | None:
    """The chosen lesson; None for the list of all. Raises ValueError, a sentence, for one that cannot be read."""
    state = st.session_state
    if state.lesson_packed and not state.lesson_own:
        state.lesson_own = unpacked(state.lesson_packed)
    if state.lesson_own:
        lesson = read(state.lesson_own, [one.name for one in found])
        return Open(lesson, f"own {digest(state.lesson_own).hex()}", state.lesson_own)
    if not state.lesson:
        return None
    one = next((one for one in found if one.name == state.lesson), None)
    if one is None:
        raise ValueError(say("There is no lesson named “{name}” here.", name=state.lesson))
    if one.lesson is None:
        raise ValueError(one.problem)
    return Open(one.lesson, one.name)


def packed(text: str) -> str:
    """A lesson as it stands in a link; "" for one that is too long for that."""
    found = base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")
    return found if len(found) <= LONGEST_LINK - 200 else ""


def unpacked(link: str) -> str:
    """What `packed` made. Raises ValueError for anything else, and for more than a lesson may hold."""
    try:
        open_ = zlib.decompressobj()
        data = open_.decompress(base64.urlsafe_b64decode(link + "=" * (-len(link) % 4)), MOST_BYTES)
        if open_.unconsumed_tail or not open_.eof:
            raise ValueError
        return data.decode()
    except (ValueError, zlib.error, binascii.Error):
        raise ValueError(say("expected a whole lesson in the link; ask for the link again")) from None
