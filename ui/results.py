"""What was computed once and may be wanted again: shared by everybody in the process, read-only, bounded in bytes."""

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from sys import getsizeof
from threading import BoundedSemaphore, Lock
from typing import Any, TypeVar

import streamlit as st
from cachetools import LRUCache

from model import machine
from model.settings import Settings
from ui.guard import waiting

Result = TypeVar("Result")


def nbytes(result: Any) -> int:
    """The memory it takes, in bytes."""
    return result.nbytes() if hasattr(result, "nbytes") else getsizeof(result)


class ResultCache:
    """Least recently used leaves first. As many results are made at a time as there are cores, the others wait.

    What two ask for at once is made once: the second waits for the first.
    waiting: entered around the making, and the waiting for another's.
    """

    def __init__(self, most_bytes: int, waiting: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._waiting = waiting
        self._kept: LRUCache = LRUCache(most_bytes, getsizeof=nbytes)
        self._being_made: dict[Hashable, Future] = {}
        self._lock = Lock()
        self._cores = BoundedSemaphore(machine.cores())

    def get(self, key: Hashable, make: Callable[[], Result]) -> Result:
        """What make() gives, remembered under key, which holds everything that the result depends on.

        make is called without a lock, and calls no `get` of its own: who waits for a core must hold none.
        Raises what make raises, for everybody who waits for it.
        """
        with self._lock:
            if key in self._kept:
                return self._kept[key]
        with self._waiting():
            return self._get_or_make(key, make)

    def _get_or_make(self, key: Hashable, make: Callable[[], Result]) -> Result:
        while True:
            with self._lock:
                if key in self._kept:
                    return self._kept[key]
                waited_for = self._being_made.get(key)
                if waited_for is None:
                    mine = self._being_made[key] = Future()
            if waited_for is None:
                return self._make(key, make, mine)
            try:
                return waited_for.result()
            except Exception:
                raise
            except BaseException:  # noqa: BLE001 - its maker left before it was done: make it ourselves
                continue

    def find(self, key: Hashable) -> Any:
        """What is remembered under key, None for nothing."""
        with self._lock:
            return self._kept.get(key)

    def forget(self, wanted: Callable[[Any], bool]) -> None:
        """Drop every result that wanted(result) is true of."""
        with self._lock:
            for key in [key for key, result in self._kept.items() if wanted(result)]:
                del self._kept[key]

    def nbytes(self) -> int:
        """What is kept now, in bytes."""
        return int(self._kept.currsize)

    def _make(self, key: Hashable, make: Callable[[], Result], promise: Future) -> Result:
        try:
            with self._cores:
                result = make()
        except BaseException as error:
            with self._lock:
                del self._being_made[key]
            promise.set_exception(error)
            raise
        with self._lock:
            if nbytes(result) <= self._kept.maxsize:
                self._kept[key] = result
            del self._being_made[key]
        promise.set_result(result)
        return result


@st.cache_resource(show_spinner=False)
def shared() -> ResultCache:
    """The one of this process, a share of the memory that the container has."""
    return ResultCache(Settings.from_environment().results_bytes, waiting)
