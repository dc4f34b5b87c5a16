"""What every law is tried on: one module, one row of ids, and what counts as no change.

How much rounding alone moves outputs is measured on the module itself, by Monte Carlo arithmetic (Parker 1997): the
same input again, with the output of every innermost part moved up or down at random by as much as rounding may: one
unit in the last place, and for a sum of K products u·√K, the growth that random rounding errors have (Higham and Mary
2019, "A New Approach to Probabilistic Rounding Error Analysis"). A mask that is obeyed may not do more.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from i18n import N_, msg
from mask_check.declared import Declared, Mask, declare
from mask_check.findings import BROKEN, OBEYS, CannotCheck, Finding, MeasuredMask, Noise, format_amount
from mask_check.subject import CheckedModule, apart, hooks_on, largest
from model.spec import MAX_POSITIONS

ROUNDS = 3
CHANGES = N_(
    "in eval mode the same {count} tokens give outputs that differ by {amount} from one run to the next, more than "
    "rounding explains"
)
RANDOM = N_(
    "in eval mode the same {count} tokens give outputs that differ by {amount} from one run to the next and agree "
    "where torch's random numbers are the same: dropout or another random operation is active. F.dropout needs "
    "training=self.training"
)
MAX_LOGITS = 2**24  # of one forward: rows · T · V
MAX_ROWS_AT_ONCE = 64
WORK = 6e9  # parameters · rows that the search for what reaches what may cost, at 24 tokens a row
FEWEST_ROWS, MAX_ROWS = 24, 640
SPARE = 8  # positions that a context may keep for itself: RoBERTa's begin at 2
STEP = 8  # of the lengths tried where a longer row is refused: some take whole blocks alone


@dataclass(frozen=True)
class CheckOptions:
    """What the caller asks for beside a module. mask: what it should obey, see `declared.declare`; its configuration
    says unless given. kernels: the names to compare, None for those that cost little.

    tokens: the longest row, None for those that cost little. thorough: every position of the longer rows is changed,
    and torch.compile is tried. packing: how documents are told to the module, "position_ids" or nothing known.
    """

    mask: Mask = None
    kernels: tuple[str, ...] | None = None
    tokens: int | None = None
    thorough: bool = False
    packing: str | None = None


DEFAULT_OPTIONS = CheckOptions()


@dataclass(eq=False)
class CheckTrial:
    """ids [T]: the row. pool [N]: ids that may stand in for others. pad: the id of padding.

    most_tokens: that it is known to read, 0 for unknown. mask: what reaches what, once it is measured. longer: the
    lengths of the longer rows that were tried. refused: whether one raised, or time or memory did not suffice for it.
    found: what earlier laws found, by their keys.
    """

    subject: CheckedModule
    ids: Tensor
    pool: Tensor
    pad: int
    declared: Declared
    noise: Noise
    seed: int
    asked: CheckOptions = DEFAULT_OPTIONS
    most_tokens: int = 0
    mask: MeasuredMask | None = None
    longer: list[int] = field(default_factory=list)
    refused: bool = False
    found: dict[str, Finding] = field(default_factory=dict)

    @property
    def length(self) -> int:
        return len(self.ids)

    @property
    def given_as_cells(self) -> bool:
        """Whether the declared mask was given cell by cell, and so for this length alone."""
        mask = self.asked.mask
        return not (mask is None or isinstance(mask, str) or all(isinstance(one, str) for one in mask))

    def at(self, length: int, ids: Tensor | None = None) -> "CheckTrial":
        """This trial on a row of another length: these ids, or random ones."""
        row = self.random_rows(1, length, self.generator(10))[0] if ids is None else ids
        declared = declare(self.subject.config, length, self.asked.mask, self.subject.kind)
        return replace(self, ids=row, declared=declared, mask=None)

    @property
    def longest(self) -> int:
        """The length of the longest row that was tried."""
        return max([self.length, *self.longer])

    def fitting(self, length: int) -> int:
        """This length; where its context is not known and a row of it is refused, the largest multiple of STEP below
        it that is not, or the longest that was tried."""

        def refused(many: int) -> bool:
            return refuses(self.subject, self.random_rows(1, many, self.generator(10)))

        if self.most_tokens or length <= self.longest or not refused(length):
            return length
        shorter = range(self.longest // STEP * STEP + STEP, length, STEP)
        taken = bisect_left(shorter, True, key=refused)
        return shorter[taken - 1] if taken else self.longest

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
        return int(min(max(rows, FEWEST_ROWS), MAX_ROWS))

    @property
    def rows_at_once(self) -> int:
        if self.subject.row_by_row:
            return 1
        vocabulary = int(getattr(self.subject.config, "vocab_size", None) or 1000)
        return int(min(max(MAX_LOGITS // (self.length * vocabulary), 2), MAX_ROWS_AT_ONCE))

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
        """Replace every id by another of the pool."""
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
        if self.subject.row_by_row:
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

    def compared(self, found: Tensor, expected: Tensor, broken: str, kept: str, **values: Any) -> Finding:
        """The verdict on outputs [T,V] that are to be the same. broken: with {amount} and {where}, marked by N_."""
        difference = self.difference(found, expected)
        return self.finding(difference.amount, broken=msg(broken, **values, **difference.values), kept=kept)

    def finding(self, amount: float, *, broken: str, kept: str, pair: tuple[int, int] | None = None) -> Finding:
        """The verdict on an amount: `broken` or `kept` says what was found."""
        if amount > self.tolerance:
            return Finding(BROKEN, broken, amount, self.tolerance, pair)
        return Finding(OBEYS, kept, amount, self.tolerance)


def within(context: int) -> int:
    """The longest row of a context that is declared: a few positions are spared, and no whole blocks are read."""
    return (context - SPARE) - (context - SPARE) % 2 - 1 if context > SPARE else MAX_POSITIONS


def refuses(subject: CheckedModule, ids: Tensor) -> bool:
    """Whether its forward raises on ids [B,T]."""
    try:
        subject.batch_outputs(ids)
    except Exception:  # noqa: BLE001 - the user's own code
        return True
    return False


@dataclass(frozen=True)
class Difference:
    """amount: the largest, in the outputs' units, infinite where one is no number. where: the first position with a
    larger one than is tolerated, 0 without one."""

    amount: float
    where: int

    @property
    def values(self) -> dict[str, Any]:
        """The values of {amount} and {where} in a sentence about it."""
        return {"amount": format_amount(self.amount), "where": self.where}


def first_above(difference: Tensor, tolerance: float) -> int:
    """Where the first number of [T] above the tolerance stands; 0 where there is none."""
    found = (difference > tolerance).nonzero()
    return int(found[0]) if len(found) else 0


def noise_of(subject: CheckedModule, ids: Tensor, other_rows: Tensor, seed: int) -> Noise:
    """ids [1,T]: the row. other_rows [N,T]: other rows, which stand in the batch with it once.

    Sets subject.row_by_row where the rows of a batch change each other by more than rounding. Raises CannotCheck for a
    module that gives other outputs for the same ids each time.
    """
    copies, again = (subject.batch_outputs(ids.expand(1 + len(other_rows), -1)) for _ in range(2))
    beside = subject.batch_outputs(torch.cat([other_rows, ids]))
    rounded, base, steady = _rounded(subject, ids, seed)
    floor = torch.finfo(subject.dtype).eps * largest(copies)
    repeated = float(apart(copies, again).max())
    most = Noise(floor, rounded).across
    drifts = steady > max(rounded, Noise(floor, 0.0).across)  # as what counts its calls does, rounded or not
    if repeated > most or drifts:
        drawn = steady <= most < float(apart(base, subject.outputs(ids)).max())
        values = {"count": ids.shape[1], "amount": f"{repeated:.3g}"}
        raise CannotCheck(msg(RANDOM if drawn else CHANGES, **values))
    mixed = max(float(apart(copies[:1], copies).max()), float(apart(copies[-1:], beside[-1:]).max()))
    subject.row_by_row = mixed > most
    return Noise(max(repeated, min(mixed, rounded), floor), rounded)


def _rounded(subject: CheckedModule, ids: Tensor, seed: int) -> tuple[float, Tensor, float]:
    """How much rounding moves the outputs of ids, those outputs, and how much running ids once more moves them, where
    all runs draw the same random numbers."""

    def run() -> Tensor:
        with torch.random.fork_rng(devices=[subject.device] if subject.device.type == "cuda" else []):
            torch.manual_seed(0)
            return subject.outputs(ids)

    most, generator = 0.0, torch.Generator().manual_seed(seed)
    with subject.uncompiled():
        base = run()
        for _ in range(ROUNDS):
            with rounded_once_more(subject.module, generator):
                most = max(most, float(apart(base, run()).max()))
        again = run()
    return most, base, float(apart(base, again).max())


@contextmanager
def rounded_once_more(module: nn.Module, generator: torch.Generator) -> Iterator[None]:
    """While it lasts, every innermost part's output is multiplied by 1 + or - what rounding may come to in it."""

    def move(part: nn.Module, found: Any) -> Any:
        if isinstance(found, Tensor) and found.is_floating_point():
            sign = torch.randint(0, 2, found.shape, generator=generator).to(found) * 2 - 1
            weight, terms = getattr(part, "weight", None), 1
            if isinstance(weight, Tensor) and weight.ndim > 1 and not isinstance(part, nn.Embedding):
                terms = max(weight.numel() // max(found.shape[-1], 1), 1)
            sums = torch.float64 if found.dtype == torch.float64 else torch.float32  # also those of half precision
            rounding = max(torch.finfo(found.dtype).eps, torch.finfo(sums).eps / 2 * terms**0.5)
            return found * (1 + sign * rounding)
        if type(found) is tuple:
            return tuple(move(part, one) for one in found)
        return found

    innermost = (part for part in module.modules() if next(part.children(), None) is None)
    with hooks_on(innermost, lambda part, _arguments, found: move(part, found)):
        yield


class OperationObserver(TorchDispatchMode):
    """While it lasts, each operation of torch is told to `callback`: its name, its arguments and what it returned."""

    def __init__(self, callback: Callable[[str, list[Any], Any], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch gives its dispatch modes no types
        self.callback = callback

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        self.callback(func.__name__, [*args, *(kwargs or {}).values()], found)
        return found
