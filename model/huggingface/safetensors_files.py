"""What the header of a safetensors file says of its weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from i18n import N_, msg
from model.errors import CheckpointError

WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}  # bytes of a number; of other types 1
FOUR_BITS = "NF4", "FP4"
DAMAGED = N_("{model}: {file} is damaged or truncated ({why}). Delete it and fetch it again.")


def stored(name: str, path: Path) -> str:
    """The type of a file's weights; of 4 bits, bitsandbytes' own. Raises CheckpointError for a truncated file."""
    with _opened(name, path) as file:
        for packed in FOUR_BITS:  # in the name of what describes a weight, by which it is read whatever the config says
            if any(key.endswith(f".bitsandbytes__{packed.lower()}") for key in file.keys()):  # noqa: SIM118 - not a dict
                return packed
        first = next(iter(file.keys()), None)
        return "F32" if first is None else file.get_slice(first).get_dtype()


def numbers(name: str, path: Path) -> int:
    """How many numbers a file holds. bitsandbytes keeps a weight of 4 bits as one column, two numbers to a byte. Raises
    CheckpointError for a truncated file."""
    with _opened(name, path) as file:
        parts = [file.get_slice(key) for key in file.keys()]  # noqa: SIM118 - not a dict
        sizes = [(part.get_shape(), WIDTHS.get(part.get_dtype(), 1)) for part in parts]
        return sum(prod(shape) * (2 * width if shape[1:] == [1] else 1) for shape, width in sizes)


@contextmanager
def _opened(name: str, path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise CheckpointError(msg(DAMAGED, model=name, file=path.name, why=error)) from None
