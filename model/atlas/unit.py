"""The units of an atlas, a few texts each, from .txt and .csv files, a text in memory, or random repeated tokens; and
the measurement of one unit: batches of rows of similar length, and which of their queries enter the sample.

A text is a line of a .txt file, or a cell of a .csv file's column "text" (its first line names its columns). Files are
read as needed, so one may be larger than memory. The same model, unit and masks give the same tally, so units may be
measured anywhere and in any order.
"""

import csv
import io
import random
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TextIO

import numpy as np
import torch

from i18n import N_, msg, msg_all
from model.atlas.batch import measure_batch
from model.atlas.result import NAMES
from model.atlas.tally import SAMPLED, Tally
from model.base import Model
from model.mask_kinds import KINDS
from model.masks import MaskSpec
from model.text import TokenBatch, padded, shortened

UNIT_TEXTS, UNIT_CHARACTERS = 32, 20_000  # at most, so that a unit takes seconds, not minutes
LONGEST = UNIT_CHARACTERS  # characters of a text; a longer one counts as several, cut after a space
MAX_UPLOAD = 2_000_000  # bytes of an uploaded file
csv.field_size_limit(max(csv.field_size_limit(), MAX_UPLOAD))  # of Python's module: default 131,072 characters a cell
SUFFIXES = (".txt", ".csv")
RANDOM_ROWS, RANDOM_SPAN, RANDOM_SEED = 16, 50, 0  # as in the story model's card
SAMPLE = Path(__file__).with_name("sample.txt")


@dataclass(frozen=True)
class Unit:
    """Some consecutive texts of one source. source, number: which one, and which of its units; first: the number of the
    first text. All count from 0. rows: ids instead of texts, for data that was never text."""

    source: int
    number: int
    first: int = 0
    texts: tuple[str, ...] = ()
    rows: tuple[tuple[int, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.texts) or len(self.rows)


def units_of_files(paths: list[Path]) -> Iterator[Unit]:
    """Yield all their texts, in order. Raises ValueError for a file that is no readable text, OSError for a missing
    one."""
    for source, path in enumerate(paths):
        kind = suffix_of(path.name)
        with path.open("r", encoding="utf-8-sig", newline="") as file:
            yield from in_units(_texts(file, kind, path.name), source)


def units_of_upload(name: str, data: bytes) -> list[Unit]:
    """Return the units of an uploaded file. Raises ValueError for one that is too large, is not text or has none."""
    if len(data) > MAX_UPLOAD:
        template = N_("{file}: expected a file of at most {most:.0f} MB, got {size:.1f} MB")
        raise ValueError(msg(template, file=name, most=MAX_UPLOAD / 1e6, size=len(data) / 1e6))
    kind = suffix_of(name)
    with io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline="") as file:
        units = list(in_units(_texts(file, kind, name)))
    if not units:
        raise ValueError(msg("{file}: expected a text in it, found none", file=name))
    return units


def units_of_text(text: str) -> list[Unit]:
    """Return the units of a typed text, one row a line. Raises ValueError for a blank text."""
    units = list(in_units(_lines(io.StringIO(text), msg("the text"))))
    if not units:
        raise ValueError(msg("expected a text, got none"))
    return units


def units_of_sample() -> list[Unit]:
    """Return the units of the bundled sample: short texts of many kinds."""
    return list(units_of_files([SAMPLE]))


