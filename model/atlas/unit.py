"""One unit of texts, measured: batches of rows of like length, and which of their queries enter the sample.

Pure: the same model, unit and masks give the same tally, so units may be measured anywhere and in any order.
"""

import unicodedata
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch

from i18n import N_, msg
from model.atlas.batch import measure_batch
from model.atlas.result import NAMES
from model.atlas.tally import SAMPLED, Tally
from model.atlas.texts import TokenRow, Unit, batch_of, rows_of_unit
from model.base import Model
from model.mask_kinds import KINDS
from model.masks import MaskSpec

LONGEST_ROW = 256  # tokens, unless told otherwise
BATCH_TOKENS = 2048
NO_BAR = 2**64 - 1
SHOWN_SPACES = "·⏎⇥␡▁"  # what a label has for white space


def empty_tally(model: Model, length: int) -> Tally:
    """Of no text."""
    return Tally.empty(len(NAMES), model.num_layers, model.num_heads, length)


def row_length(model: Model, length: int = LONGEST_ROW) -> int:
    """The longest row that is read of a text."""
    return min(length, model.context)


def check(model: Model, masks: MaskSpec) -> None:
    """Raises ValueError for what an atlas is not made of."""
    if model.kind == "encoder-decoder":
        words = N_(
            "{model} is an encoder-decoder, and an atlas is for models whose tokens attend to one text: choose a "
            "decoder or an encoder"
        )
        raise ValueError(msg(words, model=model.name))
    if masks.heads or masks.layers or not masks.padding:
        raise ValueError("expected masks of all layers and heads, padding among them, got others")  # not shown


@torch.inference_mode()
def measure_unit(model: Model, unit: Unit, masks: MaskSpec, length: int, bar: int = NO_BAR) -> Tally:
    """bar: the sample needs no query of a higher priority.

    Raises what `check` and running the model raise.
    """
    check(model, masks)
    rows = [row for row in rows_of_unit(model, unit, length) if len(row.ids) > 1]  # one token has nowhere to look
    tally = empty_tally(model, length)
    opened = masks.drawn or any(KINDS[name].opens for name in masks.on() if not KINDS[name].sized)
    first = int(masks.causal and not opened)  # under a causal mask that nothing opens, the first token has no choice
    chosen = sampled(rows, unit, first, bar)
    tokens = {token for row in rows for token in row.ids}
    is_punctuation = {0: False} | {token: only_punctuation(model.label(token)) for token in tokens}
    for some in batches(rows):
        here = np.flatnonzero(np.isin(chosen["row"], some))
        place_of = {number: place for place, number in enumerate(some)}
        batch = batch_of([rows[number] for number in some])
        ids, places_of_ids = batch.ids.unique(return_inverse=True)
        punctuation = torch.tensor([is_punctuation[token] for token in ids.tolist()])[places_of_ids]
        places = [(place_of[number], at) for number, at in chosen[["row", "at"]][here].tolist()]
        where = torch.tensor(places, dtype=torch.long).reshape(-1, 2)
        part, sample = measure_batch(model, batch, punctuation, masks, length, where)
        picked = [rows[number] for number in chosen["row"][here]]
        sources, numbers = np.full(len(here), unit.source), [unit.first + row.number for row in picked]
        sample.priority = chosen["priority"][here]
        sample.place = np.stack([sources, np.array(numbers, np.int64), chosen["at"][here]], -1)
        sample.texts, sample.ids = [row.text for row in picked], [row.ids for row in picked]
        part.sample = sample
        tally.add(part)
    tally.texts, tally.rows = len(unit), len(rows)
    tally.read = sum(len(row.ids) for row in rows)
    return tally


def sampled(rows: list[TokenRow], unit: Unit, first: int = 1, bar: int = NO_BAR) -> np.ndarray:
    """The unit's queries of the smallest priorities, as records of row, at (its position, from `first` on) and
    priority."""
    records = np.zeros(sum(len(row.ids) - first for row in rows), [("row", "i8"), ("at", "i8"), ("priority", "u8")])
    begin = 0
    for number, row in enumerate(rows):
        here = records[begin : begin + len(row.ids) - first]
        here["row"], here["at"] = number, np.arange(first, len(row.ids))
        begin += len(here)
    records["priority"] = priorities(unit, records["row"], records["at"])
    records = records[records["priority"] <= np.uint64(bar)]
    return records[np.argsort(records["priority"], kind="stable")[:SAMPLED]]


def priorities(unit: Unit, row: np.ndarray, at: np.ndarray) -> np.ndarray:
    """uint64, as if drawn by chance, of positions `at` in rows `row` of the unit: a hash of the place."""
    state = np.full(len(row), 0, np.uint64)
    for part in (np.full(len(row), unit.source), np.full(len(row), unit.number), row, at):
        state = state ^ part.astype(np.uint64)
        with np.errstate(over="ignore"):  # splitmix64 (Steele et al. 2014, "Fast splittable … number generators")
            state = state + np.uint64(0x9E3779B97F4A7C15)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state


@lru_cache(maxsize=2**16)
def only_punctuation(label: str) -> bool:
    """Whether a token is punctuation and nothing else, white space aside."""
    bare = label.strip(SHOWN_SPACES).strip()
    return bool(bare) and all(unicodedata.category(character).startswith("P") for character in bare)


def batches(rows: list[TokenRow]) -> Iterator[list[int]]:
    """The rows' numbers by rising length, as many at a time as BATCH_TOKENS allow."""
    some: list[int] = []
    for number in sorted(range(len(rows)), key=lambda number: len(rows[number].ids)):
        if some and (len(some) + 1) * len(rows[number].ids) > BATCH_TOKENS:
            yield some
            some = []
        some.append(number)
    if some:
        yield some
