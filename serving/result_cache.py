"""What was computed once and may be wanted again: read-only, bounded in bytes."""

from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from sys import getsizeof
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import torch
from cachetools import LRUCache

from i18n import say, spoken
from model import kv_cache
from model.base import Model
from model.errors import panics_caught
from model.trace import Trace
from serving.job import GrownRunRef, Job, ModelRef, RunRef
from serving.loaded_models import LoadedModels

Made = TypeVar("Made")


def once(make: Callable[[], Made]) -> Callable[[], Made]:
    """make(), called at most once, by one thread while others wait for it; called again if it raised."""
    lock, cached = Lock(), cache(make)

    @wraps(make)
    def get() -> Made:
        with lock:
            return cached()

    return get


Result = TypeVar("Result")
LOOK = 0.1  # seconds between two looks of who waits for another's making
SMALL = 100  # bytes that a plain value may take


class ResultCache:
    """Least recently used leaves first. What two ask for at once is made once: the second waits for the first."""

    def __init__(self, most_bytes: int) -> None:
        self._kept: LRUCache = LRUCache(most_bytes, getsizeof=nbytes)
        self._being_made: dict[Hashable, Future] = {}
        self._lock = Lock()
        self.found, self.made = 0, 0  # how often something was there, and how often it had to be made

    def get(
        self, key: Hashable, make: Callable[[], Result], still_wanted: Callable[[], object] = lambda: None
    ) -> Result:
        """What make() gives, remembered under key, which holds everything that the result depends on.

        make is called without a lock. Who waits for another's making calls still_wanted now and then, which may raise.
        Raises what make raises, for everybody who waits for it.
        """
        while True:
            with self._lock:
                if key in self._kept:
                    self.found += 1
                    return self._kept[key]
                waited_for = self._being_made.get(key)
                if waited_for is None:
                    mine = self._being_made[key] = Future()
            if waited_for is None:
                return self._make(key, make, mine)
            while not waited_for.done():
                still_wanted()
                wait([waited_for], LOOK)
            if not isinstance(waited_for.exception(), Cancelled):
                return waited_for.result()

    def find(self, key: Hashable) -> Any:
        """What is remembered under key, None for nothing."""
        with self._lock:
            return self._kept.get(key)

    def forget(self, wanted: Callable[[Hashable], bool]) -> None:
        """Drop every result whose key wanted(key) is true of."""
        with self._lock:
            for key in [key for key in self._kept if wanted(key)]:
                del self._kept[key]

    def nbytes(self) -> int:
        """What is kept now, in bytes."""
        return int(self._kept.currsize)

    def most_bytes(self) -> int:
        """What may be kept, in bytes."""
        return int(self._kept.maxsize)

    def _make(self, key: Hashable, make: Callable[[], Result], promise: Future) -> Result:
        try:
            result = make()
        except BaseException as error:
            with self._lock:
                del self._being_made[key]
            # who left before it was done leaves the making to who waits
            promise.set_exception(error if isinstance(error, Exception) else Cancelled())
            raise
        with self._lock:
            self.made += 1
            if nbytes(result) <= self._kept.maxsize:
                self._kept[key] = result
            del self._being_made[key]
        promise.set_result(result)
        return result


class Cancelled(Exception):
    """Whoever made it did not stay until it was done."""


def nbytes(value: Any) -> int:
    """The memory a result takes, in bytes, about: of its arrays, its texts and its parts."""
    own = getattr(value, "nbytes", None)
    if callable(own):
        return own()
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, str | bytes):
        return SMALL + len(value)
    if is_dataclass(value):
        return SMALL + sum(nbytes(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, dict):
        return SMALL + sum(nbytes(key) + nbytes(one) for key, one in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return SMALL + sum(map(nbytes, value))
    return getsizeof(value)


class Engine:
    """Many threads may share one. A trace (q, k, v) stays here: another head of the same run costs no second forward.

    trace_bytes: what all traces together may take; one that takes more is made anew for every job.
    """

    def __init__(self, models_in_memory: int, trace_bytes: int) -> None:
        self.traces = ResultCache(trace_bytes)
        self.models = LoadedModels(models_in_memory, self._forget)

    def do(self, job: Job) -> Any:
        """The job's answer. Raises what its function raises, and what loading and running its model raise."""
        with spoken(job.language), panics_caught():
            return job.function(*map(self._found, job.arguments), **job.options)

    def _found(self, argument: Any) -> Any:
        """What an argument stands for."""
        if isinstance(argument, RunRef):
            return self.trace(argument)
        return self.models.of(argument) if isinstance(argument, ModelRef) else argument

    def trace(self, run: RunRef) -> Trace:
        """Of a run, made once. Raises what running raises."""
        return self.traces.get(run.trace_key, lambda: self._made(run)).select(run.attention)

    def _made(self, run: RunRef) -> Trace:
        model = self.models.of(run.model)
        if not isinstance(run, GrownRunRef):
            return _checked(model, model.run(run.batch, run.spec))
        trace = kv_cache.grown(model, run.ids, self.traces.find(run.before), run.prompt)
        self.traces.forget(lambda key: key == run.before)
        return trace

    def _forget(self, files: str) -> None:
        """A trace keeps its model in memory: with a model go its traces."""
        self.traces.forget(lambda key: isinstance(key, tuple) and key[0].key == files)


def _checked(model: Model, trace: Trace) -> Trace:
    """Raises ValueError for a run whose numbers grew beyond what their type holds."""
    if trace.states[trace.batch.keep].isnan().any():
        raise ValueError(
            say("{model} gives NaN on this text: its values overflow their data type. Try another text or another "
                "model", model=model.name)
        )  # fmt: skip
    return trace
