"""A row of a batch for a loss function: which of its tensors hold its tokens, and the same row with other tokens."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from i18n import N_, msg
from mask_check.findings import CannotCheck
from model.errors import first_line

TARGETS = ("labels", "targets", "target", "y")
IDS = ("input_ids", "idx", "tokens", "x")
NO_IDS = ("mask", "position", "type", "segment")  # in the names of tensors that only look like ids
IGNORED = -100  # F.cross_entropy's ignore_index
SAME = 1e-6  # of a loss that another target leaves as it was
LEAST_TIED = 3  # targets that are all found among other ids
Row = dict[Any, Any]  # one row of a batch, by name or number


@dataclass(frozen=True)
class Returned:
    """What a loss function returns for some rows: logits [B, T, V] and losses, None where there are none."""

    logits: Tensor | None
    losses: Tensor | None

    @property
    def logits_of_each(self) -> int:
        """For how many positions there are logits."""
        return 0 if self.logits is None else self.logits.shape[1]

    @property
    def is_mean(self) -> bool:
        return self.losses is not None and self.losses.numel() == 1

    def alike(self, other: "Returned") -> bool:
        pairs = ((self.logits, other.logits), (self.losses, other.losses))
        return all(
            one is None or again is None or torch.allclose(one, again, 1e-3, 1e-4, equal_nan=True)
            for one, again in pairs
        )


@dataclass(frozen=True)
class LossRow:
    """A loss function's row. fn: gets what `make` makes of a row. tensors: all of the batch, by name or number, those
    of many rows cut to their first. which: the one that holds the targets [1, T]. count: of ids."""

    fn: Callable[[Any], Any]
    make: Callable[[Row], Any]
    tensors: Row
    which: Any
    count: int

    @property
    def targets(self) -> Tensor:
        found: Tensor = self.tensors[self.which]
        return found

    @property
    def length(self) -> int:
        return self.targets.shape[1]

    @property
    def counted(self) -> Tensor:
        """bool [T]: which targets the loss may count."""
        return (self.targets[0] >= 0) & (self.targets[0] < self.count)

    @property
    def reads_targets(self) -> bool:
        """Whether what is read is its own target: each id is predicted from those before it."""
        return self.which in (*IDS, 0) or (len(self.tensors) == 1 and self.which not in TARGETS)

    def tied(self) -> dict[Any, int]:
        """Which other ids hold the same tokens as the targets, and how many places later: 0 where the loss shifts
        them, 1 where each target stands beside the token before it; -1, beside the one after it."""
        return {name: places[0] for name, places in self.places.items() if len(places) == 1}

    @property
    def places(self) -> dict[Any, list[int]]:
        """Of each of the other ids: several where all of its tokens are the same, or repeat every two."""
        return {name: _places(self.tensors[name][0], self.targets[0], self.counted) for name in self.other_ids}

    @property
    def other_ids(self) -> list[Any]:
        """Names of what may hold the targets too."""
        return [
            name
            for name, one in self.tensors.items()
            if name != self.which
            and isinstance(one, Tensor)
            and one.shape == self.targets.shape
            and _are_ids(name, one)
        ]

    def returned(self, row: Row) -> Returned:
        """Logits also of [B, V, T]. Raises CannotCheck for what is neither a loss nor logits, and what the function
        raises: CannotCheck with other tokens than its own."""
        try:
            with torch.no_grad():
                found = self.fn(self.make(row))
        except (IndexError, RuntimeError) as error:
            if row is self.tensors:
                raise
            words = N_("with other ids its function raised “{error}”: is vocabulary, {count:,}, the number of ids?")
            raise CannotCheck(msg(words, error=first_line(error), count=self.count)) from None
        parts = [one for one in (found if isinstance(found, tuple | list) else [found]) if _floats(one)]
        named = dict(found) if isinstance(found, Mapping) else {}
        rows = len(row[self.which])
        logits = named.get("logits", next((one for one in parts if self._are_logits(one, parts, rows)), None))
        losses = named.get("loss", next((one for one in parts if one.ndim < 3 and one is not logits), None))
        for one in (logits, losses):
            if one is not None and not _floats(one):
                got = one.dtype if isinstance(one, Tensor) else type(one).__name__
                raise CannotCheck(msg("expected a loss and logits of floating point, got {got}", got=got))
        if logits is None and losses is None:
            raise CannotCheck(msg("expected a loss or logits, got {got}", got=type(found).__name__))
        return Returned(None if logits is None else self._by_position(logits, rows), losses)

    def _by_position(self, logits: Tensor, rows: int) -> Tensor:
        """[B, T, V] of logits in that shape, [T, V] or [B, V, T]."""
        if logits.ndim == 2:
            return logits[None]
        if logits.ndim != 3 or len(logits) != rows:
            words = N_("expected logits [B, T, V] with B = {rows}, got {shape}")
            raise CannotCheck(msg(words, rows=rows, shape=list(logits.shape)))
        _, first, last = logits.shape
        return logits.mT if last in self._lengths and (first not in self._lengths or last < self.count) else logits

    @property
    def _lengths(self) -> tuple[int, int]:
        return self.length, self.length - 1

    def _are_logits(self, part: Tensor, parts: list[Tensor], rows: int) -> bool:
        """[rows, T, V], or [T, V] beside a loss. A hidden state or weights of attention may stand there too."""
        beside = len(parts) > 1 and part.ndim == 2 and len(part) in self._lengths and len(part) > 1
        whole = part.ndim == 3 and len(part) == rows and min(part.shape[1:]) > 1
        return (whole or beside) and max(part.shape[-2:]) >= self.count

    def with_tokens(self, others: Tensor, begin: int, names: dict[Any, int], *, targets: bool) -> Row:
        """The row with other tokens [1, T] from the target at a position on: in its targets if they are asked for, and
        in the ids of these names, which hold them so many places later."""
        row = dict(self.tensors)
        if targets:
            later = torch.arange(self.length, device=self.targets.device) >= begin
            row[self.which] = torch.where(later & self.counted, others.to(self.targets), self.targets)
        for name, places in names.items():
            row[name] = row[name].clone()
            first, last = max(begin, -places), min(self.length, self.length - places)
            row[name][:, first + places : last + places] = others[:, first:last].to(row[name])
        return row

    def changed_by(self, places: slice, tried: Tensor) -> Tensor:
        """bool, of each loss: whether it is another with other targets there, counted or not. tried: some ids."""
        found: list[Tensor] = []
        for one in [*self.targets[0, self.counted][:3].tolist(), *tried[-3:].tolist()]:
            targets = self.targets.clone()
            targets[:, places] = one
            losses = self.returned(self.tensors | {self.which: targets}).losses
            assert losses is not None
            found.append(as_many(losses, found[0].numel() if found else losses.numel()))
        return torch.stack([~torch.isclose(one, found[0], SAME, 0, equal_nan=True) for one in found]).any(0)

    def shifts(self, whole: Returned, tried: Tensor) -> bool:
        """Whether a prediction is of the target one place later: the loss does not count the first one, but others."""
        if 0 < whole.logits_of_each < self.length:
            return True
        if whole.logits is not None and whole.losses is not None:
            off = [self.off_cross_entropy(whole.logits[0], whole.losses, places) for places in (0, 1)]
            if min(off) < 1e-4 and min(off) < max(off) / 4:
                return off[1] < off[0]
        if self.reads_targets:
            return True
        if whole.losses is None or not self.changed_by(slice(1, None), tried).any():
            return 0 in self.tied().values()
        return not bool(self.changed_by(slice(1), tried).any())

    def later(self, many: int, shifts: bool) -> int:
        """How many places after those of so many logits the targets stand: below 0 behind a prompt of vectors."""
        return self.length - many + int(shifts and many >= self.length)

    def off_cross_entropy(self, logits: Tensor, losses: Tensor, shift: int) -> float:
        """How far losses are from those of logits [R, V] as predictions of the targets so many places later."""
        later = self.later(len(logits), bool(shift))
        targets = self.targets[0].masked_fill(~self.with_loss(losses), IGNORED)[max(later, 0) :].long()
        found = F.cross_entropy(logits[max(-later, 0) :][: len(targets)].float(), targets, ignore_index=IGNORED)
        mean = float(losses.float().sum()) / max(int(losses.count_nonzero()), 1)
        return abs(float(found) - mean) / max(abs(mean), 1e-6)

    def with_loss(self, losses: Tensor) -> Tensor:
        """bool [T]: the targets that have a loss, of what was returned."""
        counted, many = self.counted.clone(), losses.numel()
        if many > 1 and many in self._lengths:
            counted[self.length - many :] &= losses.flatten().to(counted.device) != 0
        return counted

    def cut(self, length: int) -> "LossRow":
        """The row up to a position."""
        short = {
            name: one[:, :length] if isinstance(one, Tensor) and one.ndim == 2 and one.shape[1] == self.length else one
            for name, one in self.tensors.items()
        }
        return LossRow(self.fn, self.make, short, self.which, self.count)


def targets_of(named: Row, asked: str | int | None) -> Any:
    """Which of the batch's tensors holds the targets. Raises CannotCheck where none does, or several may."""
    known = [asked] if asked is not None else _likely_targets(named)
    which = known[0] if len(known) == 1 and isinstance(named.get(known[0]), Tensor) else None
    if which is None or named[which].ndim != 2 or named[which].shape[1] < 3:
        found = ", ".join(f"{name} {list(getattr(one, 'shape', []))}" for name, one in named.items())
        wanted = f"{asked!r} [B, T]" if asked is not None else "targets [B, T], named by targets="
        raise CannotCheck(f"expected {wanted}, of three tokens or more, in the batch, got {found:.200}")  # not shown
    return which


