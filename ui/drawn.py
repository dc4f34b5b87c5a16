"""What is drawn of results, remembered beside them: a rerun draws only what it has not drawn before."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ui import results

P = ParamSpec("P")
Picture = TypeVar("Picture")


def drawn(make: Callable[P, Picture], *arguments: P.args, **named: P.kwargs) -> Picture:
    """make(*arguments, **named), remembered for everybody in the process.

    make: a function of a module that depends on its arguments alone: pictures, tables and sentences are. Arguments are
    compared by what they hold, arrays by where they lie in memory: those of results are read-only and stay there, parts
    of them included. An array that is made anew at every rerun is drawn anew, and fills the memory: remember it first.
    """
    key = (make, _key(arguments), _key(named))
    return results.shared().get(key, lambda: make(*arguments, **named))


def _key(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):
        return _Memory(value)
    if isinstance(value, dict):
        return tuple((name, _key(one)) for name, one in value.items())
    if isinstance(value, list | tuple):
        return tuple(value) if all(type(one) is str for one in value) else tuple(map(_key, value))  # labels are many
    if is_dataclass(value) and not isinstance(value, type):
        return type(value), *(_key(getattr(value, field.name)) for field in fields(value))
    return value if value == value else "NaN"  # which equals nothing, not even itself


@dataclass(frozen=True, eq=False)
class _Memory:
    """An array as a key: equal to what shows the same memory in the same way. Holds it, so that it stays there."""

    array: np.ndarray

    def _where(self) -> tuple[Any, ...]:
        array = self.array
        return array.ctypes.data, array.shape, array.strides, array.dtype.str

    def __hash__(self) -> int:
        return hash(self._where())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Memory) and self._where() == other._where()
