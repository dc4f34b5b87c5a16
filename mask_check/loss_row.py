"""A row of a batch for a loss function: which of its tensors hold its tokens, and the same row with other tokens."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from i18n import N_, msg
from mask_check.findings import CannotCheck
from mask_check.subject import no_autocast_cache
from model.errors import first_line

TARGETS = ("labels", "targets", "target", "y")
IDS = ("input_ids", "idx", "tokens", "x")
NO_IDS = ("mask", "position", "type", "segment")  # in the names of tensors that only look like ids
IGNORED = -100  # F.cross_entropy's ignore_index
SAME = 1e-6  # the largest relative change of a loss that counts as none
NO_LOGITS = N_(
    "expected logits [B, T, V] with B = {rows}, T = {length} and V of at least {count} (vocabulary), got {shape}: "
    "return those of all tokens, or the loss alone"
)
REPEATS = N_(
    "the ids that are read hold the targets at several places at once: begin the batch with a row whose tokens differ."
)
WRAPS = N_(
    "The last target is the row's first token: if torch.roll put it there, its prediction has read it. Set it to -100 "
    "then."
)
MIN_TIED = 3  # fewest targets that must all be found among other ids
Row = dict[Any, Any]  # one row of a batch, by name or number


@dataclass(frozen=True)
class Returned:
    """The result of a loss function for some rows: logits [B, T, V] and losses, None where there are none."""

    logits: Tensor | None
    losses: Tensor | None

    @property
    def logits_of_each(self) -> int:
        """The number of positions that have logits."""
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
    """A loss function and a row. fn: gets what `make` makes of a row. tensors: all of the batch, by name or number, cut
    to the first row. which: the one that holds the targets [1, T]. count: the number of ids."""

    fn: Callable[[Any], Any]
    make: Callable[[Row], Any]
    tensors: Row
    which: Any
    count: int

    def __post_init__(self) -> None:
        """Check the function. Raises CannotCheck if its signature requires other arguments than a batch."""
        try:
            inspect.signature(self.fn).bind(self.tensors)
        except ValueError:  # it has no signature
            return
        except TypeError as error:
            wanted = "a function called with the batch alone, such as `lambda batch: model(**batch)`"  # not shown
            raise CannotCheck(f"expected {wanted}, got another: {error}") from None  # not shown

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
        """Whether the input ids are their own targets: each id is predicted from those before it."""
        return self.which in (*IDS, 0) or (len(self.tensors) == 1 and self.which not in TARGETS)

    def tied(self) -> dict[Any, int]:
        """Return at which offset other ids hold the same tokens as the targets, by name: 0 if the loss shifts them, 1
        if each target stands beside the token before it; -1, beside the one after it."""
        return {name: offsets[0] for name, offsets in self.offsets.items() if len(offsets) == 1}

    @property
    def offsets(self) -> dict[Any, list[int]]:
        """The offsets at which each of the other ids holds the targets; several if its tokens repeat."""
        return {name: _offsets(self.tensors[name][0], self.targets[0], self.counted) for name in self.other_ids}

    @property
    def wraps(self) -> bool:
        """Whether targets that are the next tokens end with the first token, as after torch.roll."""
        firsts = (self.tensors[name][0, 0] for name, offset in self.tied().items() if offset == 1)
        return bool(self.counted[-1]) and any(bool(first == self.targets[0, -1]) for first in firsts)

    @property
    def other_ids(self) -> list[Any]:
        """Names of other tensors that may hold the targets too."""
        return [
            name
            for name, one in self.tensors.items()
            if name != self.which
            and isinstance(one, Tensor)
            and one.shape == self.targets.shape
            and _are_ids(name, one)
        ]

    def returned(self, row: Row) -> Returned:
        """Return the function's result for a row. Raises CannotCheck unless that is one loss, one tensor of logits or
        both; and what the function raises, as CannotCheck if the row has other tokens than its own."""
        try:
            with torch.no_grad(), no_autocast_cache():
                found = self.fn(self.make(row))
        except (IndexError, RuntimeError) as error:
            if row is self.tensors:
                raise
            words = N_("with other ids its function raised “{error}”: is vocabulary, {count:,}, the number of ids?")
            raise CannotCheck(msg(words, error=first_line(error), count=self.count)) from None
        rows = len(row[self.which])
        if isinstance(found, Mapping):
            pair = (found.get("logits"), found.get("loss"))
        else:
            parts = [one for one in (found if isinstance(found, tuple | list) else [found]) if _floats(one)]
            all_logits = [one for one in parts if self._are_logits(one, rows)]
            losses = [one for one in parts if one.ndim < 3 and not self._are_logits(one, rows)]
            if max(len(all_logits), len(losses)) > 1:
                shapes = ", ".join(str(list(one.shape)) for one in parts)
                raise NotPerTarget(msg("expected one loss, one tensor of logits or both, got {shapes}", shapes=shapes))
            if not losses and not all_logits:
                all_logits = parts  # refused below
            pair = (next(iter(all_logits), None), next(iter(losses), None))
        for one in pair:
            if one is not None and not _floats(one):
                got = one.dtype if isinstance(one, Tensor) else type(one).__name__
                raise CannotCheck(msg("expected a loss and logits of floating point, got {got}", got=got))
        logits, loss = pair
        if logits is None and loss is None:
            raise CannotCheck(msg("expected a loss or logits, got {got}", got=type(found).__name__))
        if logits is not None and not self._are_logits(logits, rows):
            values = {"rows": rows, "length": self.length, "count": self.count, "shape": list(logits.shape)}
            raise NotPerTarget(msg(NO_LOGITS, **values))
        if loss is not None and loss.ndim > 1 and len(loss) != rows:
            words = N_("expected losses [B, T] with B = {rows}, got {shape}")
            raise NotPerTarget(msg(words, rows=rows, shape=list(loss.shape)))
        return Returned(logits if logits is None or logits.ndim == 3 else logits[None], loss)

    def _are_logits(self, part: Tensor, rows: int) -> bool:
        """Whether a tensor is logits [B, T, V], [B, T-1, V] or those of one row flat, not a hidden state or attention
        weights. Flat, T-1 of them may be those of counted targets alone."""
        flat, whole = part.ndim == 2 and rows == 1, part.ndim == 3 and len(part) == rows
        lengths = (self.length, self.length - 1)[: 1 if flat and not self.counted.all() else 2]
        return (flat or whole) and part.shape[-2] in lengths and part.shape[-1] >= self.count

    def with_tokens(self, others: Tensor, begin: int, names: dict[Any, int], *, targets: bool) -> Row:
        """Return the row with other tokens [1, T] from position `begin` of the targets on: in the targets if `targets`,
        and in the named ids, which hold them at these offsets."""
        row = dict(self.tensors)
        if targets:
            later = torch.arange(self.length, device=self.targets.device) >= begin
            row[self.which] = torch.where(later & self.counted, others.to(self.targets), self.targets)
        for name, offset in names.items():
            row[name] = row[name].clone()
            first, last = max(begin, -offset), min(self.length, self.length - offset)
            row[name][:, first + offset : last + offset] = others[:, first:last].to(row[name])
        return row

    def changed_by(self, positions: slice, tried: Tensor) -> Tensor:
        """Return bool for each loss: whether it changes with the targets at these positions, counted or not. tried:
        some ids."""
        found: list[Tensor] = []
        for one in [*self.targets[0, self.counted][:3].tolist(), *tried[-3:].tolist()]:
            targets = self.targets.clone()
            targets[:, positions] = one
            losses = self.returned(self.tensors | {self.which: targets}).losses
            assert losses is not None
            found.append(flat_losses(losses, found[0].numel() if found else losses.numel()))
        return torch.stack([~torch.isclose(one, found[0], SAME, 0, equal_nan=True) for one in found]).any(0)

    def shifts(self, whole: Returned, tried: Tensor) -> bool:
        """Return whether a prediction is of the target one position later: the loss counts no first one, but others."""
        if 0 < whole.logits_of_each < self.length:
            return True
        if whole.logits is not None and whole.losses is not None:
            off = [self.off_cross_entropy(whole.logits[0], whole.losses, shift) for shift in (0, 1)]
            if min(off) < 1e-4 and min(off) < max(off) / 4:
                return off[1] < off[0]
        if self.reads_targets:
            return True
        if whole.logits is not None and whole.losses is not None:
            before = self._correlates_with_previous_row(whole.logits[0], tried)
            if before is not None:
                return before
        if whole.losses is None or not self.changed_by(slice(1, None), tried).any():
            return 0 in self.tied().values()
        return not bool(self.changed_by(slice(1), tried).any())

    def _correlates_with_previous_row(self, logits: Tensor, tried: Tensor) -> bool | None:
        """Return whether the loss, with some ids as one target in turn, correlates with their logits [R, V] in the row
        before it rather than in its own: a mean over some targets is linear in them, with label smoothing too. None if
        no target tells."""
        ids = tried[:: max(len(tried) // 8, 1)][:8].to(logits.device)
        positions = self.counted.nonzero()[1:, 0].tolist()
        for position in positions[:: -max(len(positions) // 8, 1)]:
            rows = [self.targets.clone() for _ in ids]
            for row, one in zip(rows, ids, strict=True):
                row[:, position] = one
            found = [self.returned(self.tensors | {self.which: row}).losses for row in rows]
            loss = torch.stack([one.double().sum() for one in found if one is not None])
            scores = -logits[[position, position - 1]][:, ids].double()
            correlated = torch.corrcoef(torch.cat([loss[None].to(scores), scores]))[0, 1:].clamp(min=0)
            own, before = (1 - correlated.square()).clamp(min=0).sqrt().tolist()  # the part not explained
            if min(own, before) < 0.1 * max(own, before):  # NaN where the loss does not count this target
                return bool(before < own)
        return None

    def off_cross_entropy(self, logits: Tensor, losses: Tensor, shift: int) -> float:
        """Return the relative error of losses as cross-entropy of logits [R, V] for the targets `shift` positions
        later."""
        targets = self.targets[0].masked_fill(~self.with_loss(losses), IGNORED)[shift:].long()
        found = F.cross_entropy(logits[: len(targets)].float(), targets, ignore_index=IGNORED)
        mean = float(losses.float().sum()) / max(int(losses.count_nonzero()), 1)
        return abs(float(found) - mean) / max(abs(mean), 1e-6)

    def with_loss(self, losses: Tensor) -> Tensor:
        """Return bool [T]: the targets that have a loss among those returned."""
        counted, many = self.counted.clone(), losses.numel()
        if many > 1 and many in (self.length, self.length - 1):
            counted[self.length - many :] &= losses.flatten().to(counted.device) != 0
        return counted

    def cut(self, length: int) -> "LossRow":
        """Return the first `length` tokens of the row."""
        short = {
            name: one[:, :length] if isinstance(one, Tensor) and one.ndim == 2 and one.shape[1] == self.length else one
            for name, one in self.tensors.items()
        }
        return LossRow(self.fn, self.make, short, self.which, self.count)


def targets_of(named: Row, given: str | int | None) -> Any:
    """Return the name or number of the tensor with the targets. Raises CannotCheck if none has them, or several may."""
    known = [given] if given is not None else _likely_targets(named)
    which = known[0] if len(known) == 1 and isinstance(named.get(known[0]), Tensor) else None
    if which is None or named[which].ndim != 2 or named[which].shape[1] < 3:
        found = ", ".join(f"{name} {list(getattr(one, 'shape', []))}" for name, one in named.items())
        wanted = f"{given!r} [B, T]" if given is not None else "targets [B, T], named by targets="
        raise CannotCheck(f"expected {wanted}, of three tokens or more, in the batch, got {found:.200}")  # not shown
    return which


def _likely_targets(named: Row) -> list[Any]:
    """Return the names of tensors that may hold the targets; only a single name is certain."""
    if usual := [name for name in TARGETS if named.get(name) is not None]:
        return usual
    if 0 in named:  # a sequence: ids, or ids and what evidently holds their targets
        whole = [one for one in named if isinstance(named[one], Tensor) and _is_whole(named[one])]
        return whole[-1:] if len(whole) == 1 or (len(whole) == 2 and _are_targets(*map(named.get, whole))) else whole
    ids = [name for name, one in named.items() if isinstance(one, Tensor) and _are_ids(name, one)]
    alike = [name for name in ids if any(part in str(name).lower() for part in ("label", "target"))]
    return alike or [name for name in ids if len(ids) > 1 or len(named) == 1 or name in IDS]


def _is_whole(one: Tensor) -> bool:
    return not (one.is_floating_point() or one.dtype == torch.bool)


def _are_ids(name: Any, one: Tensor) -> bool:
    named_so = not any(part in str(name).lower() for part in NO_IDS)
    return named_so and _is_whole(one) and one.ndim == 2 and one.shape[1] > 2


def _are_targets(ids: Any, ones: Any) -> bool:
    """Whether `ones` leave out some targets by -100, or hold the same tokens as ids: a mask or positions do not."""
    if bool((ones == IGNORED).any()):
        return True
    return ids.shape == ones.shape and ids.ndim == 2 and len(_offsets(ids[0], ones[0], ones[0] >= 0)) == 1


def _offsets(ids: Tensor, targets: Tensor, counted: Tensor) -> list[int]:
    """Return the offsets, out of 0, 1 and -1, at which ids [T] hold all counted targets [T]."""
    found = []
    for offset in (0, 1, -1):
        first, last = max(0, -offset), min(len(targets), len(targets) - offset)
        same = ids[first + offset : last + offset].to(targets.device) == targets[first:last]
        if int(counted[first:last].sum()) >= MIN_TIED and bool(same[counted[first:last]].all()):
            found.append(offset)
    return found


class NotPerTarget(CannotCheck):
    """Raised when it is not known which target each loss belongs to."""


def flat_losses(losses: Tensor, many: int) -> Tensor:
    """Return the losses flat. Raises NotPerTarget if there are not `many` of them, as with other targets."""
    if losses.numel() != many:
        words = N_("the function returns {many} losses, and {got} with other targets: return one for each token.")
        raise NotPerTarget(msg(words, many=many, got=losses.numel()))
    return losses.flatten()


def _floats(one: Any) -> bool:
    return isinstance(one, Tensor) and one.is_floating_point()
