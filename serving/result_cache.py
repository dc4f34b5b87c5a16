"""A cache of read-only results for later requests, bounded in bytes; and the engine that computes the results."""

from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from sys import getsizeof
from threading import Lock
from typing import Any, TypeVar

from cachetools import LRUCache

from i18n import N_, msg
from model import kv_cache
from model.base import Model
from model.errors import panics_caught
from model.trace import Trace
from serving.job import GeneratedRunRef, Job, ModelRef, RunRef
from serving.loaded_models import LoadedModels

Result = TypeVar("Result")
POLL_SECONDS = 0.1  # seconds between two calls of raise_if_cancelled
SMALL = 100  # assumed bytes of an object without its content
GIVES_NAN = N_("{model} gives NaN on this text: its values overflow their data type. Try another text or another model")


def once(make: Callable[[], Result]) -> Callable[[], Result]:
    """Return a function that calls make() once and caches the result; other threads wait. Exceptions are not cached."""
    lock, cached = Lock(), cache(make)

    @wraps(make)
    def get() -> Result:
        with lock:
            return cached()

    return get


class ResultCache:
    """A cache, bounded in bytes, least recently used evicted first. A result requested twice at once is computed once.

    found, made: number of cache hits, and of results computed.
    """

    def __init__(self, most_bytes: int) -> None:
        self._cache: LRUCache = LRUCache(most_bytes, getsizeof=nbytes)
        self._in_progress: dict[Hashable, Future] = {}
        self._lock = Lock()
        self.found, self.made = 0, 0

    def get(
        self, key: Hashable, make: Callable[[], Result], raise_if_cancelled: Callable[[], object] = lambda: None
    ) -> Result:
        """Return the result of make(), cached under key, which must include everything that the result depends on.

        raise_if_cancelled: called repeatedly while another thread computes the result; may raise. Raises what make
        raises.
        """
        while True:
            with self._lock:
                if key in self._cache:
                    self.found += 1
                    return self._cache[key]
                waited_for = self._in_progress.get(key)
                if waited_for is None:
                    mine = self._in_progress[key] = Future()
            if waited_for is None:
                return self._make(key, make, mine)
            while not waited_for.done():
                raise_if_cancelled()
                wait([waited_for], POLL_SECONDS)
            if not isinstance(waited_for.exception(), Cancelled):
                return waited_for.result()

    def find(self, key: Hashable) -> Any:
        with self._lock:
            return self._cache.get(key)

    def forget(self, wanted: Callable[[Hashable], bool]) -> None:
        with self._lock:
            for key in [key for key in self._cache if wanted(key)]:
                del self._cache[key]

    def nbytes(self) -> int:
        """Return the size of the cached results, in bytes."""
        return int(self._cache.currsize)

    def most_bytes(self) -> int:
        """Return the limit of that size, in bytes."""
        return int(self._cache.maxsize)

    def _make(self, key: Hashable, make: Callable[[], Result], promise: Future) -> Result:
        try:
            result = make()
            size = nbytes(result)
        except BaseException as error:
            with self._lock:
                del self._in_progress[key]
            # if the user left during the computation, a waiting thread computes the result instead
            promise.set_exception(error if isinstance(error, Exception) else Cancelled())
            raise
        with self._lock:
            self.made += 1
            if size <= self._cache.maxsize:
                self._cache[key] = result
            del self._in_progress[key]
        promise.set_result(result)
        return result


class Cancelled(Exception):
    """The user left while the result was computed."""


def nbytes(value: Any) -> int:
    """Return the approximate memory of a result in bytes, its arrays, texts and nested parts included."""
    if type(value) in (int, float, bool):  # first, since most parts of most results are
        return getsizeof(value)
    own = getattr(value, "nbytes", None)  # an attribute of tensors and arrays, a method of our classes
    if own is not None:
        return own() if callable(own) else own
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
    """Computes jobs and caches traces, so that another head of a run costs no second forward pass. Thread-safe.

    trace_bytes: the limit for all traces together; a trace that is larger is computed again for every job.
    """

    def __init__(self, models_in_memory: int, trace_bytes: int) -> None:
        self.traces = ResultCache(trace_bytes)
        self.models = LoadedModels(models_in_memory, self._forget)

    def do(self, job: Job) -> Any:
        with panics_caught():
            return job.function(*map(self._found, job.arguments), **job.options)

    def _found(self, argument: Any) -> Any:
        if isinstance(argument, RunRef):
            return self.trace(argument)
        return self.models.of(argument) if isinstance(argument, ModelRef) else argument

    def trace(self, run: RunRef) -> Trace:
        """Return the trace of a run. Raises what running the model raises."""
        model = self.models.of(run.model)  # also for a cached trace, from which jobs read the model's weights
        return self.traces.get(run.trace_key, lambda: self._made(run, model)).select(run.attention)

    def _made(self, run: RunRef, model: Model) -> Trace:
        if not isinstance(run, GeneratedRunRef):
            trace = model.run(run.batch, run.spec)
            if trace.states[trace.batch.keep].isnan().any():
                raise ValueError(msg(GIVES_NAN, model=model.name))
            return trace
        trace = kv_cache.generated_trace(model, run.ids, self.traces.find(run.before), run.prompt)
        self.traces.forget(lambda key: key == run.before)
        return trace

    def _forget(self, files: str) -> None:
        """Drop the traces of an evicted model: a trace keeps its model in memory."""
        self.traces.forget(lambda key: isinstance(key, tuple) and key[0].key == files)
