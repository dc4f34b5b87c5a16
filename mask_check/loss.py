"""A check that no target influences its own prediction, for any loss function.

No prediction may change with its target or with what follows it. Logits beside a loss show that at once. So do the
losses of each token: none may change with later tokens, nor with its own among the ids that are read. What the loss
itself does with its target shows in a sum: over all ids v that may stand at a position, exp(-loss) is a probability
distribution. If it sums to more than 1, the loss was lowered by the target that it is to predict.
"""

import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from i18n import N_, msg, msg_all, msg_together
from mask_check.findings import BROKEN, CANNOT_TELL, OBEYS, CannotCheck, Finding, unknown
from mask_check.loss_per_target import AT_ONCE, ROLLED, LossPerTarget, spread
from mask_check.loss_row import MIN_TIED, REPEATS, WRAPS, LossRow, NotPerTarget, Returned, Row, targets_of
from mask_check.prepare import generator_of
from model.errors import index, items
from model.spec import MAX_POSITIONS

MAX_IDS = 2048
MAX_NAMED = 5  # most numbers in a sentence
MAX_FORWARDS = 256  # for trying all ids at as many positions as this allows
MAX_BATCHES = 64  # largest number (of batches) that a loss may be divided by
BISECTIONS = 60
SLACK = 1e-3  # tolerance of a sum that should be 1; if rounding is larger, the check cannot tell
LEAKS = N_(
    "the probabilities of all targets at position {row} sum to {total}: its target influences its own prediction, or "
    "the loss is divided or weighted."
)
ELSEWHERE = N_("Not judged, because the loss does not depend on the target there: positions {rows}.")
NEARLY_ONE = N_(
    "the probabilities of all targets at position {row} sum to {total}, where rounding explains {limit}: its target "
    "may influence its own prediction a little. Return logits beside the loss to tell."
)
READ = N_(
    "the probabilities of the targets at position {row} sum to {total}, and to {cut} in a row that ends there: a "
    "prediction reads its own target."
)
MEAN_LEAKS = N_(
    "the probabilities of all targets at position {row} sum to {total}: its target influences its own prediction, or "
    "the mean is divided, weighted or masked. Return the loss of each token, or logits beside the loss, to tell."
)
ONE = N_(
    "no loss changes with later tokens ({tried} positions tried), and the probabilities of all targets at a position "
    "sum to 1 ({summed} positions): there, no target influences its own prediction."
)
SCALED = N_(
    "the probabilities of all targets sum to 1 if the loss is multiplied by {factor}: return it without its division "
    "by a number."
)
FACTOR = N_(
    "changing tokens from position {place} on multiplies the loss at position {row}, by the same factor for another "
    "target: the loss is divided or weighted by what it counts. Return it undivided, or logits beside it, to tell."
)
IF_COUNTED = N_("That is a leak if the loss counts that prediction: return the loss of each token to tell.")
UNTIED = N_("No other ids of the batch repeat the targets, at their positions or one off: the inputs were not changed.")
FEW = N_(
    "too few targets in the row ({count}) to find them among the ids that are read: begin the batch with a row of "
    "{least} or more."
)
TAKEN = N_("There is no loss beside the logits: those at a position are taken to predict the target at the next.")
RANDOM = N_("the same batch gives other numbers the second time: turn dropout off first, as module.eval() does.")
NO_NUMBERS = N_("its logits are NaN or infinite at some position.")
NO_LOSS = N_("its loss is NaN at some position, or infinite at all of them.")
NEVER, MASKED = 104.0, -9e3  # an entry this far below its position's largest logit and below this value is masked
NEAR = 1e-3  # the largest relative difference from a cross-entropy that counts as none
MAX_TRIED = 64  # most positions of a row that are tried
MOVED = N_("changing targets from position {place} on changes the logits of position {row}.")
MOVED_BOTH = N_(
    "the ids that are read hold the targets too: changing both from position {place} on changes the logits of position "
    "{row}, which predict the token there or an earlier one."
)
MOVED_LOSS = N_("changing targets from position {place} on changes the loss at the earlier position {row}.")
MOVED_BY_IDS = N_(
    "the ids that are read hold the targets too: changing them from the target at position {place} on, and no target, "
    "changes the loss at position {row}."
)
SAME_FOR_ALL = N_(
    "changing tokens from position {place} on changes the loss at position {row}, by the same amount for another "
    "target: perhaps a term of it reads them, as a router's loss does, or is of another target. Return logits beside "
    "the loss to tell."
)
UNSHIFTED = N_(
    "the targets are the tokens that {name} holds at their own positions, and the loss does not shift them: a decoder "
    "has then read its targets, and an encoder may read them."
)
NOT_COUNTED = N_("the loss counts no target of the row that is tried.")
IGNORES = N_(
    "the loss ignores these targets: {ignored}. The probabilities of all others sum to at most 1. Return logits "
    "beside the loss to compare them."
)
Batch = Mapping[str, Tensor] | Sequence[Tensor]


