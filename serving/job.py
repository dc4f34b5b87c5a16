"""A job: a function of model/ by its name, and plain arguments. It can be sent to another process, or machine.

Where an argument is a ModelRef or a Run, the function gets the model, or the trace of that run: whoever does the job
(engine.py) has them, and what is asked for comes back as numpy arrays and plain values.
"""

import hashlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from importlib import import_module
from typing import Any

import numpy as np

from i18n import language
from model.base import Model
from model.masks import MaskSpec
from model.text import TokenBatch


@dataclass(frozen=True)
class ModelRef:
    """Stands for a model: its name, and the key of the files that it was loaded from."""

    name: str
    key: str

    @classmethod
    def of(cls, model: Model) -> "ModelRef":
        return cls(model.name, model.key)


@dataclass(frozen=True, eq=False)
class RunRef:
    """Stands for the trace of one forward pass, showing one of its attentions."""

    model: ModelRef
    batch: TokenBatch
    spec: MaskSpec
    attention: str = "self"

    @cached_property
    def trace_key(self) -> Hashable:
        """The same for whichever of its attentions is shown: what a trace is kept under."""
        return self.model, digest((shape_of(self.batch), texts_of(self.batch))), digest(self.spec.to_json())

    @property
    def key(self) -> Hashable:
        return self.trace_key, self.attention

    @property
    def family(self) -> Hashable:
        """Of the runs that are made with less work where one of them was made."""
        return self.trace_key

    @property
    def queries(self) -> TokenBatch:
        """The tokens that look."""
        return self._source() if self.attention == "encoder" else self.batch

    @property
    def keys(self) -> TokenBatch:
        """The tokens looked at."""
        return self._source() if self.attention in ("encoder", "cross") else self.batch

    def _source(self) -> TokenBatch:
        if self.batch.source is None:
            why = f"expected a batch with a source, for its attention {self.attention!r}"  # not shown: pages give one
            raise ValueError(why)
        return self.batch.source


@dataclass(frozen=True, eq=False)
class GrownRunRef(RunRef):
    """Stands for the trace of a text that is written token by token, made by one cached step where there is the trace
    of the text before. Of a model that kv_cache.step takes, under its standard masks, one row without padding.

    prompt: how many of its tokens were not written one by one. before: the run of the text before, whose trace is then
    let go: a text that grows leaves one behind it, not one for each of its tokens.
    """

    prompt: int = 1
    before: Hashable = None

    @cached_property
    def trace_key(self) -> Hashable:
        return self.model, "grown", self.ids

    @property
    def ids(self) -> tuple[int, ...]:
        """The text so far."""
        return tuple(self.batch.ids[0].tolist())

    @property
    def family(self) -> Hashable:
        return self.model, "grown", self.ids[: self.prompt]


@dataclass(frozen=True, eq=False)
class Job:
    """function(*arguments, **options), with models and traces in place of what stands for them among the arguments.

    function: of a module, or a method of a class there, found by its name. Raises ValueError for any other.
    language: what it says, in its answer or as an error, is said in.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    language: str = field(default_factory=language)

    def __post_init__(self) -> None:
        module, name = self.function.__module__, self.function.__qualname__
        if "<" in name or module == "__main__" or _named(module, name) is not self.function:
            why = f"expected a function that its module has under its name, got {module}.{name}"  # not shown
            raise ValueError(why)

    @property
    def name(self) -> str:
        """The function's, with its module's: says nothing of any reader."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    @cached_property
    def key(self) -> Hashable:
        """The same for the same question: what an answer is kept under. Raises TypeError for unhashable arguments."""
        options = ((name, _key_of(value)) for name, value in sorted(self.options.items()))
        key = (self.name, *map(_key_of, self.arguments), *options)
        hash(key)
        return key

    @property
    def affinity_key(self) -> tuple[Hashable, ...]:
        """The families of the runs whose traces it takes."""
        return tuple(argument.family for argument in self.arguments if isinstance(argument, RunRef))


def digest(plain: object) -> bytes:
    """Stands for plain data in a key: a text, or a drawing, may be larger than what is kept under it."""
    return hashlib.blake2b(repr(plain).encode("utf-8", "backslashreplace"), digest_size=16).digest()


def shape_of(batch: TokenBatch | None) -> Hashable:
    """All of a batch that a network reads."""
    if batch is None:
        return None
    numbers = (batch.ids, batch.keep) if batch.positions is None else (batch.ids, batch.keep, batch.positions)
    return tuple(batch.ids.shape), *(one.numpy().tobytes() for one in numbers), shape_of(batch.source)


def texts_of(batch: TokenBatch) -> Hashable:
    """What a documents mask reads, in the run or shown on it: texts of the same ids may have other separators."""
    return batch.texts, batch.ends, None if batch.source is None else texts_of(batch.source)


def _named(module: str, name: str) -> Any:
    return reduce(getattr, name.split("."), import_module(module))


def _key_of(argument: Any) -> Hashable:
    if isinstance(argument, RunRef):
        return argument.key
    if isinstance(argument, MaskSpec):
        return digest(argument.to_json())
    if isinstance(argument, np.ndarray):
        return argument.shape, argument.dtype.str, argument.tobytes()
    if isinstance(argument, TokenBatch):
        return digest((shape_of(argument), texts_of(argument), argument.pieces))
    return digest(argument) if isinstance(argument, str) else argument
