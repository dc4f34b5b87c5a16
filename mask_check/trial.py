"""A trial, on which every law is judged: one module, one row of ids, and the tolerance for changes of outputs.

How much rounding alone changes outputs is measured on the module itself, by Monte Carlo arithmetic (Parker 1997): the
same input is run again, with the output of every innermost part moved up or down at random by as much as rounding may:
one unit in the last place, and for a sum of K products u·√K, the growth of random rounding errors (Higham and Mary
2019, "A New Approach to Probabilistic Rounding Error Analysis"). Blocked tokens may change outputs by no more.
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
from mask_check.subject import CheckedModule, hooks_on, largest, max_difference
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
MAX_LOGITS = 2**24  # in one forward: rows · T · V
MAX_ROWS_AT_ONCE = 64
WORK = 6e9  # parameters · rows: the budget for measuring influence, with 24 tokens in a row
FEWEST_ROWS, MAX_ROWS = 24, 640
SPARE = 8  # positions of a context that tokens may not get: RoBERTa's begin at 2
STEP = 8  # between lengths tried if a longer row is refused: some modules take only whole blocks


@dataclass(frozen=True)
class CheckOptions:
    """The options of a check. mask: the mask to obey, see `declared.declare`; by default the configuration's. kernels:
    the names of those to compare; None: those that are cheap.

    tokens: the length of the longest row; None: lengths that are cheap. thorough: change every position of the longer
    rows, and try torch.compile. packing: how the module separates documents, "position_ids" or None for unknown.
    """

    mask: Mask = None
    kernels: tuple[str, ...] | None = None
    tokens: int | None = None
    thorough: bool = False
    packing: str | None = None


DEFAULT_OPTIONS = CheckOptions()


@dataclass(eq=False)
class CheckTrial:
    """A module, a row of ids [T] and its findings so far. pool [N]: ids to replace others by. pad: the id of padding.

    max_tokens: the longest row that it is known to take, 0 for unknown. mask: the measured influence between tokens,
    None until it is measured. longer: the lengths of the longer rows that were tried. refused: whether one raised, or
    ran out of time or memory. found: the findings of earlier laws, by key.
    """

    subject: CheckedModule
    ids: Tensor
    pool: Tensor
    pad: int
    declared: Declared
    noise: Noise
    seed: int
    options: CheckOptions = DEFAULT_OPTIONS
    max_tokens: int = 0
    mask: MeasuredMask | None = None
    longer: list[int] = field(default_factory=list)
    refused: bool = False
    found: dict[str, Finding] = field(default_factory=dict)

    @property
    def length(self) -> int:
        return len(self.ids)

    @property
    def given_as_cells(self) -> bool:
        """Whether the declared mask was given cell by cell, so that it has this length only."""
        mask = self.options.mask
        return not (mask is None or isinstance(mask, str) or all(isinstance(name, str) for name in mask))

    def at(self, length: int, ids: Tensor | None = None) -> "CheckTrial":
        """Return this trial on a row of another length: these ids, or random ones."""
        row = self.random_rows(1, length, self.generator(10))[0] if ids is None else ids
        declared = declare(self.subject.config, length, self.options.mask, self.subject.kind)
        return replace(self, ids=row, declared=declared, mask=None)

    @property
    def longest(self) -> int:
        """The length of the longest row that was tried."""
        return max([self.length, *self.longer])

    def fitting(self, length: int) -> int:
        """Return this length, or, if its context is not known and a row of this length is refused, the largest multiple
        of STEP below it that is not refused, or the longest that was tried."""

        def refused(many: int) -> bool:
            return refuses(self.subject, self.random_rows(1, many, self.generator(10)))

        if self.max_tokens or length <= self.longest or not refused(length):
            return length
        shorter = range(self.longest // STEP * STEP + STEP, length, STEP)
        taken = bisect_left(shorter, True, key=refused)
        return shorter[taken - 1] if taken else self.longest

    @property
    def tolerance(self) -> float:
        """The largest change of an output between two forwards that counts as none."""
        return self.noise.across

    @property
    def part(self) -> int:
        """The length of a shorter row, so that a batch of it and the whole row needs padding."""
        return max(1, self.length * 2 // 3)

    @property
    def max_rows(self) -> int:
        """The most rows that measuring influence may take: fewer for a large module."""
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
        """The outputs [T,V] of the row by itself, which most laws compare with."""
        return self.subject.outputs(self.ids[None])[0]

    @cached_property
    def part_alone(self) -> Tensor:
        return self.subject.outputs(self.ids[None, : self.part])[0]

    def spread(self, count: int) -> list[int]:
        """Return at most `count` positions, but at least 4, from the first to the last."""
        if max(count, 4) >= self.length:
            return list(range(self.length))
        return sorted({round(one) for one in np.linspace(0, self.length - 1, max(count, 4)).tolist()})

    def generator(self, offset: int) -> torch.Generator:
        """Return a random generator that is the same at every check with this seed."""
        return torch.Generator().manual_seed(1000 * self.seed + offset)

    def other(self, ids: Tensor, generator: torch.Generator) -> Tensor:
        """Replace every id by another of the pool."""
        index = torch.randint(0, len(self.pool), ids.shape, generator=generator)
        chosen = self.pool[index]
        following = self.pool[(index + 1) % len(self.pool)]
        return torch.where(chosen == ids.cpu(), following, chosen).to(ids)

    def random_rows(self, count: int, length: int, generator: torch.Generator) -> Tensor:
        return self.pool[torch.randint(0, len(self.pool), (count, length), generator=generator)].to(self.ids)

    def changed_with_base(self, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the outputs of rows [N,T], part by part, with the row's own from the same forward: ([n,T,V], [1,T,V]).

        Both are in one batch, so that they are computed with the same shapes; every forward has the same number of
        rows. If the rows of a batch change each other, each row has its own forward.
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
        """Compare outputs [T,V]: the largest difference, and the first position where it exceeds the tolerance."""
        each = max_difference(found, expected)
        return Difference(float(each.max()), first_above(each, self.tolerance))

    def compared(self, found: Tensor, expected: Tensor, broken: str, obeyed: str, **values: Any) -> Finding:
        """Return the finding on outputs [T,V] that should be equal. broken: with {amount} and {where}, marked by N_."""
        difference = self.difference(found, expected)
        return self.finding(difference.amount, broken=msg(broken, **values, **difference.values), obeyed=obeyed)

    def finding(self, amount: float, *, broken: str, obeyed: str, pair: tuple[int, int] | None = None) -> Finding:
        """Return the finding on an amount, with the sentence `broken` if it exceeds the tolerance, else `obeyed`."""
        if amount > self.tolerance:
            return Finding(BROKEN, broken, amount, self.tolerance, pair)
        return Finding(OBEYS, obeyed, amount, self.tolerance)


def within(context: int) -> int:
    """Return the length of the longest row to try in a declared context: some positions less, always odd."""
    return (context - SPARE) - (context - SPARE) % 2 - 1 if context > SPARE else MAX_POSITIONS


def refuses(subject: CheckedModule, ids: Tensor) -> bool:
    """Whether its forward raises on ids [B,T]."""
    try:
        subject.batch_outputs(ids)
    except Exception:  # noqa: BLE001 - user code may raise anything
        return True
    return False


@dataclass(frozen=True)
class Difference:
    """The difference between two outputs. amount: the largest, in the outputs' units, infinite where one is not a
    number. where: the first position at which it exceeds the tolerance, 0 if there is none."""

    amount: float
    where: int

    @property
    def values(self) -> dict[str, Any]:
        """The values of {amount} and {where} in a sentence."""
        return {"amount": format_amount(self.amount), "where": self.where}


def first_above(difference: Tensor, tolerance: float) -> int:
    """Return the index of the first number of [T] above the tolerance, 0 if there is none."""
    found = (difference > tolerance).nonzero()
    return int(found[0]) if len(found) else 0


def noise_of(subject: CheckedModule, ids: Tensor, other_rows: Tensor, seed: int) -> Noise:
    """Measure how much outputs vary without a cause in a mask. ids [1,T]: the row. other_rows [N,T]: other rows of a
    batch.

    Sets subject.row_by_row if rows of a batch change each other by more than rounding. Raises CannotCheck for a module
    whose outputs for the same ids differ each time.
    """
    copies, again = (subject.batch_outputs(ids.expand(1 + len(other_rows), -1)) for _ in range(2))
    last = subject.batch_outputs(torch.cat([other_rows, ids]))
    rounded, base, steady = rounding_of(subject, ids, seed)
    floor = torch.finfo(subject.dtype).eps * largest(copies)
    repeated = float(max_difference(copies, again).max())
    limit = Noise(floor, rounded).across
    drifts = steady > max(rounded, Noise(floor, 0.0).across)  # as of a module that counts its calls
    if repeated > limit or drifts:
        drawn = steady <= limit < float(max_difference(base, subject.outputs(ids)).max())
        values = {"count": ids.shape[1], "amount": f"{repeated:.3g}"}
        raise CannotCheck(msg(RANDOM if drawn else CHANGES, **values))
    mixed = max(float(max_difference(copies[:1], copies).max()), float(max_difference(copies[-1:], last[-1:]).max()))
    subject.row_by_row = mixed > limit
    return Noise(max(repeated, min(mixed, rounded), floor), rounded)


def rounding_of(subject: CheckedModule, ids: Tensor, seed: int) -> tuple[float, Tensor, float]:
    """Return how much rounding changes the outputs of ids, those outputs, and how much running ids once more changes
    them. All runs draw the same random numbers."""

    def run() -> Tensor:
        with torch.random.fork_rng(devices=[subject.device] if subject.device.type == "cuda" else []):
            torch.manual_seed(0)
            return subject.outputs(ids)

    change, generator = 0.0, torch.Generator().manual_seed(seed)
    with subject.uncompiled():
        base = run()
        for _ in range(ROUNDS):
            with rounded_once_more(subject.module, generator):
                change = max(change, float(max_difference(base, run()).max()))
        again = run()
    return change, base, float(max_difference(base, again).max())


@contextmanager
def rounded_once_more(module: nn.Module, generator: torch.Generator) -> Iterator[None]:
    """Multiply every innermost part's output, within the context, by 1 plus or minus its largest rounding error."""

    def move(part: nn.Module, found: Any) -> Any:
        if isinstance(found, Tensor) and found.is_floating_point():
            sign = torch.randint(0, 2, found.shape, generator=generator).to(found) * 2 - 1
            weight, terms = getattr(part, "weight", None), 1
            if isinstance(weight, Tensor) and weight.ndim > 1 and not isinstance(part, nn.Embedding):
                terms = max(weight.numel() // max(found.shape[-1], 1), 1)
            sums = torch.float64 if found.dtype == torch.float64 else torch.float32  # also in half precision
            rounding = max(torch.finfo(found.dtype).eps, torch.finfo(sums).eps / 2 * terms**0.5)
            return found * (1 + sign * rounding)
        if type(found) is tuple:
            return tuple(move(part, one) for one in found)
        return found

    innermost = (part for part in module.modules() if next(part.children(), None) is None)
    with hooks_on(innermost, lambda part, _arguments, found: move(part, found)):
        yield


class OperationObserver(TorchDispatchMode):
    """A mode that calls `callback` after each operation of torch with its name, its arguments and its result."""

    def __init__(self, callback: Callable[[str, list[Any], Any], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch gives its dispatch modes no types
        self.callback = callback

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        self.callback(func.__name__, [*args, *(kwargs or {}).values()], found)
        return found
