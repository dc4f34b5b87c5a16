"""Does a target influence its own prediction? Asked of a loss function, whatever computes it.

A prediction that does not know its target is one distribution: over all ids v that could stand at a position,
exp(-loss) sums to 1. Where the sum is more, the loss was lowered by what it was to predict. Where logits are returned
beside the loss, they must not move at all when targets are changed.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from i18n import N_, msg
from mask_check.findings import CANNOT_TELL, OBEYS, CannotCheck, Finding
from mask_check.prepare import generator_of
from model.errors import index, items
from model.spec import MOST_POSITIONS

TARGETS = ("labels", "targets", "target", "y")
IDS = ("input_ids", "idx", "tokens", "x")
MOST_IDS, ROWS = 2048, 64
LEAKS = N_(
    "the probabilities of all targets at position {row} sum to {total}: its target influences its own prediction."
)
SLACK = 1e-3  # of a sum that is to be 1
SAME = 1e-6  # of a mean that another target leaves as it was
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
    largest = int(max(one.max() for one in tensors))
    name = "number of ids"  # not shown
    count = largest + 1 if vocabulary is None else index(name, vocabulary, MOST_POSITIONS, first=2)
    run, generator = partial(_run, fn, make), generator_of(seed)
    logits, losses = run(first)
    if logits is not None and which not in (*IDS, 0):
        shift = 1 + torch.randint(count - 1, first[which].shape, generator=generator).to(first[which])
        return _moved(logits, run(first | {which: (first[which] + shift) % count})[0])
    tried = torch.randperm(count, generator=generator)[:MOST_IDS]
    return _summed(run, first, which, tried, losses if losses.ndim == 0 else None)


def _targets(named: Row, asked: str | int | None) -> Any:
    """Which of the batch's tensors holds the targets. Raises CannotCheck where none does."""
    known = (asked,) if asked is not None else (*TARGETS, *([1] if 1 in named else []), *IDS, 0)
    which = next((one for one in known if isinstance(named.get(one), Tensor)), None)
    if which is None or named[which].ndim != 2 or named[which].shape[1] < 3:
        raise CannotCheck(msg("expected targets [B, T] in the batch, of three tokens or more"))
    return which


def _moved(logits: Tensor, other: Tensor | None) -> Finding:
    """Of logits [1,T,V], and those with other targets."""
    moved = torch.zeros(logits.shape[1]) if other is None else (other - logits).abs().amax(-1)[0]
    amount, tolerance = float(moved.max()), float(torch.finfo(logits.dtype).eps * logits.abs().max() * 8)
    if amount <= tolerance:
        return Finding(OBEYS, msg("changing targets changes no logits."), amount, tolerance)
    place = int((moved > tolerance).nonzero()[0])
    words = N_("changing targets changes the logits of position {row}.")
    return Finding.at((place, place), words, amount, tolerance)


def _summed(run: Callable[[Row], Any], first: Row, which: Any, tried: Tensor, mean: Tensor | None) -> Finding:
    """exp(-loss) of the ids tried as targets, at three positions. mean: the row's loss where that is one number."""
    most, ignored, length = 0.0, set[int](), first[which].shape[1]
    begin = 1 if mean is None else _first_target(run, first, which, mean)
    for place in (length - 1, length // 2, 1):
        part = {name: _begin(one, place + 1, length) for name, one in first.items()}
        if mean is None:
            losses = torch.cat([_losses(run, part, which, some) for some in tried.split(ROWS)])
            without = losses == 0
        else:
            losses, without = _losses_of_mean(run, part, which, tried, begin)
        if int(without.sum()) == 1:  # one id that counts for nothing, as F.cross_entropy's ignore_index
            ignored.add(int(tried[without]))
            losses = losses[~without]
        total = float((-losses).exp().sum())
        if total > 1 + SLACK:
            return Finding.at(
                (place, place), LEAKS, total - 1, SLACK, total=f"{total:.4g}"
            )  # 1.001 is not written as 1
        most = max(most, abs(total - 1))
    if ignored:
        words = N_(
            "the loss ignores the target {ignored}; the probabilities of the others sum to at most 1. Return logits "
            "beside the loss to compare them."
        )
        return Finding(CANNOT_TELL, msg(words, ignored=min(ignored)), most, SLACK)
    if most > SLACK:
        words = msg("the probabilities of the {tried:,} targets tried sum to less than 1.", tried=len(tried))
        return Finding(CANNOT_TELL, words, most, SLACK)
    words = msg("the probabilities of all targets sum to 1, so no target influences its own prediction.")
    return Finding(OBEYS, words, most, SLACK)


def _first_target(run: Callable[[Row], Any], first: Row, which: Any, mean: Tensor) -> int:
    """The position of the first target that the mean counts: 1 where a loss function shifts its labels, or where what
    is read is its own target."""
    if which in (*IDS, 0):
        return 1
    other = first[which].clone()
    other[:, 0] = other[:, 0] == 0
    return int(torch.isclose(run(first | {which: other})[1], mean, rtol=SAME, atol=0))


def _run(fn: Callable[[Any], Any], make: Callable[[Row], Any], row: Row) -> tuple[Tensor | None, Tensor]:
    """Logits if there are any, and losses."""
    with torch.no_grad():
        found = fn(make(row))
    parts = [one for one in (found if isinstance(found, tuple | list) else [found]) if isinstance(one, Tensor)]
    logits = getattr(found, "logits", next((one for one in parts if one.ndim == 3), None))
    losses = getattr(found, "loss", next((one for one in parts if one.ndim < 3), None))
    if logits is None and losses is None:
        raise CannotCheck(msg("expected a loss or logits, got {got}", got=type(found).__name__))
    return logits, torch.zeros(()) if losses is None else losses.double()


def _losses(run: Callable[[Row], Any], part: Row, which: Any, ids: Tensor) -> Tensor:
    """float64 [N]: of these targets at the last position, of a function that returns the loss of each."""
    rows = (name for name, one in part.items() if isinstance(one, Tensor) and one.ndim == 2 and len(one) == 1)
    wide = part | {name: part[name].repeat(len(ids), 1) for name in rows}
    wide[which][:, -1] = ids.to(wide[which])
    losses: Tensor = run(wide)[1]
    return losses.reshape(len(ids), -1)[:, -1]


def _losses_of_mean(run: Callable[[Row], Any], part: Row, which: Any, ids: Tensor, begin: int) -> tuple[Tensor, Tensor]:
    """The same of a function that returns their mean, from the mean of the targets from `begin` on and that without
    the last one; and bool [N], those that leave that mean as it was."""
    length = part[which].shape[1]
    before = part[which][0, begin:-1]
    cut = {name: _begin(one, length - 1, length) for name, one in part.items()}
    rows = (torch.cat([part[which][:, :-1], one.view(1, 1).to(part[which])], 1) for one in ids)
    found = torch.stack([run(part | {which: row})[1] for row in rows])
    shorter = run(cut)[1] if len(before) else found.new_tensor(torch.nan)  # without the last target there is none
    without = found.isnan() | torch.isclose(found, shorter, rtol=SAME, atol=0)
    ignored = int(ids[without]) if int(without.sum()) == 1 else None
    terms = int(((before >= 0) & (before != ignored)).sum())  # none below 0 is an id: F.cross_entropy ignores -100
    return found * (terms + 1) - (shorter * terms if terms else 0.0), without


def _begin(one: Any, many: int, length: int) -> Any:
    """The first tokens of what has one for each position."""
    return one[:, :many] if isinstance(one, Tensor) and one.ndim == 2 and one.shape[1] == length else one
