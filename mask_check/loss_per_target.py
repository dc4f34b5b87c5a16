"""The loss of each target of a row, computed from the losses or the mean that a loss function returns."""

import math
from copy import copy
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor

from i18n import N_, msg
from mask_check.findings import CannotCheck
from mask_check.loss_row import IGNORED, SAME, LossRow, NotPerTarget, Returned, Row, flat_losses

AT_ONCE = 64  # rows in one forward
FAR = 0.1  # by how much a sum must exceed 1 for the loss to count as divided
MAX_ALONE = 8  # most targets whose losses are derived from a mean
ONLY_A_MEAN = N_(
    "a mean hides what influences each loss, and targets of -100 do not leave the others out: return the loss of each "
    "token, or logits beside the loss."
)
ROLLED = N_(
    "each prediction but the last is of the next token, and does not read it. What the loss at position {row} is of, "
    "the check cannot tell: torch.roll makes it that of the row's first token, which its prediction has read, while an "
    "end token appended to the targets is sound. Leave out the loss there."
)
One = TypeVar("One")


class LossPerTarget:
    """The loss of each target of a row. positions: of those with a loss; left_out: of those where it is always
    0. shifts: see LossRow.

    A mean gives them too, computed with all targets but one ignored. Raises NotPerTarget if it does not allow that.
    """

    def __init__(self, row: LossRow, whole: Returned, shifts: bool, tried: Tensor) -> None:
        assert whole.losses is not None
        self.row, self.is_mean, self.dtype, self._many = row, whole.is_mean, whole.losses.dtype, whole.losses.numel()
        counted = [position for position in row.counted.nonzero()[:, 0].tolist() if position or not shifts]
        self._factor, numbers, adds = 1, (len(counted), int(row.counted.sum())), False
        if self.is_mean:
            adds = self._adds(counted)
            counted = spread(counted, MAX_ALONE)
        else:
            self._index = self._indices(counted, whole.losses.flatten(), shifts, tried)
            counted = [position for position in counted if position in self._index]
        self.positions = counted
        none = [
            position
            for position, loss in zip(counted, self.losses(row.tensors).tolist(), strict=True)
            if not loss or math.isnan(loss)
        ]
        self.left_out = [position for position in none if not self.losses_at(position, tried[-2:]).nan_to_num().any()]
        self.positions = [position for position in counted if position not in self.left_out]
        if adds and not self.left_out and float((-self.losses_at(counted[0], tried)).exp().sum()) > 1 + FAR:
            losses = self.losses_at(counted[0], tried)  # divided by the number of targets, or of those with a loss
            self._factor = min(numbers, key=lambda many: abs(float((-losses * many).exp().sum()) - 1))

    def _indices(self, counted: list[int], losses: Tensor, shifts: bool, tried: Tensor) -> dict[int, int]:
        """Return the index of each counted target's loss: by its position, counted from the last, or, if only counted
        targets have losses, by its rank."""
        row, many = self.row, len(losses)
        by_position = {position: position - row.length + many for position in range(row.length - many, row.length)}
        by_rank = {position: rank for rank, position in enumerate(counted)}
        fitting = [by_position] * (many in (row.length, row.length - 1)) + [by_rank] * (many == len(counted))
        if not fitting:
            raise NotPerTarget(
                msg("expected the loss of each of {length} tokens, got {many}", length=row.length, many=many)
            )
        if many == row.length and shifts:
            filled = {position: position - 1 for position in counted}  # a loss that shifts, and is padded
            fitting.insert(0 if losses[0] and not losses[-1] and self._is_filled(losses) else len(fitting), filled)
        if row.reads_targets or not counted:
            return fitting[0]
        changed = {i: row.changed_by(slice(i, i + 1), tried) for i in (counted[0], counted[-1])}
        fits = lambda indices: all(i in indices and bool(moved[indices[i]]) for i, moved in changed.items())  # noqa: E731
        return next(filter(fits, fitting), fitting[0])

    def rolled(self) -> "LossPerTarget | None":
        """Return these losses, each as that of the next token, for a function that shifts ids by torch.roll, or appends
        an end token or a number; None without a loss for each input id. The last is left out: it may change with the
        first token because that is its target, or because its prediction reads it."""
        if not self.row.reads_targets or self._many != self.row.length:
            return None
        found = copy(self)
        found.positions = [position for position in self.positions if position]
        found._index = {position: position - 1 for position in found.positions}
        return found

    def _is_filled(self, losses: Tensor) -> bool:
        """Whether changing tokens from a position on changes the loss before it, and no earlier one."""
        row, many = self.row, len(losses)
        both = ((losses[:-1] != 0) & (losses[1:] != 0)).nonzero()[:, 0]
        if not len(both):
            return False
        position = int(both[len(both) // 2]) + 1
        changed = row.returned(row.with_tokens((row.targets + 1) % row.count, position, {}, targets=True)).losses
        assert changed is not None
        moved = (~torch.isclose(flat_losses(changed, many), losses, SAME, 0)).nonzero()[:, 0]
        return bool(len(moved)) and int(moved[0]) == position - 1

    def _adds(self, counted: list[int]) -> bool:
        """Whether the loss of several targets is the sum of theirs. Raises NotPerTarget if it is not their mean
        either."""
        if self.row.reads_targets:
            raise NotPerTarget(msg(ONLY_A_MEAN))
        if len(counted) < 2:  # the mean is the loss of that target
            return False
        neighbors = list(pairwise(counted))  # a decoder reads the previous target
        tried = set(spread(counted, MAX_ALONE))
        adds = []
        for pair in [(counted[0], counted[-1]), *(pair for pair in neighbors if tried & {*pair})]:
            means = [self._mean_of(self.row.tensors, [*positions]) for positions in (pair[:1], pair[1:], pair)]
            first, last, both = (0.0 if math.isnan(one) else one for one in means)  # NaN where the loss ignores an id
            # exactly, else the other targets are read although they are ignored
            close = [
                math.isclose(both, one, rel_tol=16 * torch.finfo(self.dtype).eps)
                for one in (first + last, (first + last) / 2)
            ]
            if not any(close):
                raise NotPerTarget(msg(ONLY_A_MEAN))
            adds += close[:1] if first and last else []
        return bool(adds) and all(adds)

    def _mean_of(self, row: Row, positions: list[int]) -> float:
        """Return the mean loss with all targets but these ignored."""
        targets = torch.full_like(row[self.row.which], IGNORED)
        targets[:, positions] = row[self.row.which][:, positions]
        try:
            losses = self.row.returned(row | {self.row.which: targets}).losses
        except CannotCheck:  # raised by a loss that takes -100 for an id
            raise NotPerTarget(msg(ONLY_A_MEAN)) from None
        assert losses is not None
        return float(losses) * self._factor

    def losses(self, row: Row) -> Tensor:
        """Return the loss at each of `positions`, float64."""
        if self.is_mean:
            return torch.tensor([self._mean_of(row, [position]) for position in self.positions], dtype=torch.float64)
        losses = self.row.returned(row).losses
        assert losses is not None
        return flat_losses(losses.double(), self._many)[[self._index[position] for position in self.positions]].cpu()

    def losses_at(self, position: int, ids: Tensor, cut: bool = False) -> Tensor:
        """Return the loss, float64 [N], with each of these ids [N] as the target there; cut: in a row that ends
        there."""
        row, which = (self.row.cut(position + 1) if cut else self.row).tensors, self.row.which
        if self.is_mean:
            rows = ({which: _with_id(row[which], position, one)} for one in ids.split(1))
            return torch.tensor([self._mean_of(row | one, [position]) for one in rows], dtype=torch.float64)
        found, index = list[Tensor](), self._index[position]
        for some in ids.split(AT_ONCE):
            wide = {
                name: one.repeat(len(some), *[1] * (one.ndim - 1))
                if isinstance(one, Tensor) and one.ndim > 1 and len(one) == 1
                else one
                for name, one in row.items()
            }
            losses = self.row.returned(wide | {which: _with_id(row[which], position, some)}).losses
            assert losses is not None
            many = losses.numel() // len(some) if cut else self._many
            found.append(flat_losses(losses.double(), len(some) * many).reshape(len(some), -1)[:, index])
        return torch.cat(found).cpu()

    def sum_of_cut(self, position: int, tried: Tensor) -> float | None:
        """Return what the probabilities sum to in a row that ends at `position`; None if that raises."""
        try:
            losses = self.losses_at(position, tried, cut=True)
        except Exception:  # noqa: BLE001 - a shorter row may raise anything
            return None
        return float((-losses).exp().nansum())


def spread(values: list[One], limit: int) -> list[One]:
    """Pick at most `limit` of these, evenly, with the first and the last."""
    if len(values) <= limit:
        return values
    return [values[round(part * (len(values) - 1) / (limit - 1))] for part in range(limit)]


def _with_id(targets: Tensor, position: int, ids: Tensor) -> Tensor:
    wide = targets.repeat(len(ids), 1)
    wide[:, position] = ids.to(wide)
    return wide