def _likely_targets(named: Row) -> list[Any]:
    """Names; only one alone is certain."""
    if usual := [name for name in TARGETS if named.get(name) is not None]:
        return usual
    if 0 in named:  # a row: ids, or ids and what shows that it holds their targets
        whole = [one for one in named if isinstance(named[one], Tensor) and _is_whole(named[one])]
        return whole[-1:] if len(whole) == 1 or (len(whole) == 2 and _are_targets(*map(named.get, whole))) else whole
    ids = [name for name, one in named.items() if isinstance(one, Tensor) and _are_ids(name, one)]
    alike = [name for name in ids if any(part in str(name).lower() for part in ("label", "target"))]
    return alike or [name for name in ids if len(ids) > 1 or len(named) == 1 or name in IDS]


def _is_whole(one: Tensor) -> bool:
    return not (one.is_floating_point() or one.dtype == torch.bool)


def _are_ids(name: Any, one: Tensor) -> bool:
    return _is_whole(one) and one.ndim == 2 and one.shape[1] > 2 and looks_like_ids(name)


def _are_targets(ids: Any, ones: Any) -> bool:
    """Whether these others leave out some by -100, or hold the same tokens: a mask or positions do not."""
    if bool((ones == IGNORED).any()):
        return True
    return ids.shape == ones.shape and ids.ndim == 2 and len(_places(ids[0], ones[0], ones[0] >= 0)) == 1


def _places(ids: Tensor, targets: Tensor, counted: Tensor) -> list[int]:
    """At which of 0, 1 and -1 places beside them ids [T] hold all of the counted targets [T]."""
    found = []
    for places in (0, 1, -1):
        first, last = max(0, -places), min(len(targets), len(targets) - places)
        same = ids[first + places : last + places].to(targets.device) == targets[first:last]
        if int(counted[first:last].sum()) >= LEAST_TIED and bool(same[counted[first:last]].all()):
            found.append(places)
    return found


class NotPerTarget(CannotCheck):
    """Losses of which it is not known what each is of."""


def as_many(losses: Tensor, many: int) -> Tensor:
    """The losses as a row. Raises NotPerTarget where there are others with other targets."""
    if losses.numel() != many:
        words = N_("the function returns {many} losses, and {got} with other targets: return one for each token.")
        raise NotPerTarget(msg(words, many=many, got=losses.numel()))
    return losses.flatten()


def looks_like_ids(name: Any) -> bool:
    return not any(part in str(name).lower() for part in NO_IDS)


def _floats(one: Any) -> bool:
    return isinstance(one, Tensor) and one.is_floating_point()
