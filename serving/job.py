"""Jobs: a function of model/, sent by name with plain arguments to this or another process or machine.

The Engine that runs a job replaces each ModelRef among its arguments by the model, and each RunRef by the trace of the
run. The answer consists of numpy arrays and plain values.
"""

import hashlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from model.base import Model
from model.masks import MaskSpec
from model.text import TokenBatch


@dataclass(frozen=True)
class ModelRef:
    """A reference to a model: its name, and the key of the files that it was loaded from."""

    name: str
    key: str

    @classmethod
    def of(cls, model: Model) -> "ModelRef":
        return cls(model.name, model.key)


@dataclass(frozen=True, eq=False)
class RunRef:
    """A reference to the trace of one forward pass. attention: the one to select, see Trace.attentions."""

    model: ModelRef
    batch: TokenBatch
    spec: MaskSpec
    attention: str = "self"

    @cached_property
    def trace_key(self) -> Hashable:
        """The key of the whole trace, whichever attention is shown."""
        return self.model, _digest_of(self.batch), digest(self.spec.to_json())

    @property
    def key(self) -> Hashable:
        return self.trace_key, self.attention

    @property
    def family(self) -> Hashable:
        """A key shared by runs each of which is faster on the worker that ran another of them."""
        return self.trace_key

    @property
    def queries(self) -> TokenBatch:
        """The tokens that attend."""
        return self._source() if self.attention == "encoder" else self.batch

    @property
    def keys(self) -> TokenBatch:
        """The tokens attended to."""
        return self._source() if self.attention in ("encoder", "cross") else self.batch

    def _source(self) -> TokenBatch:
        assert self.batch.source is not None, self.attention
        return self.batch.source


@dataclass(frozen=True, eq=False)
class GeneratedRunRef(RunRef):
    """A reference to the trace of a text that is generated token by token: one step with a KV cache if the trace of the
    previous text is cached. For models that kv_cache.step takes, under their standard masks; one row without padding.

    prompt: how many tokens were not generated. before: the previous text's trace_key; its trace is dropped afterwards.
    """

    prompt: int = 1
    before: Hashable = None

    @cached_property
    def trace_key(self) -> Hashable:
        return self.model, "grown", self.ids

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self.batch.ids[0].tolist())

    @property
    def family(self) -> Hashable:
        return self.model, "grown", self.ids[: self.prompt]


@dataclass(frozen=True, eq=False)
class Job:
    """A call function(*arguments, **options), with models and traces in place of the references among the arguments.

    function: a module's function or a method of its class, found by name. Raises ValueError for any other.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        module, name = self.function.__module__, self.function.__qualname__
        known = "<" not in name and module != "__main__"
        if not known or reduce(getattr, name.split("."), import_module(module)) is not self.function:
            why = f"expected a function that its module has under its name, got {module}.{name}"  # not shown
            raise ValueError(why)

    @property
    def name(self) -> str:
        return f"{self.function.__module__}.{self.function.__qualname__}"

    @cached_property
    def key(self) -> Hashable:
        """A cache key, equal for jobs with the same answer. Raises TypeError for unhashable arguments."""
        options = ((name, _key_of(value)) for name, value in sorted(self.options.items()))
        key = (self.name, *map(_key_of, self.arguments), *options)
        hash(key)
        return key

    @property
    def affinity_key(self) -> tuple[Hashable, ...]:
        """The `family` of each run among the arguments."""
        return tuple(argument.family for argument in self.arguments if isinstance(argument, RunRef))


class QueueFull(ValueError):
    """The job cannot be queued now."""


def digest(plain: object) -> bytes:
    """Return a short key for plain data: a text or a drawing may be larger than the result cached for it."""
    return hashlib.blake2b(repr(plain).encode("utf-8", "backslashreplace"), digest_size=16).digest()


_digests: WeakKeyDictionary[TokenBatch, bytes] = WeakKeyDictionary()


def _digest_of(batch: TokenBatch) -> bytes:
    """Return the digest of a batch, computed only once, since a batch's tokens never change."""
    found = _digests.get(batch)
    if found is None:
        found = _digests[batch] = digest((shape_of(batch), texts_of(batch)))
    return found


def shape_of(batch: TokenBatch | None) -> Hashable:
    """Return a key for everything that a network reads of a batch."""
    if batch is None:
        return None
    numbers = (batch.ids, batch.keep, batch.positions, batch.patches)
    of_each = (None if one is None else one.numpy().tobytes() for one in numbers)
    return tuple(batch.ids.shape), *of_each, shape_of(batch.source)


def texts_of(batch: TokenBatch) -> Hashable:
    """Return a key for what a documents mask reads: texts with the same ids may differ in their separators."""
    return batch.texts, batch.ends, None if batch.source is None else texts_of(batch.source)


def _key_of(argument: Any) -> Hashable:
    if isinstance(argument, RunRef):
        return argument.key
    if isinstance(argument, MaskSpec):
        return digest(argument.to_json())
    if isinstance(argument, np.ndarray):
        return argument.shape, argument.dtype.str, hashlib.blake2b(argument.tobytes(), digest_size=16).digest()
    if isinstance(argument, TokenBatch):
        return digest((shape_of(argument), texts_of(argument), argument.pieces))
    return digest(argument) if isinstance(argument, str) else argument
