"""Results that are kept for the next request, read-only and bounded in bytes; and the engine that computes them."""

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
SMALL = 100  # bytes of a plain value
GIVES_NAN = N_("{model} gives NaN on this text: its values overflow their data type. Try another text or another model")


def once(make: Callable[[], Result]) -> Callable[[], Result]:
    """make(), called once, by one thread while others wait; called again if it raised."""
    lock, cached = Lock(), cache(make)

    @wraps(make)
    def get() -> Result:
        with lock:
            return cached()

    return get


class ResultCache:
    """The least recently used result is evicted first. A result that is requested twice at once is computed once.

    found, made: how often a result was there, and how often it was computed.
    """

    def __init__(self, most_bytes: int) -> None:
        self._kept: LRUCache = LRUCache(most_bytes, getsizeof=nbytes)
        self._in_progress: dict[Hashable, Future] = {}
        self._lock = Lock()
        self.found, self.made = 0, 0

    def get(
        self, key: Hashable, make: Callable[[], Result], raise_if_cancelled: Callable[[], object] = lambda: None
    ) -> Result:
        """The result of make(), kept under key, which must hold everything that the result depends on.

        raise_if_cancelled: called now and then while another thread computes it; may raise. Raises what make raises.
        """
        while True:
            with self._lock:
                if key in self._kept:
                    self.found += 1
                    return self._kept[key]
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
            return self._kept.get(key)

    def forget(self, wanted: Callable[[Hashable], bool]) -> None:
        with self._lock:
            for key in [key for key in self._kept if wanted(key)]:
                del self._kept[key]

    def nbytes(self) -> int:
        """The size of the kept results."""
        return int(self._kept.currsize)

    def most_bytes(self) -> int:
        """The most that they may take."""
        return int(self._kept.maxsize)

    def _make(self, key: Hashable, make: Callable[[], Result], promise: Future) -> Result:
        try:
            result = make()
            size = nbytes(result)
        except BaseException as error:
            with self._lock:
                del self._in_progress[key]
            # a user who left while it was computed: one who waits computes it
            promise.set_exception(error if isinstance(error, Exception) else Cancelled())
            raise
        with self._lock:
            self.made += 1
            if size <= self._kept.maxsize:
                self._kept[key] = result
            del self._in_progress[key]
        promise.set_result(result)
        return result


class Cancelled(Exception):
    """The user left while the result was computed."""


def nbytes(value: Any) -> int:
    """The memory of a result, in bytes, about: of its arrays, texts and parts."""
    if type(value) in (int, float, bool):  # most parts of most results
        return getsizeof(value)
    own = getattr(value, "nbytes", None)  # a tensor's and an array's; a method of ours
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
    """Computes jobs and keeps traces, so that another head of a run costs no second forward pass. Threads may share it.

    trace_bytes: of all traces; a larger trace is computed again for every job.
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
        """The trace of a run. Raises what running raises."""
        model = self.models.of(run.model)  # first: what is computed from a kept trace reads the model's weights too
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
        """Drop the traces of a model that was evicted: a trace keeps its model in memory."""
        self.traces.forget(lambda key: isinstance(key, tuple) and key[0].key == files)
