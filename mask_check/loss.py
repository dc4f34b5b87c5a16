"""Does a target influence its own prediction? Asked of a loss function, whatever computes it.

A prediction that does not know its target is one distribution: over all ids v that could stand at a position,
exp(-loss) sums to 1. Where the sum is more, the loss was lowered by what it was to predict. Where logits are returned
beside the loss, they must not move at all when targets are changed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from i18n import N_, msg, msg_all
from mask_check.findings import CANNOT_TELL, OBEYS, CannotCheck, Finding, unknown
from mask_check.prepare import generator_of
from model.errors import index, items
from model.spec import MOST_POSITIONS

TARGETS = ("labels", "targets", "target", "y")
IDS = ("input_ids", "idx", "tokens", "x")
MOST_IDS, ROWS = 2048, 64
MOST_NAMED = 5  # targets that a loss ignores
LEAKS = N_(
    "the probabilities of all targets at position {row} sum to {total}: its target influences its own prediction, or "
    "the loss is divided or weighted."
)
MEAN_LEAKS = N_(
    "the probabilities of all targets at position {row} sum to {total}: its target influences its own prediction, or "
    "the mean is divided, weighted or masked, or predictions read later tokens, as a masked language model's do. "
    "Return the loss of each token, or logits beside the loss, to tell."
)
READ = N_(
    "the probabilities of the targets at position {row} sum to {total}, and to {cut} in a row that ends there: a "
    "prediction reads its own target."
)
ELSEWHERE = N_(
    "the probabilities of all targets sum to 1, so no target influences its own prediction. Not judged, because the "
    "loss does not depend on the target there: positions {rows}."
)
SCALED = N_(
    "the probabilities of all targets sum to 1 if the loss is multiplied by {factor}: return it without its division "
    "by a number of batches."
)
RANDOM = N_("the same batch gives other numbers the second time: turn dropout off first, as module.eval() does.")
NO_NUMBERS = N_("its logits are NaN or infinite at some position.")
NO_LOSS = N_("its loss is NaN at some position, or infinite at all of them.")
BISECTIONS = 60
MOST_BATCHES = 64  # by whose number a loss may be divided
SLACK = 1e-3  # of a sum that is to be 1
SAME = 1e-6  # of a mean that another target leaves as it was
NEVER, MASKED = 104.0, -9e3  # so far below the largest logit of its position, and below this, an entry is masked
MOST_PLACES = 64  # from which targets are changed
FIRST_TARGETS = 3  # that are tried, to see whether the first one counts
IGNORES = N_(
    "the loss ignores these targets: {ignored}. The probabilities of all others sum to at most 1. Return logits "
    "beside the loss to compare them."
)
Batch = Mapping[str, Tensor] | Sequence[Tensor]
Row = dict[Any, Any]  # one row of a batch, by name or number


def check_loss(
    fn: Callable[[Any], Any],
    batch: Batch,
    *,
    targets: str | int | None = None,
    vocabulary: int | None = None,
    seed: int = 0,
) -> Finding:
    """fn: called with a batch, returns the loss of each token [B,T] or their mean, or logits [B,T,V] with it.

    batch: tensors [B,T] by name or in a row. targets: which of them; "labels", "targets", "target", "y" or the second
    unless given, and else the ids themselves, of which each is predicted from those before it. vocabulary: how many ids
    there are; one more than the largest in the batch unless given. Its first row is used. What is found has a pair, the
    position whose target influences its prediction, twice, and as its amount how far the sum is from 1 or logits moved.

    Raises CannotCheck, a ValueError, for a batch without targets and for what is no loss, ValueError for no batch.
    """
    if not callable(fn) or not isinstance(targets, str | int | None):
        what = f"{fn!r:.40} and {targets!r:.40}"
        raise CannotCheck(f"expected a function of a batch, and targets by name or number, got {what}")  # not shown
    wanted = "a batch as tensors by name or in a row"  # not shown
    named: Row = dict(batch) if isinstance(batch, Mapping) else dict(enumerate(items(wanted, batch)))
    which = _targets(named, targets)
    rows = len(named[which])
    first = {name: one[:1] if isinstance(one, Tensor) and len(one) == rows else one for name, one in named.items()}
    make: Callable[..., Any] = dict if isinstance(batch, Mapping) else lambda row: type(batch)(row.values())  # type: ignore
    tensors = [one for one in named.values() if isinstance(one, Tensor) and not one.is_floating_point()]
    if named[which].is_floating_point():
        raise CannotCheck(f"expected ids as targets, got {named[which].dtype}")  # not shown
    largest = max(int(max(one.max() for one in tensors)), 1)  # of a batch of zeros too there is another id
    name = "number of ids"  # not shown
    count = largest + 1 if vocabulary is None else index(name, vocabulary, MOST_POSITIONS, first=2)
    run, generator = partial(_run, fn, make), generator_of(seed)
    logits, losses = run(first)
    if not all(map(_alike, (logits, losses), run(first))):
        return Finding(CANNOT_TELL, msg(RANDOM), None, SLACK)
    if logits is not None and not _reads_targets(first, which):
        shift = 1 + torch.randint(count - 1, first[which].shape, generator=generator).to(first[which])
        other = (first[which] + shift) % count
        return _moved(logits, lambda place: _logits_from(run, first, which, other, place))
    if losses is None:
        raise CannotCheck("expected a loss where ids are their own targets, got logits alone")  # not shown
    if losses.isnan().any() or losses.isinf().all():
        return Finding(CANNOT_TELL, msg(NO_LOSS), None, SLACK)
    own = first[which].unique().cpu()  # an id that the loss ignores may be among them
    tried = torch.cat([own[own >= 0], torch.randperm(count, generator=generator)[:MOST_IDS]]).unique()
    loss = LossAtPosition(run, first, which, tried, count, losses)
    finding = _judge(loss)
    factor = None if finding.obeys else loss.factor()
    if factor is None or not _judge(loss.multiplied(factor)).obeys:
        return finding
    return unknown(msg(SCALED, factor=f"{factor:.4g}"), finding)  # a leak that is the same everywhere may do so too


def _alike(one: Tensor | None, again: Tensor | None) -> bool:
    return one is None or again is None or torch.allclose(one, again, 1e-3, 1e-4, equal_nan=True)


def _targets(named: Row, asked: str | int | None) -> Any:
    """Which of the batch's tensors holds the targets. Raises CannotCheck where none does."""
    only = list(named) if len(named) == 1 else []
    known = (asked,) if asked is not None else (*TARGETS, *([1] if 1 in named else []), *IDS, 0, *only)
    which = next((one for one in known if isinstance(named.get(one), Tensor)), None)
    if which is None or named[which].ndim != 2 or named[which].shape[1] < 3:
        found = ", ".join(f"{name} {list(getattr(one, 'shape', []))}" for name, one in named.items())
        wanted = f"{asked!r} [B, T]" if asked is not None else "targets [B, T], named by targets="
        raise CannotCheck(f"expected {wanted}, of three tokens or more, in the batch, got {found:.200}")  # not shown
    return which


