"""What was computed once and may be wanted again: shared by everybody in the process, read-only, bounded in bytes."""

import os
from collections.abc import Callable, Hashable
from threading import BoundedSemaphore, Lock
from typing import Protocol, TypeVar

import streamlit as st
from cachetools import LRUCache

MOST_BYTES = 768 * 2**20


class Sized(Protocol):
    def nbytes(self) -> int: ...


Result = TypeVar("Result", bound=Sized)


class ResultCache:
    """Least recently used leaves first. As many results are made at a time as there are cores, the others wait."""

    def __init__(self, most_bytes: int) -> None:
        self._kept: LRUCache = LRUCache(most_bytes, getsizeof=lambda result: result.nbytes())
        self._lock = Lock()
        self._cores = BoundedSemaphore(os.cpu_count() or 1)

    def get(self, key: Hashable, make: Callable[[], Result]) -> Result:
        """What make() gives, remembered under key, which holds everything that the result depends on."""
        with self._lock:
            if key in self._kept:
                return self._kept[key]
        with self._cores:
            result = make()
        with self._lock:
            if result.nbytes() <= self._kept.maxsize:
                self._kept[key] = result
        return result


@st.cache_resource(show_spinner=False)
def shared() -> ResultCache:
    """The one of this process."""
    return ResultCache(MOST_BYTES)
