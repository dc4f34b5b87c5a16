"""Guards for work that may fail: a spinner while it runs, and a sentence instead of a stack trace if it fails."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial

import streamlit as st
import torch

from i18n import N_, Message, msg, say, translated
from ui.markdown import lines

MODEL_ERRORS = (ValueError, OSError, MemoryError)  # what loading or running a model may raise; OSError: missing files
USER_FACING_ERRORS = (*MODEL_ERRORS, RuntimeError)  # torch raises RuntimeError when memory runs out
NO_MEMORY = N_("There was not enough memory for this. Try a shorter text, fewer lines or a smaller model")
ALLOCATOR = (  # texts in torch's RuntimeErrors when memory runs out
    "can't allocate memory", "Cannot allocate memory", "not enough memory", "out of memory",  # not shown
)  # fmt: skip

_spinner_text: ContextVar[str] = ContextVar("_words", default="")


def message_for(error: Exception) -> Message:
    """Return a message on an error: one sentence without its full stop. Raises the error if it is a bug in Unmask."""
    text = str(error)
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(sign in text for sign in ALLOCATOR)
    ):
        return msg(NO_MEMORY)
    if not isinstance(error, MODEL_ERRORS):
        raise error
    return Message(partial(_without_stop, text or type(error).__name__))


def _without_stop(text: str) -> str:
    return str(translated(text)).strip().rstrip(".。")


def error_from_running(work: Callable[[], object]) -> Message | None:
    """Do the work. Returns the message for the user if it fails, else None."""
    try:
        work()
    except USER_FACING_ERRORS as error:
        return message_for(error)
    return None


def show_error(problem: Message) -> None:
    """Show the user a message that `message_for` returned."""
    st.error(say("{problem}.", problem=lines(say(problem).splitlines())), icon=":material/error:")


@contextmanager
def guarded(text: str = "", *, on_trouble: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Run the body; if it fails, call on_trouble, show the reason and end the page there.

    text: the spinner's text while a result is computed (see `waiting`).
    """
    before = _spinner_text.set(text)
    try:
        yield
    except USER_FACING_ERRORS as error:
        problem = message_for(error)
        on_trouble()
        show_error(problem)
        st.stop()
    finally:
        _spinner_text.reset(before)


@contextmanager
def waiting() -> Iterator[None]:
    """Show the spinner of the enclosing `guarded`.

    It is shown only once: a result that is computed for another one shares its spinner.
    """
    text = _spinner_text.get()
    before = _spinner_text.set("")
    try:
        with st.spinner(text, show_time=True) if text else nullcontext():
            yield
    finally:
        _spinner_text.reset(before)
