"""What pages ask of models: jobs, done in turn, and their answers, kept for everybody in the process."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import streamlit as st

from i18n import language
from serving import backends
from serving.job import Job
from serving.once import once
from serving.result_cache import Engine, ResultCache
from serving.scheduler import Scheduler
from serving.settings import Settings
from ui.guard import waiting
from ui.streamlit_internals import session_id

Made = TypeVar("Made")


@once
def result_cache() -> ResultCache:
    """The answers, a share of the memory that the container has."""
    return ResultCache(Settings.from_environment().results_bytes, waiting)


@once
def engine() -> Engine:
    """The models and traces of this process."""
    settings = Settings.from_environment()
    return Engine(settings.models_in_memory, settings.traces_bytes)


@once
def scheduler() -> Scheduler:
    """Where this server's jobs are done."""
    return backends.start(Settings.from_environment(), engine())


def kept(key: Hashable, make: Callable[[], Made], still_wanted: Callable[[], object] = lambda: None) -> Made:
    """What make() gives, remembered for every reader of the same language: there may be sentences in it."""
    return result_cache().get((language(), key), make, still_wanted)


def ask(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """function(*arguments, **options) of model/, remembered; see serving.job for what the arguments may be.

    Raises what the function raises, and sentences for the reader (ValueError) of a queue that is full and of a job that
    takes too long. Where the reader has asked for something else meanwhile, Streamlit leaves the script here.
    """
    job = Job(function, arguments, options)
    return kept(job.key, lambda: scheduler().ask(job, reader(), still_wanted), still_wanted)


def ask_anew(function: Callable[..., Any], *arguments: Any) -> Any:
    """As ask, and not remembered: what is another every time, a measured time above all."""
    return scheduler().ask(Job(function, arguments), reader(), still_wanted)


def reader() -> str:
    """Whose turn it is: a page's session."""
    return session_id() or ""


def still_wanted() -> None:
    """Called now and then by what takes long: every look into the session's state is a place where Streamlit ends a
    script that is not wanted any longer.
    """
    if session_id() is not None:
        st.session_state.get("model")