def check_loss(
    fn: Callable[[Any], Any],
    batch: Batch,
    *,
    targets: str | int | None = None,
    vocabulary: int | None = None,
    seed: int = 0,
) -> Finding:
    """Check that no target influences its own prediction. fn: called with the batch alone (`lambda batch:
    model(**batch)`), returns the loss of each token [B,T] or their mean, or logits [B,T,V] with it.

    batch: tensors [B,T] by name or in a sequence. targets: which of them; by default "labels", "targets", "target", "y"
    or the one name with "label" or "target" in it, the second of two ids in a sequence if it holds the tokens of the
    first or -100, and else the only ids themselves, each of which is predicted from those before it. vocabulary: the
    number of ids; by default one more than the largest in the batch. Only the first row is used. In a test: `assert
    finding.obeys, finding`. A finding's pair is the position whose target influences its prediction, twice; its amount
    is how far the sum is from 1, or how much logits changed.

    Raises CannotCheck, a ValueError, if the batch does not show its targets or fn returns no loss, and ValueError for
    anything but a batch: of one tensor, (ids,).
    """
    if not callable(fn) or not isinstance(targets, str | int | None):
        what = f"{fn!r:.40} and {targets!r:.40}"
        raise CannotCheck(f"expected a function of a batch, and targets by name or number, got {what}")  # not shown
    wanted = "a batch as tensors by name or in a row"  # not shown
    named: Row = dict(batch) if isinstance(batch, Mapping) else dict(enumerate(items(wanted, batch)))
    nested = [name for name, one in named.items() if not isinstance(one, Tensor) and _holds_arrays(one)]
    if nested:  # their tokens would not be replaced
        what = f"got {nested[0]!r:.40}, {type(named[nested[0]]).__name__}"  # not shown
        raise CannotCheck(f"expected {wanted}, and a function that nests or converts them, {what}")  # not shown
    which = targets_of(named, targets)
    rows = len(named[which])
    first = {name: one[:1] if isinstance(one, Tensor) and len(one) == rows else one for name, one in named.items()}
    tensors = [one for one in named.values() if isinstance(one, Tensor) and not one.is_floating_point()]
    if named[which].is_floating_point():
        raise CannotCheck(f"expected ids as targets, got {named[which].dtype}")  # not shown
    largest = max(int(max(one.max() for one in tensors)), 1)  # for a batch of zeros, too, there is a second id
    name = "number of ids"  # not shown
    count = largest + 1 if vocabulary is None else index(name, vocabulary, MAX_POSITIONS, first=2)
    row = LossRow(fn, partial(_like, batch), first, which, count)
    whole = row.returned(first)
    if not whole.alike(row.returned(first)):
        return Finding(CANNOT_TELL, msg(RANDOM), None, SLACK)
    try:
        return _Trial(row, whole, count, generator_of(seed)).finding()
    except NotPerTarget as error:
        return Finding(CANNOT_TELL, error.args[0], None, SLACK)


def _holds_arrays(one: Any) -> bool:
    parts = one.values() if isinstance(one, Mapping) else one if isinstance(one, tuple | list) else ()
    return isinstance(one, Tensor | np.ndarray) or any(map(_holds_arrays, parts))


def _like(batch: Batch, row: Row) -> Any:
    """Return the row in the batch's own type, such as a BatchEncoding or a named tuple."""
    with suppress(Exception):  # a type that takes no other rows
        if isinstance(batch, MutableMapping):
            made = copy(batch)
            made.update(row)
            return made
    kind: Any = type(batch)
    return dict(row) if isinstance(batch, Mapping) else getattr(kind, "_make", kind)(row.values())


