"""A mask written by somebody else, read from an array, a printed tensor or an NPY file: bool, True = may attend."""

import io
import json
import math
import re
from typing import Any

import numpy as np
import torch

from i18n import N_, msg
from model.files import npy_header

MOST_TOKENS = 1_024  # of each side
MOST_CELLS = 16 * MOST_TOKENS**2  # of a batch
MOST_BYTES = 64_000_000  # of a printed tensor or an NPY file
WORD = re.compile(r"[\[\]]|[-+]?(?:inf|nan|\d+(?:\.\d*)?(?:e[-+]?\d+)?|\.\d+)|true|false", re.IGNORECASE)
AFTER = re.compile(r"\]\s*,?\s*(?:dtype|device|grad_fn|requires_grad)\s*=")  # what a printed tensor says of itself
SHAPE = re.compile(r"\bSize\(\[.*?\]\)")  # printed above a tensor
DIGITS = re.compile(r"\s*(?:[01]+\s+)*[01]+\s*")  # rows without anything between their cells
RAGGED = N_("expected rows of equal length")
LARGE = -1_000.0  # what is added to a blocked score is at most this: −10,000 of BERT, a dtype's minimum, −∞


def read_mask(given: Any) -> tuple[np.ndarray, bool]:
    """bool [Q,K], the first mask of a batch, and whether others of the batch differ from it.

    given: an array or tensor of 2 to 4 dimensions, a printed one, or the bytes of an NPY file: 0 and 1 or booleans with
    True = may attend, or what is added to the scores, 0 and −∞ or a dtype's minimum. Raises ValueError, saying what was
    expected, for anything else.
    """
    array = _array(given)
    if 0 in array.shape:
        raise ValueError(msg("expected a mask with cells in it, got none"))
    if not 2 <= array.ndim <= 4:
        raise ValueError(msg("expected a mask of 2 to 4 dimensions, got {count}", count=array.ndim))
    if max(array.shape[-2:]) > MOST_TOKENS or array.size > MOST_CELLS:
        shape = " × ".join(map(str, array.shape))
        raise ValueError(msg("expected at most {most:,} queries and keys, got {shape}", most=MOST_TOKENS, shape=shape))
    masks = _allowed(array).reshape(-1, *array.shape[-2:])
    if masks.shape[1] > masks.shape[2]:
        sizes = {"queries": masks.shape[1], "keys": masks.shape[2]}
        raise ValueError(
            msg("expected at least as many keys as queries, got {queries} queries and {keys} keys", **sizes)
        )
    return masks[0], bool((masks != masks[0]).any())


def _array(given: Any) -> np.ndarray:
    if isinstance(given, bytes):
        return _from_npy(given)
    if isinstance(given, str):
        return _printed(given)
    if isinstance(given, torch.Tensor):
        return (given if given.dtype == torch.bool else given.double()).detach().cpu().numpy()
    try:
        array = np.asarray(given)
    except ValueError:
        raise ValueError(msg(RAGGED)) from None
    if array.dtype.kind not in "biuf":
        got = getattr(given, "dtype", type(given).__name__)
        raise ValueError(msg("expected an array of numbers or booleans, got {got}", got=str(got)))
    return array


def _from_npy(data: bytes) -> np.ndarray:
    try:
        header = npy_header(data)
        if header.dtype.kind not in "biuf" or math.prod(header.shape) > MOST_CELLS:
            raise ValueError
        array: np.ndarray = np.load(io.BytesIO(data), allow_pickle=False)
    except Exception:  # noqa: BLE001  # numpy's parser raises many kinds
        raise ValueError(msg("expected an NPY file of at most {most:,} numbers", most=MOST_CELLS)) from None
    return array


def _printed(text: str) -> np.ndarray:
    """A tensor as PyTorch or NumPy prints it, or bare rows of numbers."""
    if len(text) > MOST_BYTES:
        raise ValueError(msg("expected at most {most:,} characters", most=MOST_BYTES))
    if "..." in text or "…" in text:
        raise ValueError(
            msg('expected every cell, got “...”: print the tensor after torch.set_printoptions(profile="full")')
        )
    text = SHAPE.sub("", text).replace("−", "-").replace("∞", "inf")
    end = AFTER.search(text)
    text = text[: end.start() + 1] if end else text
    if "[" not in text:
        text = re.sub(r"(?<=[01])(?=[01])", " ", text) if DIGITS.fullmatch(text) else text
        rows = [f"[{line}]" for line in text.splitlines() if line.strip()]
        text = "".join(rows) if len(rows) == 1 else f"[{''.join(rows)}]"
    array = np.array(_nested(text[text.index("[") : text.rfind("]") + 1]))
    if array.dtype.kind not in "bif":
        raise ValueError(msg("expected a printed tensor of numbers or booleans"))
    return array


def _nested(text: str) -> list[Any]:
    """Lists of lists of numbers. Raises ValueError where brackets do not match, and for rows of different lengths."""
    words = (word if word in "[]" else json.dumps(_value(word)) for word in WORD.findall(text))
    try:
        rows: list[Any] = json.loads(",".join(words).replace("[,", "[").replace(",]", "]"))
    except (ValueError, RecursionError):
        raise ValueError(msg("expected a printed tensor: every bracket closed")) from None
    try:
        np.array(rows)
    except ValueError:
        raise ValueError(msg(RAGGED)) from None
    return rows


def _value(word: str) -> bool | int | float:
    lower = word.lower()
    if lower in ("true", "false"):
        return lower == "true"
    return int(word) if word.lstrip("+-").isdigit() else float(word)


def _allowed(array: np.ndarray) -> np.ndarray:
    """True = may attend. Zeros alone block everything as whole numbers, and nothing as what is added to scores."""
    if array.dtype.kind == "b":
        return array
    values = np.unique(array)
    zero: np.ndarray = array == 0
    if np.isin(values, (0, 1)).all() and not (array.dtype.kind == "f" and not values.any()):
        return ~zero
    if np.isin(values[values > LARGE], (0,)).all() and not np.isnan(values).any():
        return zero
    strange = [value for value in values if not (value <= LARGE or value in (0, 1)) or np.isnan(value)][:1]
    got = ", ".join(f"{value:.4g}" for value in strange or values[[0, -1]])  # of both kinds
    raise ValueError(msg("expected 0 and 1, True and False, or 0 and −∞, got {value}", value=got))
