"""Does a target influence its own prediction? Asked of a loss function, whatever computes it.

A prediction that does not know its target is one distribution: over all ids v that could stand at a position,
exp(-loss) sums to 1. Where the sum is more, the loss was lowered by what it was to predict. Where logits are returned
beside the loss, they must not move at all when targets are changed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from i18n import N_, msg, msg_all
from mask_check.findings import CANNOT_TELL, OBEYS, CannotCheck, Finding, unknown
from mask_check.loss_at_position import (
    IDS,
    SLACK,
    TARGETS,
    LossAtPosition,
    Row,
    Run,
    as_ids,
    first_target,
    reads_targets,
    tied_ids,
)
from mask_check.prepare import generator_of
from model.errors import first_line, index, items
from model.spec import MOST_POSITIONS

MOST_IDS = 2048
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
NEVER, MASKED = 104.0, -9e3  # so far below the largest logit of its position, and below this, an entry is masked
MOST_PLACES = 64  # from which targets are changed
MOVED = N_("changing targets from position {place} on changes the logits of position {row}.")
MOVED_BOTH = N_(
    "the ids that are read hold the targets too: changing both from position {place} on changes the logits of position "
    "{row}, which predict the token there or an earlier one."
)
UNSHIFTED = N_(
    "the targets are the tokens that {name} holds at their own positions, and the loss does not shift them: a "
    "decoder's predictions have then read their targets, and an encoder may. Targets changed alone influence no "
    "prediction of them."
)
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
    try:
        finding = _judged(run, first, which, count, generator, (logits, losses))
        both = _read_too(run, first, which, count, generator, (logits, losses)) if finding.obeys else None
    except (IndexError, RuntimeError) as error:
        words = N_("with other ids its function raised “{error}”: is vocabulary, {count:,}, the number of ids?")
        raise CannotCheck(msg(words, error=first_line(error), count=count)) from None
    return both or finding


def _judged(
    run: Run, first: Row, which: Any, count: int, generator: torch.Generator, found: tuple[Tensor | None, Any]
) -> Finding:
    """found: the logits and losses of the row as it is."""
    logits, losses = found
    if logits is not None and not reads_targets(first, which):
        return _moved(logits, _with_others(run, first, which, count, generator), 0, MOVED)
    if losses is None:
        raise CannotCheck("expected a loss where ids are their own targets, got logits alone")  # not shown
    if losses.isnan().any() or losses.isinf().all():
        return Finding(CANNOT_TELL, msg(NO_LOSS), None, SLACK)
    loss = LossAtPosition(run, first, which, _ids_tried(first[which], count, generator), count, losses)
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


def _read_too(
    run: Run, first: Row, which: Any, count: int, generator: torch.Generator, found: tuple[Tensor | None, Any]
) -> Finding | None:
    """What is wrong where the ids that are read hold the same tokens as the targets, and are changed with them."""
    tied = tied_ids(first, which)
    if tied is None:
        return None
    name, offset = tied
    row, run_both = as_ids(run, first, which, name, offset)
    logits, losses = found
    if losses is None and not offset:
        return None
    if not offset and not first_target(run, first, which, torch.arange(count), losses):
        return unknown(msg(UNSHIFTED, name=name if isinstance(name, str) else f"batch[{name}]"))
    if logits is not None:
        counted = (first[which][0, 1 - offset :] >= 0)[
            : logits.shape[1], None
        ]  # rows that predict a target of the loss
        kept, others = logits[:, : len(counted)], _with_others(run_both, row, name, count, generator)
        cut = lambda place: others(place)[:, : len(counted)].where(counted, 0)  # noqa: E731
        both = _moved(kept.where(counted, 0), cut, 1, MOVED_BOTH)
    elif losses.numel() == 1 and bool((first[which] < 0).any()):  # how many targets the mean has is not known
        return None
    else:
        tried = _ids_tried(row[name], count, generator)
        both = _judge(LossAtPosition(run_both, row, name, tried, count, run_both(row)[1]))
    return None if both.obeys or both.pair is None else both


def _ids_tried(ids: Tensor, count: int, generator: torch.Generator) -> Tensor:
    own = ids.unique().cpu()  # an id that the loss ignores may be among them
    found: Tensor = torch.cat([own[own >= 0], torch.randperm(count, generator=generator)[:MOST_IDS]]).unique()
    return found


def _with_others(run: Run, first: Row, which: Any, count: int, generator: torch.Generator) -> Callable[[int], Any]:
    """A function of a position that gives logits [1,T,V] with other ids from there on."""
    shift = 1 + torch.randint(count - 1, first[which].shape, generator=generator).to(first[which])
    other = (first[which] + shift) % count

    return lambda place: run(first | {which: torch.cat([first[which][:, :place], other[:, place:]], 1)})[0]


def _shown(logits: Tensor) -> Tensor:
    """Of logits [1,T,V], which are of entries that can be predicted: others are masked by -inf, -1e9 and the like."""
    return (logits > logits.amax(-1, keepdim=True) - NEVER) | (logits > MASKED)


def _moved(logits: Tensor, other: Callable[[int], Tensor], begin: int, moves: str) -> Finding:
    """Of logits [1,T,V], and those with other targets from a position on. begin: the first target, 0 or 1. moves: what
    is said where logits at that target's position, or before it, change."""
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
    places = sorted({max(length * part // MOST_PLACES, begin) for part in range(MOST_PLACES)})
    for place in places:
        moved = moved_by(place)[: place + 1 - begin]
        most = max(most, float(moved.max()))
        if most > tolerance:
            row = int((moved > tolerance).nonzero()[0])
            return Finding.at((row, row), moves, most, tolerance, place=place)
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
