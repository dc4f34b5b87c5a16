"""The texts of an atlas, a few at a time: from .txt and .csv files, a text in memory, or random repeated tokens.

A text is a line of a .txt file, or a cell of a .csv file's column "text" (of its first column where none is called so;
a .csv file's first line names its columns).
Everything is read as it is needed, so a file may be larger than memory. Texts come in units, which are measured, saved
and spread over a cluster as a whole.
"""

import csv
import io
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from i18n import N_, msg, msg_all
from model.base import Model
from model.text import TokenBatch, padded

UNIT_TEXTS, UNIT_CHARACTERS = 32, 20_000  # at most, so that one takes seconds, not minutes
LONGEST = UNIT_CHARACTERS  # characters of a text; what is longer counts as several
MOST_UPLOAD = 2_000_000  # bytes of a file that a page takes
SUFFIXES = (".txt", ".csv")
RANDOM_ROWS, RANDOM_SPAN = 16, 50  # as the story model's card has them
SAMPLE = Path(__file__).with_name("sample.txt")


@dataclass(frozen=True)
class Unit:
    """Some consecutive texts of one source. source, number: which, and which of its units; first: the number of the
    first text. All count from 0. rows: ids instead of texts, for what was never a text.
    """

    source: int
    number: int
    first: int = 0
    texts: tuple[str, ...] = ()
    rows: tuple[tuple[int, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.texts) or len(self.rows)


def units_of_files(paths: list[Path]) -> Iterator[Unit]:
    """All their texts, in order. Raises ValueError for a file that holds none, OSError for one that is not there."""
    for source, path in enumerate(paths):
        kind = suffix_of(path.name)
        with path.open("r", encoding="utf-8-sig", newline="") as file:
            yield from in_units(_texts(file, kind, path.name), source)


def units_of_upload(name: str, data: bytes) -> list[Unit]:
    """A file that somebody sent. Raises ValueError for one that is too large, is no text or has none."""
    if len(data) > MOST_UPLOAD:
        words = N_("{file}: expected a file of at most {most:.0f} MB, got {size:.1f} MB")
        raise ValueError(msg(words, file=name, most=MOST_UPLOAD / 1e6, size=len(data) / 1e6))
    kind = suffix_of(name)
    with io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline="") as file:
        units = list(in_units(_texts(file, kind, name)))
    if not units:
        raise ValueError(msg("{file}: expected a text in it, found none", file=name))
    return units


def units_of_text(text: str) -> list[Unit]:
    """A text that was typed, one row a line. Raises ValueError where there is nothing in it."""
    units = list(in_units(_lines(io.StringIO(text), msg("the text"))))
    if not units:
        raise ValueError(msg("expected a text, got none"))
    return units


def units_of_sample() -> list[Unit]:
    """The sample that ships: short texts of many kinds."""
    return list(units_of_files([SAMPLE]))


def units_of_random(model: Model, rows: int = RANDOM_ROWS, span: int = RANDOM_SPAN, seed: int = 0) -> list[Unit]:
    """Rows of random tokens, all different, that come twice: what an induction head is known by (Olsson et al. 2022).

    Before them stands what the model begins every text with.
    """
    encoded = [tuple(model.encode([text]).ids[0].tolist()) for unit in units_of_sample() for text in unit.texts]
    begin = _common(encoded)
    special = {*encoded[0][:begin], *encoded[0][len(encoded[0]) - _common([ids[::-1] for ids in encoded]) :]}
    ordinary = [token for token in range(model.vocabulary) if token not in special]
    span = min(span, (model.context - begin) // 2, len(ordinary))
    chance = random.Random(seed)
    spans = [chance.sample(ordinary, span) for _ in range(rows)]
    return [Unit(0, 0, rows=tuple((*encoded[0][:begin], *some, *some) for some in spans))]


def in_units(texts: Iterator[str], source: int = 0) -> Iterator[Unit]:
    """The texts in order, UNIT_TEXTS and UNIT_CHARACTERS a unit at most."""
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
    """ ".txt" or ".csv". Raises ValueError for another kind of file."""
    kind = Path(name).suffix.lower()
    if kind not in SUFFIXES:
        endings = msg_all(SUFFIXES, last="or")
        raise ValueError(msg("{file}: expected a file whose name ends in {endings}", file=name, endings=endings))
    return kind


@dataclass(frozen=True)
class TokenRow:
    """What a model reads at once: its ids, the part of a text that they are, and where in that each ends. number: of
    its text in the unit."""

    number: int
    ids: tuple[int, ...]
    text: str
    ends: tuple[int, ...]


def rows_of_unit(model: Model, unit: Unit, length: int) -> Iterator[TokenRow]:
    """Its texts as rows of at most `length` tokens, each begun as the model begins a text; a long one is several."""
    for number, ids in enumerate(unit.rows):
        yield TokenRow(number, ids[:length], "", (0,) * min(len(ids), length))
    left = {number: text for number, text in enumerate(unit.texts) if text.strip()}
    rows = []
    while left:
        batch = model.encode(list(left.values()))
        for place, (number, rest) in enumerate(list(left.items())):
            whole = batch.ids[place, batch.real(place)].tolist()
            end, ends = len(rest) - len(batch.cut[place]), batch.ends[place]
            if length < len(whole):
                end = ends[length - 1] or end
            some = slice(min(length, len(whole)))
            rows.append(TokenRow(number, tuple(whole[some]), rest[:end], ends[some]))
            left[number] = rest[end:]
        left = {number: rest for number, rest in left.items() if rest.strip()}
    yield from sorted(rows, key=lambda row: row.number)


def batch_of(rows: list[TokenRow]) -> TokenBatch:
    """Rows padded on the right. Padding is id 0, which no mask lets anybody see."""
    ids, keep = padded([row.ids for row in rows], 0)
    ends = tuple((*row.ends, *row.ends[-1:] * (ids.shape[1] - len(row.ends))) for row in rows)
    return TokenBatch(ids, keep, tuple(() for _ in rows), texts=tuple(row.text for row in rows), ends=ends)


def _texts(file: TextIO, kind: str, name: str) -> Iterator[str]:
    try:
        yield from (_cells(file, name) if kind == ".csv" else _lines(file, name))
    except UnicodeDecodeError as error:
        words = N_("{file}: expected text in UTF-8, got invalid bytes ({why})")
        raise ValueError(msg(words, file=name, why=error.reason)) from None
    except csv.Error as error:
        words = N_("{file}: expected a table in CSV, got one that cannot be read ({why})")
        raise ValueError(msg(words, file=name, why=error)) from None


def _lines(file: TextIO, name: str) -> Iterator[str]:
    while line := file.readline(LONGEST):
        if "\0" in line:
            raise ValueError(msg("{file}: expected text, got a file with zero bytes in it", file=name))
        yield from (part for part in line.splitlines() if part.strip())


def _cells(file: TextIO, name: str) -> Iterator[str]:
    rows = csv.reader(file)
    names = [cell.strip().lower() for cell in next(rows, [])]
    column = names.index("text") if "text" in names else 0
    for row in rows:
        cell = " ".join(row[column].split()) if column < len(row) else ""
        if "\0" in cell:
            raise ValueError(msg("{file}: expected text, got a file with zero bytes in it", file=name))
        yield from (cell[begin : begin + LONGEST] for begin in range(0, len(cell), LONGEST))


def _common(encoded: list[tuple[int, ...]]) -> int:
    """How many ids all of them begin with."""
    shortest = min(map(len, encoded))
    return next((place for place in range(shortest) if len({ids[place] for ids in encoded}) > 1), shortest)
