"""Masks as NPY files, and back: a matrix becomes rectangles of a drawing; and masks from other programs, read from an
array, a printed tensor or an NPY file. Sizes: T positions, R real tokens."""

import io
import json
import math
import re
import tokenize
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from i18n import N_, msg
from model.files import npy_header
from model.masks import MaskContext, MaskSpec
from model.spec import MAX_BYTES, MAX_STROKES, OFF, Stroke
from model.trace import Trace

Rectangle = tuple[int, int, int, int]  # first query, first key, last query, last key, the last ones included

UNREADABLE = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, EOFError, tokenize.TokenError)
PICKLED = b"\x80"  # the first byte of a pickle of any protocol since 2
DAMAGED = N_("expected an NPY file, got one that cannot be read: save it again with numpy.save")
NO_NUMBERS = N_("expected an array of numbers or booleans, got {got}")
OF_OBJECTS = msg(
    "expected an array of bool, got one of Python objects, which are pickled and never opened: save mask.astype(bool)"
)


def npy_of(trace: Trace, row: int, masks: MaskSpec, layer: int, head: int) -> bytes:
    """Return the mask of one head of a run as to_npy writes it."""
    return to_npy(trace.allowed(layer, row, masks, head=head))


def to_npy(allowed: Tensor) -> bytes:
    """Return bool [Q,K] as an NPY file, for numpy.load(file, allow_pickle=False)."""
    file = io.BytesIO()
    np.save(file, allowed.cpu().numpy().astype(bool), allow_pickle=False)
    return file.getvalue()


def read_npy(data: bytes) -> np.ndarray:
    """Read the bool matrix in an NPY file, True = may attend. Nothing is unpickled; no memory is allocated for a header
    alone. Raises ValueError, saying what was expected, for everything else."""
    if len(data) > MAX_BYTES:
        raise ValueError(msg("expected an NPY file of at most {most:,} bytes, got {size:,}: cut the mask to fewer "
                             "tokens, or save it as JSON", most=MAX_BYTES, size=len(data)))  # fmt: skip
    if not data.startswith(np.lib.format.MAGIC_PREFIX):
        raise ValueError(_no_npy(data))
    try:
        shape, fortran, dtype, offset = npy_header(data)
    except KeyError as version:
        raise ValueError(msg("expected an NPY file of version 1.0 or 2.0, got {version}: save a plain bool matrix with "
                             "numpy.save", version=".".join(map(str, version.args[0])))) from None  # fmt: skip
    except UNREADABLE:
        raise ValueError(msg(DAMAGED)) from None
    if dtype.hasobject:
        raise ValueError(OF_OBJECTS)
    if dtype != np.bool_:
        raise ValueError(msg("expected an array of bool, True = may attend, got {kind}: the meaning of numbers "
                             "varies, so save mask.astype(bool) if 1 = may "
                             "attend, or mask == 0 for an additive mask", kind=str(dtype)[:40]))  # fmt: skip
    if len(shape) != 2 or min(shape) < 1:
        raise ValueError(msg("expected a matrix, queries by keys, got the shape {shape}: save one head's mask",
                             shape=str(shape)[:60]))  # fmt: skip
    cells = np.frombuffer(data, np.uint8, offset=offset)
    if cells.size != shape[0] * shape[1]:
        raise ValueError(msg("expected {size:,} bytes of cells after the header, got {found:,}: the file is "
                             "incomplete, save it again", size=shape[0] * shape[1], found=cells.size))  # fmt: skip
    if cells.max() > 1:
        template = N_("expected cells that are 0 or 1, got a {cell}: save it again with numpy.save")
        raise ValueError(msg(template, cell=int(cells.max())))
    return cells.astype(bool).reshape(shape, order="F" if fortran else "C")


def spec_from_matrix(cells: np.ndarray, keep: Tensor) -> MaskSpec:
    """Convert a mask to a spec: all masks off, and strokes that block exactly the cells that are False. cells: bool,
    over the T positions of keep or over its R real tokens alone. Padding cannot be drawn on: over the real tokens alone
    it stays masked; over all positions it gets the padding mask that differs least from the cells (see `differing`).
    Raises ValueError for another shape, or more rectangles than a drawing may have."""
    total, real = len(keep), int(keep.sum())
    if cells.shape[0] != cells.shape[1]:
        raise ValueError(msg("expected a square mask, as many queries as keys, got {shape}: save the mask of a text's "
                             "attention to itself", shape=_by(*cells.shape)))  # fmt: skip
    if len(cells) not in (total, real):
        shapes = {"size": _by(real, real), "padded": _by(total, total), "got": _by(*cells.shape)}
        raise ValueError(
            msg("expected a mask of {size} cells, for the tokens of this row, got {got}: load it on the text that it "
                "was made for", **shapes)
            if total == real
            else msg("expected a mask of {size} cells, for the tokens of this row, or {padded} with its padding, got "
                     "{got}: load it on the text that it was made for", **shapes)
        )  # fmt: skip
    here = keep.cpu().numpy()
    blocked = rectangles(~(cells if len(cells) == real else cells[np.ix_(here, here)]))
    if len(blocked) > MAX_STROKES:
        raise ValueError(msg("expected blocked cells that {most:,} rectangles can cover, got {count:,} of them: load a "
                             "mask of fewer tokens, or one whose blocked cells lie together",
                             most=MAX_STROKES, count=len(blocked)))  # fmt: skip
    drawing = OFF.replace(drawn=tuple(Stroke("block", *rectangle) for rectangle in blocked))
    if total == real:
        return drawing
    masked = drawing.replace(padding=True)
    if len(cells) == real:
        return masked
    return min((drawing, masked, masked.replace(padding_queries=True)), key=lambda one: differing(one, cells, keep))


