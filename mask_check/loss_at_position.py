"""The loss of each target that could stand at a position of a row, and what their probabilities sum to."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

TARGETS = ("labels", "targets", "target", "y")
IDS = ("input_ids", "idx", "tokens", "x")
ROWS = 64
BISECTIONS = 60
MOST_BATCHES = 64  # by whose number a loss may be divided
SLACK = 1e-3  # of a sum that is to be 1
SAME = 1e-6  # of a mean that another target leaves as it was
FIRST_TARGETS = 3  # that are tried, to see whether the first one counts
Row = dict[Any, Any]  # one row of a batch, by name or number
Run = Callable[[Row], Any]  # gives its logits and losses, None where there are none


def reads_targets(row: Row, which: Any) -> bool:
    """Whether what is read is its own target: each id is predicted from those before it."""
    return which in (*IDS, 0) or (len(row) == 1 and which not in TARGETS)


@dataclass(frozen=True)
class ProbabilitySum:
    """exp(-loss) of the targets tried, summed; how much of it may be rounding; and the targets left out because the
    loss ignores them, as F.cross_entropy's ignore_index. logs [N]: the logarithms of what is summed."""

    logs: Tensor
    rounding: float
    ignored: tuple[int, ...] = ()

    @property
    def left_out(self) -> bool:
        """Whether the loss of every target is exactly 0, or every mean the same, as where it is multiplied by a mask of
        the answer."""
        return not bool(self.logs.any())

    @property
    def total(self) -> float:
        return float(self.logs.exp().sum())


class LossAtPosition:
    """A loss function by the target at one position of a row. tried: the ids that are tried there, of so many. loss: of
    the row as it is, the loss of each target or one number, their mean."""

    def __init__(self, run: Run, first: Row, which: Any, tried: Tensor, count: int, loss: Tensor) -> None:
        self._all_are_tried, self._made_of = len(tried) >= count, (first, which, tried, count, loss)
        self._run, self._first, self._which, self.tried = run, first, which, tried
        self.length, self.dtype, self.is_mean = first[which].shape[1], str(loss.dtype)[6:], loss.numel() == 1
        self._eps = torch.finfo(loss.dtype).eps
        self._cut = self._names_cut_with_targets()
        self._begin = self.length  # of the targets in the mean
        if self.is_mean:
            self._begin = 1 if reads_targets(first, which) else first_target(run, first, which, tried, loss)

    def multiplied(self, factor: float) -> "LossAtPosition":
        """The same with a loss that is so many times as large."""

        def run(row: Row) -> tuple[Tensor | None, Tensor]:
            logits, losses = self._run(row)
            return logits, losses * factor

        first, which, tried, count, loss = self._made_of
        return LossAtPosition(run, first, which, tried, count, loss * factor)

    def summed(self, place: int) -> ProbabilitySum:
        """Of the targets tried at this position. Where they do not sum to 1, without one that changes nothing: a
        loss of 0, or a mean that is what it is without this target."""
        part = self._until(place + 1)
        before = part[self._which][0, self._begin : -1]
        shorter = self._run(self._until(place))[1].double() if len(before) else torch.tensor(math.nan).double()
        losses = self._each(part, self.tried)
        found = self._total(losses, before, shorter)
        if abs(found.total - 1) <= SLACK + found.rounding or (found.total < 1 and not self._all_are_tried):
            return found
        same = losses.isnan() | (losses == 0) | torch.isclose(losses, shorter.to(losses), rtol=SAME, atol=0)
        if self.is_mean and bool(same.all()) and not bool(losses.isnan().any()):
            return ProbabilitySum(torch.zeros_like(losses), 0.0)
        ignored = self.tried[same.cpu()].tolist()
        if self.is_mean and len(before) > 1:  # a loss may be the mean of others by chance, but not at two positions
            ignored = [one for one in ignored if self._changes_no_mean(place - 1, one)]
        sums = [found, *(self._total(losses, before, shorter, one) for one in [ignored, *((one,) for one in ignored)])]
        fitting = (one for one in sums[1:] if one.total <= 1 + SLACK + one.rounding)
        return next(fitting, min(sums, key=lambda one: one.total if math.isfinite(one.total) else math.inf))

    def _changes_no_mean(self, place: int, target: int) -> bool:
        """Whether the mean up to a position is, with this target there, what it is without."""
        with_it = self._each(self._until(place + 1), torch.tensor([target]))[0]
        without = self._run(self._until(place))[1].to(with_it)
        return bool(with_it.isnan() or torch.isclose(with_it, without, rtol=SAME, atol=0))

    def factor(self) -> float | None:
        """By what to multiply the loss so that the probabilities at the last position sum to 1, where that is a whole
        number or 1 divided by one; None otherwise."""
        if not self._all_are_tried:
            return None
        logs = self.summed(self.length - 1).logs
        low, high = 1 / MOST_BATCHES, float(MOST_BATCHES)
        for _ in range(BISECTIONS):  # the sum falls as the factor grows
            middle = math.sqrt(low * high)
            low, high = (middle, high) if float((logs * middle).exp().sum()) > 1 else (low, middle)
        whole = max(round(low), 1) if low > 1 else 1 / max(round(1 / low), 1)
        return whole if whole != 1 and math.isclose(low, whole, rel_tol=SLACK / 10) else None

    def summed_in_row(self, place: int, cut: ProbabilitySum) -> ProbabilitySum:
        """Where the row goes on after the position, so that its target is read too; `cut` where that cannot be told
        from later losses, which a mean holds. Its rounding is measured: the same rows in other batches."""
        if self.is_mean or not self._all_are_tried or not reads_targets(self._first, self._which):
            return cut
        position = place - self.length
        losses = self._each(self._first, self.tried, position)
        again = self._each(self._first, self.tried.flip(0), position).flip(0)
        moved = float(((-losses).exp() * (losses - again).abs()).sum())
        return ProbabilitySum(-losses, cut.rounding + 2 * moved)

    def _total(self, losses: Tensor, before: Tensor, shorter: Tensor, ignored: Sequence[int] = ()) -> ProbabilitySum:
        """From the losses, or the means of the targets `before` and one more; shorter: the mean without that."""
        out = torch.tensor([*ignored]).to(before)
        terms = int(((before >= 0) & ~torch.isin(before, out)).sum())  # F.cross_entropy ignores -100
        others = shorter.to(losses) * terms if terms else losses.new_zeros(())
        kept = ~torch.isin(self.tried, out.to(self.tried)).to(losses.device)
        losses = losses[kept] * (terms + 1)
        logs = others - losses
        rounding = self._eps * float((logs.exp() * (losses.abs() + others.abs())).sum())
        return ProbabilitySum(logs, rounding, tuple(ignored))

    def _each(self, part: Row, tried: Tensor, position: int = -1) -> Tensor:
        """float64 [N]: what the function returns for each of these ids at a position, counted from the last."""
        found = []
        for some in tried.split(1 if self.is_mean else ROWS):
            losses = self._run(_with_id(part, self._which, some, position))[1].double()
            found.append(losses.reshape(len(some), -1)[:, position])
        return torch.cat(found)

    def _until(self, many: int) -> Row:
        """The row's first targets, and as many tokens of what is cut with them."""
        return {name: one[:, :many] if name in self._cut else one for name, one in self._first.items()}

    def _names_cut_with_targets(self) -> set[Any]:
        """An encoder's tokens are not, although they may be as many: where the function takes all of them with fewer
        targets."""
        which, first = self._which, self._first
        alike = {name for name, one in first.items() if _has_positions(one, self.length)}
        alone = {which, *(name for name in alike if str(name).startswith("decoder_"))}
        if reads_targets(first, which):
            return alike
        with suppress(Exception):  # whatever a function raises of tensors that do not fit each other
            self._run({name: one[:, :-1] if name in alone else one for name, one in first.items()})
            return alone
        return alike


