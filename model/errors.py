"""What can be wrong with a model that was asked for. Each message is a sentence for the reader, with a next step."""

import operator
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from numbers import Integral
from typing import Any

from i18n import Message, msg


class CheckpointError(ValueError):
    """A checkpoint that cannot be loaded; the message names the file, what was expected and what was found."""


class NotSupported(CheckpointError):
    """A model whose attention cannot be shown as it is; the message says why."""


class TooLarge(CheckpointError):
    """A model whose weights take more than is allowed, or than there is memory for."""


class NotAvailable(OSError):
    """A repository's files cannot be had; the message says why and what to do."""


class Stopped(Exception):
    """Nobody waits any more for what was being done."""


@contextmanager
def panics_caught() -> Iterator[None]:
    """Raise a panic of a Rust library (tokenizers) inside as a RuntimeError: by itself it is no Exception."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # pyo3_runtime's, which cannot be imported
            raise
        raise RuntimeError(first_line(error)) from None


def sendable(error: Exception, name: str) -> Exception:
    """The error, or one with its type alone where it cannot be pickled and read again. name: of what raised it."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - what was pickled here
    except Exception:  # noqa: BLE001 - whatever its own code raises
        return RuntimeError(f"{type(error).__name__} in {name}")
    return error


def first_line(error: BaseException) -> str:
    """What a library's error says, cut short; one of ours as it is."""
    words = str(error)
    if isinstance(words, Message):
        return words
    first, *more = words.strip().splitlines() or [type(error).__name__]
    return (f"{first} {more[0].strip()}" if first.endswith(":") and more else first)[:200]


def index(name: str, value: Any, count: int, *, first: int = 0, numbers: Sequence[int] = ()) -> int:
    """A whole number from `first` to count - 1, numpy's too. Raises ValueError, saying so, for anything else. numbers:
    of the layers to choose from, in the network, where they are not 0, 1, 2 …"""
    try:
        several = getattr(value, "ndim", None)  # a tensor [1] has an index too
        found = first - 1 if several or isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = first - 1
    if not first <= found < count:
        raise ValueError(f"expected a {name} from {first} to {last_of(count, numbers)}, got {value!r:.80}")
    return found


def last_of(layers: int, numbers: Sequence[int] = ()) -> int | str:
    """The last of so many layers, to be said as what was expected. numbers: as of `index`."""
    named = ", ".join(map(str, numbers))
    return msg("{last} ({numbers} in the network)", last=layers - 1, numbers=named) if numbers else layers - 1


def items(name: str, given: Any) -> list[Any]:
    """The items of a list, a tuple, an array … Raises ValueError, saying what was expected, for anything else."""
    if not isinstance(given, str | bytes | Mapping):
        with suppress(TypeError):
            return list(given)
    raise ValueError(f"expected {name}, got {given!r:.80}")


def whole_numbers(name: str, given: Any) -> list[int]:
    """The whole numbers in a list, a tuple, an array … Raises ValueError, saying what was expected, for others."""
    found = items(name, given)
    if not all(isinstance(one, Integral) and not isinstance(one, bool) for one in found):
        raise ValueError(f"expected {name}, got {given!r:.80}")
    return list(map(int, found))