def differing(spec: MaskSpec, cells: np.ndarray, keep: Tensor) -> int:
    """Return how many cells, bool [T,T], differ from spec's on a row with these real tokens, keep bool [T]."""
    return int((MaskContext(keep[None].cpu(), len(keep), 1).allowed_in_row(spec, 0).numpy() != cells).sum())


def rectangles(cells: np.ndarray) -> list[Rectangle]:
    """Return rectangles that cover exactly the True cells: runs along a row, merged where rows below repeat them."""
    edge = np.diff(np.pad(cells.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    found: list[Rectangle] = []
    open_runs: dict[tuple[int, int], int] = {}  # a run's first and last key -> the row that it began in
    for row in range(len(cells) + 1):
        runs = [] if row == len(cells) else runs_of(edge[row])
        ended = open_runs.keys() - set(runs)
        found += [(open_runs[run], run[0], row - 1, run[1]) for run in ended]
        open_runs = {run: open_runs.get(run, row) for run in runs}
    return sorted(found)


def runs_of(edge: np.ndarray) -> list[tuple[int, int]]:
    """Return the first and the last index of each run, from where it begins (1) and where it is over (-1)."""
    return list(zip((edge == 1).nonzero()[0].tolist(), ((edge == -1).nonzero()[0] - 1).tolist(), strict=True))


def strokes_of_rows(allowed: np.ndarray, wrong: np.ndarray) -> Iterator[list[Any]]:
    """Yield a stroke for each run of wrong cells in a row, bool [Q,K], that are all blocked, or all allowed."""
    for query in np.flatnonzero(wrong.any(axis=1)).tolist():
        keys = np.flatnonzero(wrong[query])
        state = allowed[query, keys]
        for run in np.split(np.arange(len(keys)), np.flatnonzero((np.diff(keys) > 1) | np.diff(state)) + 1):
            yield ["open" if state[run[0]] else "block", query, int(keys[run[0]]), query, int(keys[run[-1]])]


def _no_npy(data: bytes) -> str:
    """Return what is wrong with a file that does not begin as an NPY file."""
    if not data:
        return msg("expected an NPY file, got an empty one: save it again with numpy.save")
    if data.startswith(b"PK"):
        return msg("expected an NPY file, got a zip archive: save one matrix with numpy.save, not numpy.savez")
    if data.startswith(PICKLED):
        return msg("expected an NPY file, got a pickle, which is never opened: save the matrix with numpy.save(file, "
                   "mask, allow_pickle=False)")  # fmt: skip
    return msg("expected an NPY file, got something else: save the matrix with numpy.save")


def _by(*sizes: Any) -> str:
    return " × ".join(f"{size:,}" for size in sizes)


# Masks from other programs


MAX_TOKENS = 1_024  # per side
MAX_CELLS = 16 * MAX_TOKENS**2  # of a batch
MAX_PRINTED = 16 * MAX_TOKENS**2  # characters of a printed tensor: "-3.4028e+38, " of each cell, and what is between
MAX_WORDS = 2 * MAX_TOKENS**2  # its cells and brackets
WORD = re.compile(r"[\[\]]|[-+]?(?:inf|nan|\d+(?:\.\d*)?(?:e[-+]?\d+)?|\.\d+)|true|false", re.IGNORECASE)
AFTER = re.compile(r"\]\s*,?\s*(?:dtype|device|grad_fn|requires_grad)\s*=")  # attributes printed after a tensor
SHAPE = re.compile(r"\bSize\(\[[^][]*\]\)")  # printed above a tensor
DIGITS = re.compile(r"\s*(?:[01]+\s+)*[01]+\s*")  # rows without separators between cells
RAGGED = N_("expected rows of equal length")
LARGE = -1_000.0  # an additive mask's blocked cells have at most this: −10,000 of BERT, a dtype's minimum, −∞


def read_mask(given: Any) -> tuple[np.ndarray, bool]:
    """Return bool [Q,K], the first mask of a batch, and whether others of the batch differ from it. given: as name_mask
    takes it. Raises ValueError, saying what was expected, for anything else."""
    array = _array(given)
    if 0 in array.shape:
        raise ValueError(msg("expected a mask with cells in it, got none"))
    if not 2 <= array.ndim <= 4:
        raise ValueError(msg("expected a mask of 2 to 4 dimensions, got {count}", count=array.ndim))
    if max(array.shape[-2:]) > MAX_TOKENS or array.size > MAX_CELLS:
        shape = " × ".join(map(str, array.shape))
        raise ValueError(msg("expected at most {most:,} queries and keys, got {shape}", most=MAX_TOKENS, shape=shape))
    masks = _allowed(array).reshape(-1, *array.shape[-2:])
    if masks.shape[1] > masks.shape[2]:
        sizes = {"queries": masks.shape[1], "keys": masks.shape[2]}
        template = N_("expected at least as many keys as queries, got {queries} queries and {keys} keys")
        raise ValueError(msg(template, **sizes))
    return masks[0], bool((masks != masks[0]).any())


def _numbers_in(file: bytes) -> np.ndarray:
    if not file.startswith(np.lib.format.MAGIC_PREFIX):
        raise ValueError(_no_npy(file))
    try:
        shape, _, dtype, _ = npy_header(file)
        if dtype.kind in "biuf" and math.prod(shape) <= MAX_CELLS:
            return np.asarray(np.load(io.BytesIO(file), allow_pickle=False))
    except Exception:  # noqa: BLE001  # numpy's parser raises many kinds
        raise ValueError(msg(DAMAGED)) from None
    if dtype.hasobject:
        raise ValueError(OF_OBJECTS)
    if dtype.kind not in "biuf":
        raise ValueError(msg(NO_NUMBERS, got=str(dtype)[:40]))
    raise ValueError(msg("expected an NPY file of at most {most:,} numbers", most=MAX_CELLS))


def _array(given: Any) -> np.ndarray:
    if isinstance(given, bytes):
        return _numbers_in(given)
    if isinstance(given, str):
        return _printed(given)
    if isinstance(given, Tensor):
        return (given if given.dtype == torch.bool else given.double()).detach().cpu().numpy()
    try:
        array = np.asarray(given)
    except ValueError:
        raise ValueError(msg(RAGGED)) from None
    if array.dtype.kind not in "biuf":
        got = getattr(given, "dtype", type(given).__name__)
        raise ValueError(msg(NO_NUMBERS, got=str(got)))
    return array


def _printed(text: str) -> np.ndarray:
    """Parse a tensor as PyTorch or NumPy prints it, or bare rows of numbers."""
    if len(text) > MAX_PRINTED:
        raise ValueError(msg("expected at most {most:,} characters", most=MAX_PRINTED))
    if "..." in text or "…" in text:
        template = N_('expected every cell, got “...”: print the tensor after torch.set_printoptions(profile="full")')
        raise ValueError(msg(template))
    # drop runs of spaces and empty lines, which would take the patterns below quadratic time
    text = "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip())
    text = SHAPE.sub("", text).replace("−", "-").replace("∞", "inf")
    end = AFTER.search(text)
    text = text[: end.start() + 1] if end else text
    if "[" not in text:
        digits = len(text) <= 2 * MAX_WORDS and DIGITS.fullmatch(text) is not None  # more would take a gigabyte
        lines = [" ".join(line.replace(" ", "")) if digits else line for line in text.splitlines()]
        rows = [f"[{line}]" for line in lines]
        text = "".join(rows) if len(rows) == 1 else f"[{''.join(rows)}]"
    text = text[text.index("[") : text.rfind("]") + 1]
    found = [word.group() for word in islice(WORD.finditer(text), MAX_WORDS + 1)]
    if len(found) > MAX_WORDS:
        raise ValueError(msg("expected a printed tensor of at most {most:,} cells", most=MAX_TOKENS**2))
    try:
        parts = (word if word in "[]" else json.dumps(_value(word)) for word in found)
        rows = json.loads(",".join(parts).replace("[,", "[").replace(",]", "]"))
    except (ValueError, RecursionError):
        raise ValueError(msg("expected a printed tensor: every bracket closed")) from None
    try:
        array = np.array(rows)
    except ValueError:
        raise ValueError(msg(RAGGED)) from None
    if array.dtype.kind not in "bif":
        raise ValueError(msg("expected a printed tensor of numbers or booleans"))
    return array


def _value(word: str) -> bool | int | float:
    lower = word.lower()
    if lower in ("true", "false"):
        return lower == "true"
    return int(word) if word.lstrip("+-").isdigit() else float(word)


def _allowed(array: np.ndarray) -> np.ndarray:
    """Return bool, True = may attend. Zeros alone block everything as integers, and nothing as floats added to
    scores."""
    if array.dtype.kind == "b":
        return array
    values = np.unique(array)
    zero: np.ndarray = array == 0
    if np.isin(values, (0, 1)).all() and not (array.dtype.kind == "f" and not values.any()):
        return ~zero
    if np.isin(values[values > LARGE], (0,)).all() and not np.isnan(values).any():
        return zero
    strange = [value for value in values if not (value <= LARGE or value in (0, 1)) or np.isnan(value)][:1]
    got = ", ".join(f"{value:.4g}" for value in strange or values[[0, -1]])  # or one of each kind
    raise ValueError(msg("expected 0 and 1, True and False, or 0 and −∞, got {value}", value=got))