class _Trial:
    """A row, what the loss function returns for it, and other tokens to replace its own, out of `count` ids."""

    def __init__(self, row: LossRow, whole: Returned, count: int, generator: torch.Generator) -> None:
        self.row, self.whole, self.count = row, whole, count
        ids = row.targets.unique().cpu()  # one that the loss ignores may be among them
        self.tried = torch.cat(
            [ids[(ids >= 0) & (ids < count)], torch.randperm(count, generator=generator)[:MAX_IDS]]
        ).unique()
        shift = 1 + torch.randint(count - 1, row.targets.shape, generator=generator).to(row.targets)
        self.others = (row.targets + shift) % count
        self.shifts, self.tied = row.shifts(whole, self.tried), row.tied()
        own = row.counted if whole.losses is None else row.with_loss(whole.losses)
        self.own_others = self.others.where(own, row.targets)  # a masked model may read tokens that have no loss

    def finding(self) -> Finding:
        logits, losses = self.whole.logits, self.whole.losses
        if logits is not None:
            if not logits.amax(-1).isfinite().all():
                return Finding(CANNOT_TELL, msg(NO_NUMBERS), None, SLACK)
        elif losses is None or losses.isnan().any() or losses.isinf().all():
            return Finding(CANNOT_TELL, msg(NO_LOSS), None, SLACK)
        found = self._judge_logits(logits) if logits is not None else self._judge_losses()
        unshifted = [name for name, later in self.tied.items() if not later and not self.shifts]
        if unshifted and found.verdict == BROKEN:
            name = unshifted[0]
            return unknown(msg(UNSHIFTED, name=name if isinstance(name, str) else f"batch[{name}]"))
        if found.obeys and any(len(offsets) > 1 for offsets in self.row.offsets.values()):
            return unknown(msg(REPEATS))
        if found.obeys and self.row.wraps:
            found = found.because(msg(WRAPS))
        if losses is None and 0 in self.tied.values() and self.row.length == self.whole.logits_of_each:
            return found.because(msg(TAKEN))
        if not found.obeys or self.tied or self.row.reads_targets:
            return found
        counted = int(self.row.counted.sum())
        few = counted <= MIN_TIED and self.row.other_ids  # shifted by one, one target has no counterpart
        return unknown(msg(FEW, count=counted, least=MIN_TIED + 1)) if few else found.because(msg(UNTIED))

    def _judge_logits(self, logits: Tensor) -> Finding:
        """Check that logits do not change with targets at their own position or later, in the targets alone and in the
        input."""
        found = _moved(self, logits, {}, MOVED)
        return _moved(self, logits, self.tied, MOVED_BOTH) if found.obeys and self.tied else found

    def _judge_losses(self) -> Finding:
        each = LossPerTarget(self.row, self.whole, self.shifts, self.tried)
        if not each.positions:
            words = msg("the loss does not depend on the target at the positions tried.")
            return Finding(CANNOT_TELL, words if each.left_out else msg(NOT_COUNTED), None, SLACK)
        found = self._judge(each)
        if found.verdict == BROKEN and (rolled := each.rolled()) and self._judge(rolled).obeys:
            last = self.row.length - 1
            return Finding(CANNOT_TELL, msg(ROLLED, row=last), found.amount, found.tolerance, (last, last))
        return found

    def _judge(self, each: LossPerTarget) -> Finding:
        moved = self._moved_losses(each, {}, True, MOVED_LOSS)
        if moved is None and self.tied:
            moved = self._moved_losses(each, self.tied, False, MOVED_BY_IDS)
        return moved or _judge_sums(each, self.tried, len(self.tried) >= self.count)

    def _moved_losses(self, each: LossPerTarget, names: dict[Any, int], targets: bool, moves: str) -> Finding | None:
        """Return where a loss changes with later tokens; if only ids change (not targets), also with its own."""
        losses = each.losses(self.row.tensors)
        finite = losses[losses.isfinite()].abs()
        tolerance = 8 * torch.finfo(each.dtype).eps * max(float(finite.max()) if len(finite) else 0.0, 1.0)
        positions, others = torch.tensor(each.positions), self.own_others if targets else self.others
        for position in spread(each.positions, MAX_TRIED):
            changed = self.row.with_tokens(others, position, names, targets=targets)
            moved = (each.losses(changed) - losses).where(positions < position if targets else positions <= position, 0)
            moved = moved.where(~(moved.isnan() & losses.isnan()), 0).nan_to_num(math.inf, math.inf)
            if float(moved.abs().max()) > tolerance:
                at = int(moved.abs().argmax())
                row = each.positions[at]
                found = Finding.at((row, row), moves, float(moved[at].abs()), tolerance, place=position)
                own = self._reason_no_leak(each, changed, at, (float(losses[at]), float(moved[at])), 4 * tolerance)
                return unknown(msg(own, place=position, row=row), found) if own else found
        return None

    def _reason_no_leak(
        self, each: LossPerTarget, changed: Row, at: int, was_and_by: tuple[float, float], tolerance: float
    ) -> str | None:
        """Return a reason if what changed a loss changes that of another target as much, or by the same factor: no
        leak, for the probabilities of all targets sum to 1, and cannot all rise or fall."""
        (was, by), row, base = was_and_by, each.positions[at], self.row.tensors
        pair = [one | {self.row.which: self._with_other_target(one[self.row.which], row)} for one in (base, changed)]
        before, after = (float(each.losses(one)[at]) for one in pair)
        if abs(after - before - by) <= tolerance:
            return SAME_FOR_ALL
        if min(abs(was), abs(before)) <= tolerance:  # of a target that is ignored
            return None
        factor = (was + by) / was
        return FACTOR if abs(after - factor * before) <= tolerance * max(factor, 1.0) < abs(by) else None

    def _with_other_target(self, targets: Tensor, position: int) -> Tensor:
        targets = targets.clone()
        targets[:, position] = self.others[:, position]
        return targets

    def counts(self, position: int) -> bool | None:
        """Return whether the loss counts the target at a position; None if that is unknown."""
        row, losses, logits = self.row, self.whole.losses, self.whole.logits
        if losses is None or logits is None:
            return True
        if not row.reads_targets:
            return bool(row.changed_by(slice(position, position + 1), self.tried).any())
        if losses.numel() > 1:
            return bool(row.with_loss(losses)[position])
        return row.off_cross_entropy(logits[0], losses, int(self.shifts)) < NEAR or None


