"""The tally of an atlas over texts: sums, counts, and a sample of bounded size. Two tallies add up to one.

The sample has the S queries with the smallest priorities, hashes of their positions (bottom-k sampling; Cohen and
Kaplan 2007): every query is equally likely to be in it, and the sample of a whole follows from those of its parts.
Sizes: M measures, L layers, H heads, C the longest row, N different tokens seen, S sampled queries.
"""

import io
import json
import zipfile
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

SAMPLED = 400  # queries
TOP_KEYS = 5  # heaviest keys kept for each sampled query


@dataclass(eq=False)
class Sample:
    """A sample of S queries in order of priority; the same ones for every head. priority uint64 [S]. place int64 [S,3]:
    source, text in it, position in its row. texts [S], ids [S]: its row. values float32 [S,M,L,H], NaN where a measure
    does not count. keys int32, weights float32 [S,L,H,TOP_KEYS]: the heaviest first; key -1 if there are fewer."""

    priority: np.ndarray
    place: np.ndarray
    texts: list[str]
    ids: list[tuple[int, ...]]
    values: np.ndarray
    keys: np.ndarray
    weights: np.ndarray

    @classmethod
    def empty(cls, measures: int, layers: int, heads: int) -> Self:
        return cls(
            np.zeros(0, np.uint64),
            np.zeros((0, 3), np.int64),
            [],
            [],
            np.zeros((0, measures, layers, heads), np.float32),
            np.full((0, layers, heads, TOP_KEYS), -1, np.int32),
            np.zeros((0, layers, heads, TOP_KEYS), np.float32),
        )

    def __len__(self) -> int:
        return len(self.priority)

    def nbytes(self) -> int:
        """Return the approximate memory it takes, in bytes."""
        own = sum(array.nbytes for array in (self.priority, self.place, self.values, self.keys, self.weights))
        return own + sum(4 * len(text) for text in self.texts) + sum(8 * len(ids) for ids in self.ids)

    def with_others(self, other: "Sample") -> "Sample":
        """Return the queries with the SAMPLED smallest priorities of both."""
        if not len(other) or not len(self):
            return other if len(other) else self
        priority = np.concatenate([self.priority, other.priority])
        chosen = np.argsort(priority, kind="stable")[:SAMPLED]
        arrays = {name: np.concatenate([getattr(self, name), getattr(other, name)])[chosen] for name in SAMPLE_ARRAYS}
        texts, ids = ([some[number] for number in chosen] for some in (self.texts + other.texts, self.ids + other.ids))
        return Sample(**arrays, texts=texts, ids=ids)

    @property
    def bar(self) -> int:
        """The largest priority with which a query can still enter."""
        return int(self.priority[-1]) if len(self) == SAMPLED else 2**64 - 1


@dataclass(eq=False)
class Tally:
    """Sums over queries in double precision. sums [M,L,H], counts int64 [M,L]: of each measure, and the queries where
    it counts. uniform [M,L]: the sums of a head with uniform weights on all allowed keys. offsets [L,H,2C-1]: the
    weight at each key - query, from -(C-1) on; cells int64 [L,2C-1]: the allowed cells there; even [L,2C-1]: a uniform
    head's weight. tokens int64 [N]: the ids seen, ascending; key_weight float32 [L,H,N], key_count int64 [N]: their
    weight as keys, and how often they occurred; query_peak float32 [L,H,N], query_count int64 [L,N]: the sums of their
    sharpness as queries, and how often it counts."""

    sums: np.ndarray
    counts: np.ndarray
    uniform: np.ndarray
    offsets: np.ndarray
    cells: np.ndarray
    even: np.ndarray
    tokens: np.ndarray
    key_weight: np.ndarray
    key_count: np.ndarray
    query_peak: np.ndarray
    query_count: np.ndarray
    sample: Sample
    texts: int = 0
    rows: int = 0
    read: int = 0

    @classmethod
    def empty(cls, measures: int, layers: int, heads: int, length: int) -> Self:
        """Return a tally of no text, for rows of at most `length` tokens."""
        offsets = 2 * length - 1
        return cls(
            np.zeros((measures, layers, heads)),
            np.zeros((measures, layers), np.int64),
            np.zeros((measures, layers)),
            np.zeros((layers, heads, offsets)),
            np.zeros((layers, offsets), np.int64),
            np.zeros((layers, offsets)),
            np.zeros(0, np.int64),
            np.zeros((layers, heads, 0), np.float32),
            np.zeros(0, np.int64),
            np.zeros((layers, heads, 0), np.float32),
            np.zeros((layers, 0), np.int64),
            Sample.empty(measures, layers, heads),
        )

    def add(self, other: "Tally") -> None:
        for name in ("sums", "counts", "uniform", "offsets", "cells", "even"):
            getattr(self, name)[...] += getattr(other, name)
        every = np.union1d(self.tokens, other.tokens)
        if len(every) > len(self.tokens):  # make room for tokens not seen before
            where = np.searchsorted(every, self.tokens)
            for name in ("key_weight", "key_count", "query_peak", "query_count"):
                old = getattr(self, name)
                new = np.zeros((*old.shape[:-1], len(every)), old.dtype)
                new[..., where] = old
                setattr(self, name, new)
            self.tokens = every
        where = np.searchsorted(self.tokens, other.tokens)
        for name in ("key_weight", "key_count", "query_peak", "query_count"):
            getattr(self, name)[..., where] += getattr(other, name)
        self.sample = self.sample.with_others(other.sample)
        self.texts, self.rows, self.read = self.texts + other.texts, self.rows + other.rows, self.read + other.read

    def to_bytes(self) -> bytes:
        plain = {name: getattr(self, name) for name in ("texts", "rows", "read")}
        plain |= {"sample_texts": self.sample.texts, "sample_ids": self.sample.ids}
        arrays = {name: getattr(self, name) for name in ARRAYS}
        arrays |= {f"sample_{name}": getattr(self.sample, name) for name in SAMPLE_ARRAYS}
        file = io.BytesIO()
        np.savez(file, plain=np.frombuffer(json.dumps(plain).encode(), np.uint8), **arrays)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Load the tally from the result of `to_bytes`. Raises ValueError for anything else."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                plain = json.loads(arrays["plain"].tobytes())
                sample = Sample(
                    **{name: arrays[f"sample_{name}"] for name in SAMPLE_ARRAYS},
                    texts=plain.pop("sample_texts"),
                    ids=[tuple(ids) for ids in plain.pop("sample_ids")],
                )
                return cls(**{name: arrays[name] for name in ARRAYS}, sample=sample, **plain)
        except (KeyError, TypeError, ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise ValueError(f"expected a saved tally, got bytes that are none ({error})") from None  # not shown


ARRAYS = tuple(one.name for one in fields(Tally) if one.type is np.ndarray)
SAMPLE_ARRAYS = tuple(one.name for one in fields(Sample) if one.type is np.ndarray)
