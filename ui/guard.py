"""Work that may fail, or that its user can stop: a spinner or a line while it goes on, a sentence in place of a stack
trace when it ends badly.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial

import streamlit as st
import torch
from streamlit.delta_generator import DeltaGenerator

from i18n import N_, Message, msg, say, translated
from ui.markdown import lines

TROUBLE = (ValueError, OSError, MemoryError)  # what loading or running a model ends in; OSError: no files to be had
NO_MEMORY = N_("There was not enough memory for this. Try a shorter text, fewer lines or a smaller model")
ALLOCATOR = (  # what torch's RuntimeErrors then say
    "can't allocate memory", "Cannot allocate memory", "not enough memory", "out of memory",  # not shown
)  # fmt: skip

_words: ContextVar[str] = ContextVar("_words", default="")


def problem_in(error: Exception) -> Message | None:
    """What to tell the reader, one sentence without its full stop; None for an error that is ours to mend."""
    words = str(error)
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(sign in words for sign in ALLOCATOR)
    ):
        return msg(NO_MEMORY)
    return Message(partial(_without_stop, words or type(error).__name__)) if isinstance(error, TROUBLE) else None


def _without_stop(words: str) -> str:
    return str(translated(words)).strip().rstrip(".。")


@contextmanager
def guarded(words: str = "", *, on_trouble: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Where the work fails, call on_trouble, say why and end the page there.

    words: of the spinner while a result is made in it (`waiting`).
    """
    before = _words.set(words)
    try:
        yield
    except Exception as error:
        problem = problem_in(error)
        if problem is None:
            raise
        on_trouble()
        st.error(say("{problem}.", problem=lines(say(problem).splitlines())), icon=":material/error:")
        st.stop()
    finally:
        _words.reset(before)


@contextmanager
def waiting() -> Iterator[None]:
    """The spinner of the guard around.

    One: what is made for something that is being made waits under the same.
    """
    words = _words.get()
    before = _words.set("")
    try:
        with st.spinner(words, show_time=True) if words else nullcontext():
            yield
    finally:
        _words.reset(before)


@contextmanager
def stoppable(name: str, again: str) -> Iterator[DeltaGenerator | None]:
    """The line, for the time of the work; None while the work of this name is stopped, under a button that is called
    `again`. Streamlit leaves the script that does the work when the button beside the line is pressed."""
    slot, stop = st.empty(), lambda stopped: st.session_state.update(stopped_work=stopped)
    if st.session_state.get("stopped_work") == name:
        slot.button(again, on_click=stop, args=("",), icon=":material/play_arrow:")
        yield None
        return
    with slot.container(horizontal=True, vertical_alignment="center"):
        line = st.empty()
        st.button(say("Stop"), on_click=stop, args=(name,), icon=":material/stop:", key="stop_work")
    try:
        yield line
    finally:
        slot.empty()
