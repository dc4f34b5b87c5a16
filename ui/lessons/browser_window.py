"""The reader's window: its width, which a lesson's pictures go by, and keys that Streamlit's buttons do not have."""

import streamlit as st

from ui.streamlit_internals import SELECTORS
from ui.widgets.key import component_value
from viz.components import source

WIDTH, NARROW = 1280, 640  # pixels: until the browser has told; of a phone, as in viz/components/lesson.js
LEAST_TEXT, TEXT_SHARE = 14, 0.012  # pixels of a presented picture's text, and of the window's width

_listener = st.components.v2.component("unmask_lesson", html="<span></span>", js=source("lesson.js"))


def listen() -> None:
    """Call once on the page."""
    ear = "listening_lesson"  # by this name it is out of sight (ui/page.py)

    def take() -> None:
        width = component_value(ear).get("width")
        if isinstance(width, int):
            st.session_state.lesson_width = min(max(width, 200), 8_000)

    _listener(
        data={"width": width(), "presented": st.session_state.lesson_present, "main": SELECTORS["main"]},
        key=ear,
        on_width_change=take,
    )


def width() -> int:
    """Pixels."""
    return st.session_state.get("lesson_width", WIDTH)


def is_narrow() -> bool:
    """Whether it is a phone's: one picture below the other."""
    return width() <= NARROW


def text_size() -> float | None:
    """Pixels of the text in pictures while the lesson is presented; None for that of the other pages."""
    return max(LEAST_TEXT, TEXT_SHARE * width()) if st.session_state.lesson_present else None