def _reads_targets(row: Row, which: Any) -> bool:
    """Whether what is read is its own target: each id is predicted from those before it."""
    return which in (*IDS, 0) or (len(row) == 1 and which not in TARGETS)


def _logits_from(run: Callable[[Row], Any], first: Row, which: Any, other: Tensor, place: int) -> Tensor:
    """[1,T,V], with the other targets from a position on."""
    logits: Tensor = run(first | {which: torch.cat([first[which][:, :place], other[:, place:]], 1)})[0]
    return logits


def _shown(logits: Tensor) -> Tensor:
    """Of logits [1,T,V], which are of entries that can be predicted: others are masked by -inf, -1e9 and the like."""
    return (logits > logits.amax(-1, keepdim=True) - NEVER) | (logits > MASKED)


def _moved(logits: Tensor, other: Callable[[int], Tensor]) -> Finding:
    """Of logits [1,T,V], and those with other targets from a position on."""
    if not logits.amax(-1).isfinite().all():
        return Finding(CANNOT_TELL, msg(NO_NUMBERS), None, SLACK)
    shown = _shown(logits)
    tolerance = float(torch.finfo(logits.dtype).eps * logits.abs().where(shown, 0).max() * 8)

    def moved_by(place: int) -> Tensor:
        """[T], infinite where an entry is masked under the one and not under the other targets."""
        found = other(place)
        moved = (found - logits).abs().nan_to_num(math.inf, math.inf)
        return moved.where(shown | _shown(found), 0).amax(-1)[0]

    amount = float(moved_by(0).max())
    if amount <= tolerance:
        return Finding(OBEYS, msg("changing targets changes no logits."), amount, tolerance)
    length, most = logits.shape[1], 0.0
    places = sorted({length * part // MOST_PLACES for part in range(MOST_PLACES)})
    for place in places:
        moved = moved_by(place)[: place + 1]
        most = max(most, float(moved.max()))
        if most > tolerance:
            row = int((moved > tolerance).nonzero()[0])
            words = N_("changing targets from position {place} on changes the logits of position {row}.")
            return Finding.at((row, row), words, most, tolerance, place=place)
    words = N_(
        "logits change with earlier targets, as a decoder's do, and with none at their own position or later ({tried} "
        "positions tried)."
    )
    return Finding(OBEYS, msg(words, tried=len(places)), most, tolerance)


def _judge(loss: "LossAtPosition") -> Finding:
    most, rounding, length, left_out = 0.0, 0.0, loss.length, list[int]()
    places = sorted({length - 1, length // 2, max(length // 2 - 1, 1), 1}, reverse=True)
    for place in places:
        found = loss.summed(place)
        if found.left_out:
            left_out = [place, *left_out]
            continue
        if not math.isfinite(found.total):
            return Finding(CANNOT_TELL, msg("the loss at position {row} is not a number.", row=place), math.inf, SLACK)
        if found.total > 1 + SLACK + found.rounding:
            size = f"{found.total:.4g}"  # 1.001 is not written as 1
            if loss.is_mean:  # of which targets, and with which weights, is not known
                words = msg(MEAN_LEAKS, row=place, total=size)
                return Finding(CANNOT_TELL, words, found.total - 1, SLACK, (place, place))
            return Finding.at((place, place), LEAKS, found.total - 1, SLACK, total=size)
        if found.ignored:
            more = [msg("{count} more", count=len(found.ignored) - MOST_NAMED)][: len(found.ignored) > MOST_NAMED]
            some = msg_all([*map(str, found.ignored[:MOST_NAMED]), *more])
            return Finding(CANNOT_TELL, msg(IGNORES, ignored=some), abs(found.total - 1), SLACK)
        whole = loss.summed_in_row(place, found)
        if abs(whole.total - found.total) > SLACK + whole.rounding:
            sums = {"total": f"{whole.total:.4g}", "cut": f"{found.total:.4g}"}
            return Finding.at((place, place), READ, abs(whole.total - found.total), SLACK, **sums)
        most, rounding = max(most, abs(found.total - 1)), max(rounding, found.rounding)
    if len(left_out) == len(places):
        words = msg("the loss does not depend on the target at the positions tried.")
        return Finding(CANNOT_TELL, words, None, SLACK)
    if most <= SLACK:
        words = msg("the probabilities of all targets sum to 1, so no target influences its own prediction.")
        if left_out:
            words = msg(ELSEWHERE, rows=msg_all([*map(str, left_out)]))
        return Finding(OBEYS, words, most, SLACK)
    if rounding > SLACK:
        words = msg("the loss is rounded too much ({dtype}): return it in float32.", dtype=loss.dtype)
        return Finding(CANNOT_TELL, words, most, SLACK)
    words = msg("the probabilities of the {tried:,} targets tried sum to less than 1.", tried=len(loss.tried))
    return Finding(CANNOT_TELL, words, most, SLACK)


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

    def __init__(
        self, run: Callable[[Row], Any], first: Row, which: Any, tried: Tensor, count: int, loss: Tensor
    ) -> None:
        self._all_are_tried, self._made_of = len(tried) >= count, (first, which, tried, count, loss)
        self._run, self._first, self._which, self.tried = run, first, which, tried
        self.length, self.dtype, self.is_mean = first[which].shape[1], str(loss.dtype)[6:], loss.numel() == 1
        self._eps = torch.finfo(loss.dtype).eps
        self._cut = self._names_cut_with_targets()
        self._begin = self._first_target(loss) if self.is_mean else self.length  # of the targets in the mean

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
        if self.is_mean or not self._all_are_tried or not _reads_targets(self._first, self._which):
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
        if _reads_targets(first, which):
            return alike
        with suppress(Exception):  # whatever a function raises of tensors that do not fit each other
            self._run({name: one[:, :-1] if name in alone else one for name, one in first.items()})
            return alone
        return alike

    def _first_target(self, mean: Tensor) -> int:
        """The position of the first target that the mean counts: 1 where a loss function shifts its labels, or where
        what is read is its own target."""
        if _reads_targets(self._first, self._which):
            return 1
        others = (torch.full_like(self._first[self._which][:, :1], one) for one in self.tried[:FIRST_TARGETS].tolist())
        rows = (torch.cat([one, self._first[self._which][:, 1:]], 1) for one in others)
        means = (self._run(self._first | {self._which: row})[1] for row in rows)
        return int(all(bool(torch.isclose(one, mean, rtol=SAME, atol=0)) for one in means))


def _run(fn: Callable[[Any], Any], make: Callable[[Row], Any], row: Row) -> tuple[Tensor | None, Any]:
    """Logits and losses, None where there are none."""
    with torch.no_grad():
        found = fn(make(row))
    parts = [one for one in (found if isinstance(found, tuple | list) else [found]) if _floats(one)]
    logits = getattr(found, "logits", next((one for one in parts if one.ndim == 3), None))
    losses = getattr(found, "loss", next((one for one in parts if one.ndim < 3), None))
    if isinstance(logits, Tensor) and not _floats(logits):
        raise CannotCheck(msg("expected logits of floating point, got {got}", got=logits.dtype))
    if logits is None and losses is None:
        raise CannotCheck(msg("expected a loss or logits, got {got}", got=type(found).__name__))
    return logits, losses


def _floats(one: Any) -> bool:
    return isinstance(one, Tensor) and one.is_floating_point()


def _with_id(part: Row, which: Any, ids: Tensor, position: int) -> Row:
    """A row for each of these ids, the target at the position of each."""
    rows = (name for name, one in part.items() if isinstance(one, Tensor) and one.ndim == 2 and len(one) == 1)
    wide = part | {name: part[name].repeat(len(ids), 1) for name in rows}
    wide[which][:, position] = ids.to(wide[which])
    return wide


def _has_positions(one: Any, length: int) -> bool:
    return isinstance(one, Tensor) and one.ndim == 2 and one.shape[1] == length
