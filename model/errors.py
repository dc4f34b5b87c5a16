"""Errors about a requested model, and argument checks. Each message is a sentence for the user, with a next step."""

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
    """A model whose attention cannot be shown correctly; the message says why."""


class TooLarge(CheckpointError):
    """A model whose weights exceed the limit, or the available memory."""


class NotAvailable(OSError):
    """A repository whose files cannot be downloaded; the message says why and what to do."""


class Stopped(Exception):
    """A stop of a computation whose result is no longer needed."""


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
    """Return the error, or one with only its type's name if it cannot be pickled and unpickled. name: its origin's."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - pickled in this line
    except Exception:  # noqa: BLE001 - its own code may raise anything
        return RuntimeError(f"{type(error).__name__} in {name}")
    return error


def first_line(error: BaseException) -> str:
    """Return a library's error message, cut to its first line; a message of ours is returned unchanged."""
    text = str(error)
    if isinstance(text, Message):
        return text
    first, *more = text.strip().splitlines() or [type(error).__name__]
    return (f"{first} {more[0].strip()}" if first.endswith(":") and more else first)[:200]


def index(name: str, value: Any, count: int, *, first: int = 0, numbers: Sequence[int] = ()) -> int:
    """Return value if it is an integer from `first` to count - 1, NumPy's included. Raises ValueError, saying so, for
    anything else. numbers: the layers' numbers in the network, if they are not 0, 1, 2 …"""
    try:
        several = getattr(value, "ndim", None)  # a tensor of shape [1] supports index, too
        found = first - 1 if several or isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = first - 1
    if not first <= found < count:
        raise ValueError(f"expected a {name} from {first} to {last_of(count, numbers)}, got {value!r:.80}")
    return found


def last_of(layers: int, numbers: Sequence[int] = ()) -> int | str:
    """Return the last of `layers` layers, for a message about what was expected. numbers: as in `index`."""
    named = ", ".join(map(str, numbers))
    return msg("{last} ({numbers} in the network)", last=layers - 1, numbers=named) if numbers else layers - 1


def items(name: str, given: Any) -> list[Any]:
    """Return the items of a list, a tuple, an array … Raises ValueError, saying what was expected, otherwise."""
    if not isinstance(given, str | bytes | Mapping):
        with suppress(TypeError):
            return list(given)
    raise ValueError(f"expected {name}, got {given!r:.80}")


def whole_numbers(name: str, given: Any) -> list[int]:
    """Return the integers in a list, a tuple, an array … Raises ValueError, saying what was expected, for others."""
    found = items(name, given)
    if not all(isinstance(one, Integral) and not isinstance(one, bool) for one in found):
        raise ValueError(f"expected {name}, got {given!r:.80}")
    return list(map(int, found))
