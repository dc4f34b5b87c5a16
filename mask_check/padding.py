"""Laws of padding: a row in a padded batch gives the same outputs as alone, padded on either side with any ids."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from i18n import N_, msg, msg_count
from mask_check.findings import BROKEN, CANNOT_TELL, OBEYS, Finding, format_amount, skipped, unknown
from mask_check.rounding import FLOAT64_FACTOR, in_float64
from mask_check.subject import CheckedModule, max_difference
from mask_check.trial import CheckTrial, OperationObserver, first_above
from model.blocks import positions_of

DIFFERS = N_("with {pads}, output {where} of the row differs by {amount} from the row alone.")
OTHER_DIFFERS = N_("in a batch with a mask, output {where} of an unpadded row differs by {amount} from the row alone.")
SHIFTED = N_(
    "positions are counted from the row's first cell and it takes no position_ids, so a row shifted to the right "
    "has other positions, whatever its pads contain. Pad on the right."
)
NO_MASK = N_(
    "its forward takes no argument named attention_mask: if its padding mask has another name, check a wrapper that "
    "passes it on."
)
COUNTED = N_(
    "What reaches what is the same there, and what the pads contain changes nothing: its mask is obeyed, but it takes "
    "no argument named position_ids and counts positions over pads. Count them over attention_mask, or pad on the "
    "right."
)


def judge(trial: CheckTrial, side: str) -> Finding:
    """In a batch of a short row, padded on this side, and a long one, each gives the same outputs as alone.

    Tolerated: rounding. Limits: position ids are given where the module takes them; one size of padding.
    """
    if why := _why_not(trial):
        return skipped(why)
    ids, keep, real = padded(trial, side)
    found = trial.subject.outputs(ids, keep, **positions(trial.subject, keep, side))
    short, long = trial.difference(found[0, real], trial.part_alone), trial.difference(found[1], trial.alone)
    pads = _pads(trial, side)
    pair: tuple[int, int] | None = (real.start + short.where, int((~keep[0]).nonzero()[0]))
    broken = msg(DIFFERS, pads=pads, **short.values)
    if long.amount > short.amount:
        pair, broken = None, msg(OTHER_DIFFERS, **long.values)
    elif not bool(torch.isfinite(found[0, real]).all()):
        broken = msg("with {pads}, output {where} of the row is not a number.", pads=pads, where=short.where)
    obeyed = msg("{pads}: the row gives the same outputs as alone.", pads=pads)
    finding = trial.finding(max(short.amount, long.amount), broken=broken, obeyed=obeyed, pair=pair)
    no_positions = side == "left" and not trial.subject.has_position_argument
    if finding.verdict != BROKEN or not no_positions or long.amount > trial.tolerance:
        return finding
    if float(_moved(trial, "left").max()) > trial.noise.beside:
        return finding
    if trial.subject.is_transformers_model:
        return skipped(msg(SHIFTED))
    return replace(finding.because(msg(COUNTED)), by_positions=True) if _reaches_as_alone(trial) else finding


def judge_content(trial: CheckTrial) -> Finding:
    """Other ids under the padding mask change no real token's output; the same ids without a mask would.

    Tolerated: rounding; a change larger than between two runs only if it is a thousand times smaller in float64, or if
    experts share the tokens. Limits: one size of padding; on the right only where positions cannot be given.
    """
    if why := _why_not(trial):
        return skipped(why)
    max_change, pair, words = 0.0, None, msg("changing the ids of the pads changes nothing.")
    tolerance = trial.noise.beside  # the same shapes twice, except where experts share the tokens, pads included
    no_positions = trial.subject.has_position_argument and not trial.subject.takes_positions  # it numbers otherwise
    for side in ["right"] if trial.subject.numbers_positions_by_padding or no_positions else ["right", "left"]:
        each = _moved(trial, side)
        amount = float(each.max())
        max_change = max(max_change, amount)
        small = tolerance < amount <= trial.tolerance
        if small and (_sizes_differ(trial, side) or _smaller_in_float64(trial, side, amount)):
            tolerance = trial.tolerance
        if amount > tolerance and pair is None:
            where = first_above(each, tolerance)
            pads = trial.length - trial.part
            pair = (where, trial.part) if side == "right" else (pads + where, 0)
            values = {"pads": _pads(trial, side), "where": where, "moved": format_amount(float(each[where]))}
            words = msg("changing the ids of {pads} changes output {where} of the row by {moved}.", **values)
    finding = Finding(OBEYS if pair is None else BROKEN, words, max_change, tolerance, pair)
    if finding.verdict != BROKEN and float(_moved(trial, "left", masked=False).max()) <= trial.noise.beside:
        return unknown(msg("without a padding mask the same ids change nothing either."), finding)
    return finding


def judge_unpositioned(trial: CheckTrial) -> Finding:
    """A row padded on the left, with its mask and without position_ids, as trainers call it, equals the row alone.

    Tolerated: rounding. Limits: in models of transformers that count from the first cell it is reported but is not a
    fault: they expect position_ids.
    """
    subject = trial.subject
    if why := _why_not(trial):
        return skipped(why)
    if not subject.has_position_argument:
        return skipped(msg("its forward takes no argument named position_ids that could be left out."))
    ids, keep, real = padded(trial, "left")
    broken = N_("padded on the left without position_ids, output {where} differs by {amount}.")
    obeyed = msg("padded on the left without position_ids, the row gives the same outputs as alone.")
    finding = trial.compared(subject.outputs(ids, keep)[0, real], trial.part_alone, broken, obeyed)
    if finding.verdict == BROKEN and subject.is_transformers_model:
        return skipped(msg("it counts positions over pads unless position_ids are given: pass them to it."))
    return finding


def judge_positions(trial: CheckTrial) -> Finding:
    """Other position ids change the outputs: those of two tokens in the middle exchanged, and all reversed.

    Tolerated: rounding counts as no change; in float64 it is a thousand times smaller. Limits: in models of
    transformers it is reported but is not a fault, because some have no positions in any layer; a table of positions
    may begin at 0.
    """
    subject = trial.subject
    if not subject.has_position_argument:
        return skipped(msg("its forward takes no argument named position_ids."))
    others = None if trial.mask is None else trial.mask.reaches & ~np.eye(trial.length, dtype=bool)
    if trial.found["reach"].verdict == CANNOT_TELL and (others is None or not others.any()):
        return unknown(trial.found["reach"].words)  # some output projections are initialized to 0
    counted, middle = torch.arange(trial.length, device=trial.ids.device), trial.length // 2
    exchanged = counted.clone()
    exchanged[[middle - 1, middle]] = counted[[middle, middle - 1]]

    def outputs_at(by: CheckedModule, positions: Tensor) -> Tensor:
        return by.outputs(trial.ids[None], position_ids=positions[None])[0]

    def moved(by: CheckedModule, base: Tensor) -> float:
        return max(float(max_difference(outputs_at(by, one), base).max()) for one in (exchanged, counted.flip(0)))

    def changes(by: CheckedModule) -> float:
        """Return how much other position ids change the outputs; 0 if giving the same ones again does as much."""
        base = outputs_at(by, counted)
        change = moved(by, base)
        return change if change > float(max_difference(outputs_at(by, counted), base).max()) else 0.0

    obeys = Finding(OBEYS, msg("other position_ids change its outputs."), None, trial.tolerance)
    if moved(subject, trial.alone) > trial.tolerance:
        return obeys
    if change := changes(subject):
        precise = in_float64(trial)
        words = N_("other position_ids change its outputs by {size}. Whether this is rounding cannot be told.")
        if precise is None:
            return unknown(msg(words, size=format_amount(change)))
        if changes(precise.subject) * FLOAT64_FACTOR >= change:
            return obeys
    asleep = [name for name, p in subject.inner.named_parameters() if p.ndim > 1 and not p.any()]
    precise = in_float64(trial) if asleep else None
    for name in asleep:
        words = N_("position_ids change nothing while {name} is all 0, as before training.")
        if precise is not None:
            with torch.no_grad():
                parameter = precise.subject.inner.get_parameter(name)
                parameter.copy_(torch.randn(parameter.shape, generator=trial.generator(19)))
        if precise is None or changes(precise.subject):
            return unknown(msg(words, name=name))
    subject.ignores_positions, subject.takes_positions = True, False
    words = msg("position_ids are accepted but change nothing.")
    return unknown(words) if subject.is_transformers_model else Finding(BROKEN, words, change, trial.tolerance)


def padded(trial: CheckTrial, side: str, fill: Tensor | None = None) -> tuple[Tensor, Tensor, slice]:
    """Return a batch of the row's first part, padded, and of the whole row: ids, keep [2,T], and the part's slice."""
    length, part = trial.length, trial.part
    ids, keep = trial.ids.repeat(2, 1), torch.ones(2, length, dtype=torch.bool, device=trial.ids.device)
    real = slice(0, part) if side == "right" else slice(length - part, length)
    ids[0], keep[0] = trial.pad if fill is None else fill, False
    ids[0, real], keep[0, real] = trial.ids[:part], True
    return ids, keep, real


def positions(subject: CheckedModule, keep: Tensor, side: str) -> dict[str, Any]:
    """Return the position ids of a batch padded on the left, counted over its real tokens, as a keyword argument."""
    if side == "right" or not subject.takes_positions:
        return {}
    return {"position_ids": positions_of(keep)}


def _why_not(trial: CheckTrial) -> str:
    if trial.length < 3:
        return msg("the text is too short for a row that needs padding.")
    if trial.subject.kind == "encoder-decoder":
        return msg("an encoder-decoder's padding is in its source: see the check of the source's padding.")
    if trial.subject.takes_mask:
        return ""
    return msg(NO_MASK)


def _two_contents(trial: CheckTrial, side: str) -> list[Tensor]:
    """Return the ids [2,T] of `padded`, and the same with other ids as padding."""
    ids, _, _ = padded(trial, side)
    return [ids, padded(trial, side, trial.other(ids[0], trial.generator(2)))[0]]


def _moved(trial: CheckTrial, side: str, *, masked: bool = True) -> Tensor:
    """Return how much other padding ids change the row's outputs, [T']. Unmasked they should: the positive control."""
    _, keep, real = padded(trial, side)
    more = positions(trial.subject, keep, side) if masked else {}
    keep = keep if masked else torch.ones_like(keep)
    return max_difference(*(trial.subject.outputs(ids, keep, **more)[0, real] for ids in _two_contents(trial, side)))


def _reaches_as_alone(trial: CheckTrial) -> bool:
    """Whether changing a token changes the same outputs in a row padded on the left as in the row alone: a mask that
    takes pads for tokens, or tokens for pads, changes others."""
    if trial.mask is None:
        return False
    ids, keep, real = padded(trial, "left")
    base, changed = trial.subject.outputs(ids, keep)[0, real], trial.other(trial.ids, trial.generator(20))
    for token in range(trial.part):
        if not trial.mask.measured[token]:
            continue
        other = ids.clone()
        other[0, real.start + token] = changed[token]
        moved = max_difference(trial.subject.outputs(other, keep)[0, real], base).cpu().numpy() > trial.noise.beside
        if not np.array_equal(moved, trial.mask.reaches[: trial.part, token]):
            return False
    return True


def _smaller_in_float64(trial: CheckTrial, side: str, amount: float) -> bool:
    """Whether the change caused by other padding ids is rounding, as its size in float64 shows."""
    precise = in_float64(trial)
    return precise is not None and float(_moved(precise, side).max()) * FLOAT64_FACTOR < amount


def _sizes_differ(trial: CheckTrial, side: str) -> bool:
    """Whether the content of the padding changes the shapes of matrix products, and so the order of sums."""
    _, mask, _ = padded(trial, side)
    sizes: list[list[Any]] = []

    def keep(name: str, given: list[Any], _found: Any) -> None:
        if "mm" in name:  # of a grouped product, the groups' sizes too
            factors = (one for one in given if isinstance(one, Tensor))
            sizes[-1] += [list(one.shape) if one.is_floating_point() else one.tolist() for one in factors]

    for ids in _two_contents(trial, side):
        sizes.append([])
        with OperationObserver(keep):
            trial.subject.outputs(ids, mask, **positions(trial.subject, mask, side))
    return sizes[0] != sizes[1]


def _pads(trial: CheckTrial, side: str) -> str:
    count = trial.length - trial.part
    if side == "left":
        return msg_count("{count} pad on the left", "{count} pads on the left", count)
    return msg_count("{count} pad on the right", "{count} pads on the right", count)
