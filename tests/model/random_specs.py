"""Random MaskSpecs of every kind, for tests of what holds under any masks."""

import random
from collections.abc import Mapping, Sequence

from torch import Tensor

from model.masks import MaskContext, TextSplit
from model.spec import MaskSpec, Stroke

FEW = (0, 0, 0, 1, 2, 3, 5, 13)  # sizes of masks on a dozen positions: three of eight are off, one is too large


def built(
    spec: MaskSpec, keep: Tensor, queries: int, sizes: Mapping[str, int] | None = None, split: TextSplit | None = None
) -> dict[str, Tensor]:
    """Return the masks of an attention over keys; keep [B,K]: which are real; sizes, split: as in MaskContext."""
    return MaskContext(keep, queries, 1, sizes=sizes or {}, split=split).masks(spec)


def random_spec(
    chance: random.Random,
    sizes: Sequence[int] = FEW,
    separators: Sequence[str] = ("", "."),
    *,
    layers: Sequence[int] = (),
    heads: Sequence[int] = (),
) -> MaskSpec:
    """Return a random spec. sizes: of windows, strides, prefixes, sinks, strokes. layers, heads: where it may hold."""

    def size() -> int:
        return chance.choice(sizes)

    def stroke() -> Stroke:
        query, last_query, key, last_key = *sorted((size(), size())), *sorted((size(), size()))
        return Stroke(chance.choice(["block", "open", "erase"]), query, key, last_query, last_key)

    def some(numbers: Sequence[int]) -> tuple[int, ...]:
        return tuple(chance.sample(numbers, chance.randrange(len(numbers) + 1)))

    return MaskSpec(
        causal=chance.random() < 0.6,
        padding=chance.random() < 0.7,
        window=chance.random() < 0.5,
        padding_queries=chance.random() < 0.5,
        sliding=size(),
        stride=size(),
        documents=chance.choice(separators),
        prefix=size(),
        sinks=size(),
        drawn=tuple(stroke() for _ in range(chance.choice([0, 0, 1, 7]))),
        positions=chance.choice(["counted", "cells", "documents"]),
        layers=some(layers),
        heads=some(heads),
    )
