"""Access to models for pages: jobs, which run in turn, and their results, cached for all sessions of the process."""

from collections.abc import Callable, Hashable
from contextlib import ExitStack
from dataclasses import fields, is_dataclass
from itertools import count
from typing import Any, ParamSpec, TypeVar
from weakref import ref

import numpy as np
import streamlit as st
import torch

from i18n import language
from serving import backends
from serving.job import Job
from serving.result_cache import Engine, ResultCache, once
from serving.scheduler import Scheduler
from serving.settings import Settings
from ui.guard import waiting
from ui.streamlit_internals.files import download_of
from ui.streamlit_internals.session import session_id

Made = TypeVar("Made")


@once
def result_cache() -> ResultCache:
    """Return the cache of results, which may fill a share of the container's memory."""
    return ResultCache(Settings.from_environment().results_bytes)


@once
def engine() -> Engine:
    """Return the models and traces of this process."""
    settings = Settings.from_environment()
    return Engine(settings.models_in_memory, settings.traces_bytes)


@once
def scheduler() -> Scheduler:
    """Return the scheduler that runs this server's jobs."""
    return backends.start(Settings.from_environment(), engine())


def cached(key: Hashable, make: Callable[[], Made], raise_if_cancelled: Callable[[], object] = lambda: None) -> Made:
    """Return the result of make(), cached for each language because it may contain sentences."""
    return result_cache().get((language(), key), make, raise_if_cancelled)


def ask(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return the cached result of a job: function(*arguments, **options), of model/. Types allowed: see serving.job.

    Raises what the function raises, and ValueError if the queue is full or the job takes too long. If the user has
    requested something else meanwhile, Streamlit ends the script here.
    """
    job, looks = Job(function, arguments, options), count()
    with ExitStack() as spinner:

        def look() -> None:
            raise_if_cancelled()
            if next(looks) == 1:  # only a job that takes a moment is worth a spinner's thread and two messages
                spinner.enter_context(waiting())

        return result_cache().get(job.key, lambda: scheduler().ask(job, session(), look), look)


def ask_anew(function: Callable[..., Any], *arguments: Any, low_priority: bool = False) -> Any:
    """Return the result of a job, function(*arguments), without caching it. low_priority: all other jobs run first."""
    return scheduler().ask(Job(function, arguments), session(), raise_if_cancelled, low_priority=low_priority)


def session() -> str:
    """Return the id of the session whose page is drawn, or download made, here; jobs take turns by session."""
    return session_id() or download_of.get()


def raise_if_cancelled() -> None:
    """Let Streamlit end a script that is no longer wanted, by reading the session's state; call it often in long work.
    Also polls the page's training, if any, because its own polling is in a fragment, which waits for the script."""
    if session_id() is None or st.session_state.get("page") != "Why causal":  # not shown
        return
    if training := st.session_state.get("live_training"):
        training.watch()


P = ParamSpec("P")
Picture = TypeVar("Picture")


def cached_figure(make: Callable[P, Picture], *arguments: P.args, **named: P.kwargs) -> Picture:
    """Return make(*arguments, **named), cached for all sessions of the process.

    make: a function of a module that depends only on its arguments and the user's language, as those for pictures,
    tables and sentences do. Arguments are compared by value, arrays by their place in memory: those of results are
    read-only and stay there, views of them included. A figure of an array that is made anew in each rerun is never
    found: cache the array.
    """
    key = (make, _key(arguments), _key(named))
    return cached(key, lambda: make(*arguments, **named))


def _key(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):
        return _Memory(value)
    if isinstance(value, dict):
        return tuple((name, _key(item)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(value) if all(type(item) is str for item in value) else tuple(map(_key, value))  # fast for labels
    if is_dataclass(value) and not isinstance(value, type):
        return type(value), *(_key(getattr(value, field.name)) for field in fields(value))
    return value if value == value else "NaN"  # NaN does not equal itself


class _Memory:
    """An array as a key: equal to arrays of the same memory, shape, strides and dtype while that memory is held.

    Holds no reference to it: the picture stays cached whether or not the result that it was drawn from does.
    """

    def __init__(self, array: np.ndarray) -> None:
        holder = array  # owner of the memory: the base of a view, the storage of a torch tensor
        while isinstance(holder.base, np.ndarray):
            holder = holder.base
        self._owner = ref(holder.base.untyped_storage() if isinstance(holder.base, torch.Tensor) else holder)
        self._where = array.ctypes.data, array.shape, array.strides, array.dtype.str

    def __hash__(self) -> int:
        return hash(self._where)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Memory) or self._where != other._where:
            return False
        owner = self._owner()
        return owner is not None and owner is other._owner()  # else the memory was reused for another array
