"""What every law is tried on: one module, one row of ids, and what counts as no change."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mask_check.declared import Declared, Mask, declare
from mask_check.findings import BROKEN, CANNOT_TELL, DOES_NOT_APPLY, OBEYS, Finding, MeasuredMask, Noise
from mask_check.subject import CheckedModule, apart

MOST_LOGITS = 2**24  # of one forward: rows · T · V
MOST_ROWS_AT_ONCE = 64
WORK = 6e9  # parameters · rows that the search for what reaches what may cost, at 24 tokens a row
FEWEST_ROWS, MOST_ROWS = 24, 640


@dataclass(frozen=True)
class Asked:
    """What the caller asks for beside a module. kernels: the names to compare, None for those that cost little.

    tokens: the longest row, None for those that cost little. thorough: every position of the longer rows is changed,
    and torch.compile is tried. packing: how documents are told to the module, "position_ids" or nothing known.
    """

    mask: Mask = None
    kernels: tuple[str, ...] | None = None
    tokens: int | None = None
    thorough: bool = False
    packing: str | None = None


NOTHING = Asked()


@dataclass(eq=False)
class CheckTrial:
    """ids [T]: the row. pool [N]: ids that may stand in for others. pad: the id of padding.

    mask: what reaches what, once it is measured. longer: the lengths of the longer rows that were tried.
    found: what earlier laws found, by their keys.
    """

    subject: CheckedModule
    ids: Tensor
    pool: Tensor
    pad: int
    declared: Declared
    noise: Noise
    seed: int
    asked: Asked = NOTHING
    mask: MeasuredMask | None = None
    longer: list[int] = field(default_factory=list)
    found: dict[str, Finding] = field(default_factory=dict)

    @property
    def length(self) -> int:
        return len(self.ids)

    @property
    def by_hand(self) -> bool:
        """Whether the declared mask was given cell by cell, and so for this length alone."""
        return self.asked.mask is not None and not isinstance(self.asked.mask, str)

    def at(self, length: int, ids: Tensor | None = None) -> "CheckTrial":
        """The same on a row of another length: these ids, or random ones."""
        row = self.random_rows(1, length, self.generator(10))[0] if ids is None else ids
        declared = declare(self.subject.config, length, self.asked.mask, self.subject.kind)
        return replace(self, ids=row, declared=declared, mask=None)

    @property
    def tolerance(self) -> float:
        """What counts as no change of an output between two forwards."""
        return self.noise.across

    @property
    def part(self) -> int:
        """The length of a shorter row than the whole, so that a batch of both needs padding."""
        return max(1, self.length * 2 // 3)

    @property
    def most_rows(self) -> int:
        """How many rows the search for what reaches what may take: fewer for a large module."""
        rows = WORK / max(self.subject.parameters, 1) * 24 / self.length
        return int(min(max(rows, FEWEST_ROWS), MOST_ROWS))

    @property
    def rows_at_once(self) -> int:
        if self.subject.one_row:
            return 1
        vocabulary = int(getattr(self.subject.config, "vocab_size", None) or 1000)
        return int(min(max(MOST_LOGITS // (self.length * vocabulary), 2), MOST_ROWS_AT_ONCE))

    @cached_property
    def alone(self) -> Tensor:
        """[T,V]: the outputs of the row by itself, which most laws compare with."""
        return self.subject.outputs(self.ids[None])[0]

    @cached_property
    def part_alone(self) -> Tensor:
        return self.subject.outputs(self.ids[None, : self.part])[0]

    def spread(self, most: int) -> list[int]:
        """At most so many positions, but four at least, both ends among them."""
        if max(most, 4) >= self.length:
            return list(range(self.length))
        return sorted({round(one) for one in np.linspace(0, self.length - 1, max(most, 4)).tolist()})

    def generator(self, offset: int) -> torch.Generator:
        """Random numbers that are the same at every check with this seed."""
        return torch.Generator().manual_seed(1000 * self.seed + offset)

    def other(self, ids: Tensor, generator: torch.Generator) -> Tensor:
        """For every id another one of the pool."""
        place = torch.randint(0, len(self.pool), ids.shape, generator=generator)
        chosen = self.pool[place]
        beside = self.pool[(place + 1) % len(self.pool)]
        return torch.where(chosen == ids.cpu(), beside, chosen).to(ids)

    def random_rows(self, count: int, length: int, generator: torch.Generator) -> Tensor:
        return self.pool[torch.randint(0, len(self.pool), (count, length), generator=generator)].to(self.ids)

    def changed_beside_base(self, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """For rows [N,T] in turn their outputs beside the row's own from the same forward: ([n,T,V], [1,T,V]).

        The same batch, so that both are computed with the same shapes; every forward has as many rows. Where the rows
        of a batch change each other, a forward for each row.
        """
        if self.subject.one_row:
            yield from ((self.subject.outputs(row[None]), self.alone[None]) for row in rows)
            return
        many = min(self.rows_at_once, len(rows) + 1) - 1
        for part in rows.split(many):
            filled = torch.cat([self.ids[None], part, self.ids.expand(many - len(part), -1)])
            found = self.subject.outputs(filled)
            yield found[1 : 1 + len(part)], found[:1]

    def difference(self, found: Tensor, expected: Tensor) -> "Difference":
        """Of outputs [T,V]: the largest difference, and the first position where it is more than rounding."""
        each = apart(found, expected)
        return Difference(float(each.max()), first_above(each, self.tolerance))

    def finding(self, amount: float, *, broken: str, kept: str, pair: tuple[int, int] | None = None) -> Finding:
        """The verdict on an amount: `broken` or `kept` says what was found."""
        if amount > self.tolerance:
            return Finding(BROKEN, broken, amount, self.tolerance, pair)
        return Finding(OBEYS, kept, amount, self.tolerance)


@dataclass(frozen=True)
class Difference:
    """amount: the largest, in the outputs' units, infinite where one is no number. where: the first position with a
    larger one than is tolerated, 0 without one."""

    amount: float
    where: int

    @property
    def values(self) -> dict[str, Any]:
        """The values of {amount} and {where} in a sentence about it."""
        return {"amount": written(self.amount), "where": self.where}


def written(amount: float) -> str:
    return f"{amount:.3g}" if math.isfinite(amount) else "NaN"


def skipped(why: str) -> Finding:
    """A law that asks nothing of this module."""
    return Finding(DOES_NOT_APPLY, why)


def unknown(why: str, finding: Finding | None = None) -> Finding:
    """A law whose answer could not be found. finding: with what was measured."""
    return replace(finding or Finding(CANNOT_TELL, why), verdict=CANNOT_TELL, words=why)


def worst(findings: Iterable[Finding]) -> Finding | None:
    """The first that is broken, or the first that cannot tell; None where there is neither."""
    first = {finding.verdict: finding for finding in reversed([*findings])}
    return first.get(BROKEN) or first.get(CANNOT_TELL)


def first_above(difference: Tensor, tolerance: float) -> int:
    """Where the first number of [T] above the tolerance stands; 0 where there is none."""
    found = (difference > tolerance).nonzero()
    return int(found[0]) if len(found) else 0