def first_target(run: Run, first: Row, which: Any, tried: Tensor, loss: Tensor) -> int:
    """The position of the first target that a loss counts: 1 where it shifts its labels. tried: some ids."""
    others = (torch.full_like(first[which][:, :1], one) for one in tried[:FIRST_TARGETS].tolist())
    rows = (torch.cat([one, first[which][:, 1:]], 1) for one in others)
    losses = (run(first | {which: row})[1] for row in rows)
    return int(all(torch.allclose(one, loss, rtol=SAME, atol=0) for one in losses))


def tied_ids(first: Row, which: Any) -> tuple[Any, int] | None:
    """Which ids of a row hold the same tokens as its targets, and how many places later: 0 where the loss shifts them,
    1 where each target stands beside the token before it. None where none do."""
    targets = first[which]
    for name in (*IDS, 0):
        ids = first.get(name)
        if name == which or not isinstance(ids, Tensor) or ids.is_floating_point() or ids.shape != targets.shape:
            continue
        found = [offset for offset in (0, 1) if _stand_beside(ids[:, offset:], targets)]
        if len(found) == 1:  # both, where all tokens are the same
            return name, found[0]
    return None


def _stand_beside(ids: Tensor, targets: Tensor) -> bool:
    beside = targets[:, : ids.shape[1]]
    counted = beside >= 0
    return int(counted.sum()) > 2 and bool((ids == beside)[counted].all())


def as_ids(run: Run, first: Row, which: Any, name: Any, offset: int) -> tuple[Row, Run]:
    """The row without its targets, its ids [1, T + offset] as long as both, and what runs such a row: with the targets
    that its ids are, but for those that are ignored. name, offset: see tied_ids."""
    targets, length = first[which], first[which].shape[1]
    row = {
        key: torch.cat([one, one[:, length - offset :]], 1) if _has_positions(one, length) else one
        for key, one in first.items()
        if key != which
    }
    if offset and int(targets[0, -1]) >= 0:
        row[name][:, -1] = targets[:, -1]

    def run_both(row: Row) -> Any:
        many = row[name].shape[1]
        beside = targets[:, : many - offset]
        own = torch.where(beside < 0, beside, row[name][:, offset:].to(beside))
        cut = {key: one[:, : many - offset] if _has_positions(one, many) else one for key, one in row.items()}
        return run({key: own if key == which else cut[key] for key in first})

    return row, run_both


def _with_id(part: Row, which: Any, ids: Tensor, position: int) -> Row:
    """A row for each of these ids, the target at the position of each."""
    rows = (name for name, one in part.items() if isinstance(one, Tensor) and one.ndim == 2 and len(one) == 1)
    wide = part | {name: part[name].repeat(len(ids), 1) for name in rows}
    wide[which][:, position] = ids.to(wide[which])
    return wide


def _has_positions(one: Any, length: int) -> bool:
    return isinstance(one, Tensor) and one.ndim == 2 and one.shape[1] == length