def units_of_random(model: Model) -> list[Unit]:
    """Return rows of different random tokens, repeated once, after the tokens that the model begins every text with:
    the test for induction heads (Olsson et al. 2022)."""
    encoded = [tuple(model.encode([text]).ids[0].tolist()) for unit in units_of_sample() for text in unit.texts]
    begin = _common(encoded)
    special = {*encoded[0][:begin], *encoded[0][len(encoded[0]) - _common([ids[::-1] for ids in encoded]) :]}
    ordinary = [token for token in range(model.vocabulary) if token not in special]
    span = min(RANDOM_SPAN, (model.context - begin) // 2, len(ordinary))
    chance = random.Random(RANDOM_SEED)
    spans = [chance.sample(ordinary, span) for _ in range(RANDOM_ROWS)]
    return [Unit(0, 0, rows=tuple((*encoded[0][:begin], *some, *some) for some in spans))]


def in_units(texts: Iterator[str], source: int = 0) -> Iterator[Unit]:
    """Group texts in order into units of at most UNIT_TEXTS texts and UNIT_CHARACTERS characters."""
    number = first = characters = 0
    some: list[str] = []
    for text in texts:
        if some and (len(some) == UNIT_TEXTS or characters + len(text) > UNIT_CHARACTERS):
            yield Unit(source, number, first, tuple(some))
            number, first = number + 1, first + len(some)
            some, characters = [], 0
        some.append(text)
        characters += len(text)
    if some:
        yield Unit(source, number, first, tuple(some))


def suffix_of(name: str) -> str:
    """Return ".txt" or ".csv". Raises ValueError for another kind of file."""
    kind = Path(name).suffix.lower()
    if kind not in SUFFIXES:
        endings = msg_all(SUFFIXES, last="or")
        raise ValueError(msg("{file}: expected a file whose name ends in {endings}", file=name, endings=endings))
    return kind


@dataclass(frozen=True)
class TokenRow:
    """One row that a model reads: its ids, the part of a text that they cover, and where in that each ends. number: of
    its text in the unit."""

    number: int
    ids: tuple[int, ...]
    text: str
    ends: tuple[int, ...]


def rows_of_unit(model: Model, unit: Unit, length: int) -> Iterator[TokenRow]:
    """Yield the unit's texts as rows of at most `length` tokens, as the model reads texts; a long one is several."""
    for number, ids in enumerate(unit.rows):
        yield TokenRow(number, ids[:length], "", (0,) * min(len(ids), length))
    for number, rest in enumerate(unit.texts):
        while rest.strip():
            part = shortened(rest, length, model.encode)
            batch = model.encode([part])
            ids, ends = tuple(batch.ids[0, :length].tolist()), batch.ends[0][:length]
            if batch.ids.shape[1] > length or batch.cut[0]:  # not even its first character fits as a whole
                part = rest[: ends[-1]] or rest
            yield TokenRow(number, ids, part, ends)
            rest = rest[len(part) :]


def batch_of(rows: list[TokenRow]) -> TokenBatch:
    """Pad rows on the right. Padding is id 0, which every mask blocks."""
    ids, keep = padded([row.ids for row in rows], 0)
    ends = tuple((*row.ends, *row.ends[-1:] * (ids.shape[1] - len(row.ends))) for row in rows)
    return TokenBatch(ids, keep, tuple(() for _ in rows), texts=tuple(row.text for row in rows), ends=ends)


def _texts(file: TextIO, kind: str, name: str) -> Iterator[str]:
    try:
        yield from (_cells(file, name) if kind == ".csv" else _lines(file, name))
    except UnicodeDecodeError as error:
        template = N_("{file}: expected text in UTF-8, got invalid bytes ({why})")
        raise ValueError(msg(template, file=name, why=error.reason)) from None
    except csv.Error as error:
        template = N_("{file}: expected a table in CSV, got one that cannot be read ({why})")
        raise ValueError(msg(template, file=name, why=error)) from None


def _lines(file: TextIO, name: str) -> Iterator[str]:
    rest = ""  # the rest of a line that is too long
    while line := rest + file.readline(LONGEST + 1 - len(rest)):
        if "\0" in line:
            raise ValueError(msg("{file}: expected text, got a file with zero bytes in it", file=name))
        end = _end(line) if len(line.rstrip("\r\n")) > LONGEST else len(line)
        yield from (part for part in line[:end].splitlines() if part.strip())
        rest = line[end:]


def _cells(file: TextIO, name: str) -> Iterator[str]:
    rows = csv.reader(file)
    names = [cell.strip() for cell in next(filter(any, rows), ["text"])]  # the first line that is not empty
    column = next((at for at, one in enumerate(names) if one.lower() == "text"), None)
    if column is None:
        template = N_("{file}: expected a column named text in the first line, got {columns}")
        raise ValueError(msg(template, file=name, columns=", ".join(names)[:80]))
    for row in rows:
        cell = " ".join(row[column].split()) if column < len(row) else ""
        if "\0" in cell:
            raise ValueError(msg("{file}: expected text, got a file with zero bytes in it", file=name))
        while cell:
            end = _end(cell)
            yield cell[:end]
            cell = cell[end:]


def _end(text: str) -> int:
    """Return the length of the first text in it: at most LONGEST, up to a space if that leaves some out."""
    return len(text) if len(text) <= LONGEST else text.rfind(" ", 0, LONGEST) + 1 or LONGEST


def _common(encoded: list[tuple[int, ...]]) -> int:
    """Return how many ids all of them begin with."""
    shortest = min(map(len, encoded))
    return next((index for index in range(shortest) if len({ids[index] for ids in encoded}) > 1), shortest)


LONGEST_ROW = 256  # tokens, by default
BATCH_TOKENS = 2048
NO_BAR = 2**64 - 1
SHOWN_SPACES = "·⏎⇥␡▁"  # what labels show for white space


def empty_tally(model: Model, length: int) -> Tally:
    return Tally.empty(len(NAMES), model.num_layers, model.num_heads, length)


def row_length(model: Model, length: int = LONGEST_ROW) -> int:
    """Return the maximum length of a row."""
    return min(length, model.context)


def check(model: Model, masks: MaskSpec) -> None:
    """Raise ValueError if no atlas can be made."""
    if model.kind == "encoder-decoder":
        template = N_(
            "{model} is an encoder-decoder, and an atlas is for models whose tokens attend to one text: choose a "
            "decoder or an encoder"
        )
        raise ValueError(msg(template, model=model.name))
    if masks.heads or masks.layers or not masks.padding:
        raise ValueError("expected masks of all layers and heads, padding among them, got others")  # not shown


@torch.inference_mode()
def measure_unit(model: Model, unit: Unit, masks: MaskSpec, length: int, bar: int = NO_BAR) -> Tally:
    """Measure a unit. bar: the largest priority that the sample needs. Raises as `check` and running the model."""
    check(model, masks)
    rows = [row for row in rows_of_unit(model, unit, length) if len(row.ids) > 1]  # one token has no choice
    tally = empty_tally(model, length)
    opened = masks.drawn or any(KINDS[name].opens for name in masks.on() if not KINDS[name].sized)
    first = int(masks.causal and not opened)  # under a causal mask that nothing opens, the first token has no choice
    chosen = sampled(rows, unit, first, bar)
    tokens = {token for row in rows for token in row.ids}
    is_punctuation = {0: False} | {token: only_punctuation(model.label(token)) for token in tokens}
    for some in batches(rows):
        here = np.flatnonzero(np.isin(chosen["row"], some))
        row_of = {number: row for row, number in enumerate(some)}
        batch = batch_of([rows[number] for number in some])
        ids, inverse = batch.ids.unique(return_inverse=True)
        punctuation = torch.tensor([is_punctuation[token] for token in ids.tolist()])[inverse]
        queries = [(row_of[number], at) for number, at in chosen[["row", "at"]][here].tolist()]
        where = torch.tensor(queries, dtype=torch.long).reshape(-1, 2)
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
    """Return the unit's queries of the smallest priorities, as records of row, at (its position, from `first` on) and
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
    """Return pseudorandom uint64 priorities of positions `at` in rows `row` of the unit: a hash of each."""
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
    """Whether a token is only punctuation, white space aside."""
    bare = label.strip(SHOWN_SPACES).strip()
    return bool(bare) and all(unicodedata.category(character).startswith("P") for character in bare)


def batches(rows: list[TokenRow]) -> Iterator[list[int]]:
    """Yield the rows' indices by increasing length, as many at a time as BATCH_TOKENS allow."""
    some: list[int] = []
    for number in sorted(range(len(rows)), key=lambda number: len(rows[number].ids)):
        if some and (len(some) + 1) * len(rows[number].ids) > BATCH_TOKENS:
            yield some
            some = []
        some.append(number)
    if some:
        yield some