def _possible(logits: Tensor) -> Tensor:
    """Return which logits [1,T,V] are of possible entries: others are masked by -inf, -1e9 and the like."""
    return (logits > logits.amax(-1, keepdim=True) - NEVER) | (logits > MASKED)


def _moved(trial: _Trial, logits: Tensor, names: dict[Any, int], moves: str) -> Finding:
    """Return the finding on whether logits [1,R,V] change with targets from many positions on, also in named ids."""
    row, possible, others = trial.row, _possible(logits), trial.others if names else trial.own_others
    tolerance = float(torch.finfo(logits.dtype).eps * logits.abs().where(possible, 0).max() * 8)
    predicted = torch.arange(logits.shape[1]) + int(trial.shifts)  # the position of each row's target
    judged = predicted < row.length
    if names or row.reads_targets:  # a row that predicts nothing may read all, as in a prefix
        judged &= row.counted.cpu()[predicted.clamp(max=row.length - 1)]
    if not judged.any():
        return Finding(CANNOT_TELL, msg(NOT_COUNTED), None, tolerance)

    def moved_by(position: int) -> Tensor:
        """Return how much each row changes, [R]; infinite where an entry is masked under one of the two targets
        only."""
        found = row.returned(row.with_tokens(others, position, names, targets=True)).logits
        if found is None or found.shape != logits.shape:
            raise NotPerTarget(msg("the function returns logits of another shape with other targets."))
        moved = (found - logits).abs().nan_to_num(math.inf, math.inf)
        return moved.where(possible | _possible(found), 0).amax(-1)[0].cpu()

    amount = float(moved_by(0).max())
    if amount <= tolerance:
        return Finding(OBEYS, msg("changing targets changes no logits."), amount, tolerance)
    max_change, positions = 0.0, spread(list(range(row.length)), MAX_TRIED)
    for position in positions:
        moved = moved_by(position).where(judged & (predicted <= position), 0)
        for at in (moved > tolerance).nonzero().flatten().tolist():
            if trial.counts(int(predicted[at])) is False:
                judged[at], moved[at] = False, 0
        max_change = max(max_change, float(moved.max()))
        if max_change > tolerance:
            at = int((moved > tolerance).nonzero()[0])
            counts = trial.counts(int(predicted[at]))
            found = Finding.at((at, at), moves, max_change, tolerance, place=position)
            return found if counts else unknown(msg_together([found.words, msg(IF_COUNTED)]), found)
    words = N_(
        "logits change with earlier targets, as a decoder's do, and with none at their own position or later ({tried} "
        "positions tried)."
    )
    return Finding(OBEYS, msg(words, tried=len(positions)), max_change, tolerance)


