"""What is drawn of results, remembered beside them: a rerun draws only what it has not drawn before."""

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from typing import Any, ParamSpec, TypeVar
from weakref import ref

import numpy as np
import torch

from ui import results

P = ParamSpec("P")
Picture = TypeVar("Picture")


def cached_figure(make: Callable[P, Picture], *arguments: P.args, **named: P.kwargs) -> Picture:
    """make(*arguments, **named), remembered for everybody in the process.

    make: a function of a module that depends on its arguments and the reader's language alone: pictures, tables and
    sentences are. Arguments are compared by what they hold, arrays by where they lie in memory: those of results are
    read-only and stay there, parts of them included. Of an array that is made anew at every rerun the picture is too:
    remember the array first.
    """
    key = (make, _key(arguments), _key(named))
    return results.kept(key, lambda: make(*arguments, **named))


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


def _owner(array: np.ndarray) -> Any:
    """What holds the array's memory: of parts of it the whole, of torch's numbers their storage."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.base.untyped_storage() if isinstance(array.base, torch.Tensor) else array


class _Memory:
    """An array as a key: equal to what shows the same memory in the same way, for as long as that memory is held.

    Holds nothing itself: in memory is the picture alone, whether or not the result it was drawn of is still kept.
    """

    def __init__(self, array: np.ndarray) -> None:
        self._owner = ref(_owner(array))
        self._where = array.ctypes.data, array.shape, array.strides, array.dtype.str

    def __hash__(self) -> int:
        return hash(self._where)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Memory) or self._where != other._where:
            return False
        owner = self._owner()
        return owner is not None and owner is other._owner()  # else other numbers have come to lie there