def _judge_sums(each: LossPerTarget, tried: Tensor, all_are_tried: bool) -> Finding:
    """Return the finding on what the probabilities of these ids sum to at some positions: 1, for a prediction that does
    not depend on its target."""
    max_off, limit, difference = 0.0, 0.0, None
    forwards = len(tried) if each.is_mean else math.ceil(len(tried) / AT_ONCE)
    positions = spread(each.positions, max(MAX_FORWARDS // forwards, 2))
    for position in positions:
        losses = each.losses_at(position, tried)
        if difference is None:  # how much the same loss differs in another row of a batch
            difference = (losses - each.losses_at(position, tried.flip(0)).flip(0)).abs().nan_to_num()
        noise = float(((-losses).exp() * difference).nansum())
        scale, total = 16 * float(((-losses).exp() * (1 + losses.abs())).nansum()), float((-losses).exp().nansum())
        tolerance, off = 2 * noise + scale * torch.finfo(each.dtype).eps, abs(total - 1)
        if SLACK < 2 * noise + scale * _eps(losses, each.dtype) >= off > min(tolerance, SLACK):
            words = msg("the loss is rounded too much ({dtype}): return it in float32.", dtype=str(each.dtype)[6:])
            return Finding(CANNOT_TELL, words, off, SLACK)
        if not off <= min(tolerance, SLACK) or losses.isnan().any():
            scaled = _scaled(each, positions, tried, losses) if all_are_tried else None
            return scaled or _judge_other_sum(each, position, losses, tried, tolerance)
        max_off, limit = max(max_off, off), max(limit, tolerance)
    words = msg(ONE, tried=min(len(each.positions), MAX_TRIED), summed=len(positions))
    if each.left_out:
        words = msg_together([words, msg(ELSEWHERE, rows=_some(each.left_out))])
    return Finding(OBEYS, words, max_off, limit)


def _judge_other_sum(each: LossPerTarget, position: int, losses: Tensor, tried: Tensor, tolerance: float) -> Finding:
    """Return the finding if the probabilities exp(-losses) of the ids tried do not sum to 1."""
    total, ignored = float((-losses).exp().nansum()), (losses == 0) | losses.isnan()
    if not math.isfinite(total):
        return Finding(CANNOT_TELL, msg("the loss at position {row} is not a number.", row=position), math.inf, SLACK)
    if ignored.any() and float((-losses[~ignored]).exp().sum()) <= 1 + tolerance:
        words = msg(IGNORES, ignored=_some(tried[ignored].tolist()))
        return Finding(CANNOT_TELL, words, abs(total - 1), SLACK)
    size, pair = f"{total:.4g}", (position, position)
    if each.row.reads_targets and (cut := each.sum_of_cut(position, tried)) and abs(cut - 1) <= SLACK < abs(total - 1):
        return Finding.at(pair, READ, abs(total - cut), SLACK, total=size, cut=f"{cut:.4g}")
    if total > 1 + SLACK:  # which targets a mean is over, and with which weights, is not known
        leaks = Finding.at(pair, MEAN_LEAKS if each.is_mean else LEAKS, total - 1, SLACK, total=size)
        return unknown(leaks.words, leaks) if each.is_mean else leaks
    if total > 1 - SLACK:
        words = msg(NEARLY_ONE, row=position, total=f"{total:.7g}", limit=f"{tolerance:.1g}")
        return Finding(CANNOT_TELL, words, abs(total - 1), tolerance, pair)
    words = msg("the probabilities of the {tried:,} targets tried sum to less than 1.", tried=len(tried))
    return Finding(CANNOT_TELL, words, abs(total - 1), tolerance)


def _some(numbers: list[int]) -> str:
    more = [msg("{count} more", count=len(numbers) - MAX_NAMED)][: len(numbers) > MAX_NAMED]
    return msg_all([*map(str, numbers[:MAX_NAMED]), *more])


def _scaled(each: LossPerTarget, positions: list[int], tried: Tensor, losses: Tensor) -> Finding | None:
    """Return the finding if the loss times a whole number, or 1 divided by one, makes the sums 1 at all positions: a
    leak that is the same everywhere may do so too."""
    low, high = 1 / MAX_BATCHES, float(MAX_BATCHES)
    for _ in range(BISECTIONS):  # the sum falls as the factor grows
        middle = math.sqrt(low * high)
        low, high = (middle, high) if float((-losses * middle).exp().sum()) > 1 else (low, middle)
    whole = max(round(low), 1) if low > 1 else 1 / max(round(1 / low), 1)
    if whole == 1 or not math.isclose(low, whole, rel_tol=SLACK / 10):
        return None
    sums = [float((-each.losses_at(position, tried) * whole).exp().sum()) for position in positions]
    if any(abs(one - 1) > SLACK for one in sums):
        return None
    return Finding(CANNOT_TELL, msg(SCALED, factor=f"{whole:.4g}"), abs(float((-losses).exp().sum()) - 1), SLACK)


def _eps(losses: Tensor, dtype: torch.dtype) -> float:
    """Return the epsilon of the dtype that the losses were rounded to, which may be narrower than theirs."""
    narrow = [one for one in (torch.bfloat16, torch.float16) if bool((losses.to(one).double() == losses).all())]
    return float(torch.finfo(narrow[0] if narrow else dtype).eps)
