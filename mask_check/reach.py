"""Laws of influence: changing a token changes no output that may not attend to it, and changes some that may."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from i18n import N_, msg, msg_count, msg_together
from mask_check.declared import Declared, LayerMask, cause_of
from mask_check.findings import BROKEN, OBEYS, Finding, MeasuredMask, format_amount, skipped, unknown
from mask_check.rounding import FLOAT64_FACTOR, in_float64, outputs_and_coarsest
from mask_check.subject import CheckedModule, hooks_on, max_difference
from mask_check.trial import CheckTrial
from model.errors import first_line

SUBSTITUTES = 3
FEWEST_SUBSTITUTES = 2
OTHER_ROWS = 10  # more rows in which a pair must have no gradient, because modules may choose keys by content
MORE = 4  # further substitutes for a token whose change changed no output
LEAK = N_(
    "output {row} changes by {size} when token {column} is changed, which its mask blocks. Pairs that leak: {count:,}."
)
SHUT = N_(
    "output {row} has no gradient with respect to token {column}, nor has any other output at this distance, where "
    "its mask is open. Open pairs without a gradient: {silent:,} of {count:,}."
)
UNREAD = N_(
    "output {row} has no gradient with respect to token {column}, nor has any other output before that token, where "
    "its mask is open. Open pairs without a gradient: {silent:,} of {count:,}."
)
NEARBY = N_(
    "Outputs read no token more than {distance} before them, and nothing declares a window. If that is meant, pass "
    'mask="{mask}" (--mask {mask}), or a mask for each layer; if not, mask="causal" counts it as a violation.'
)
SPARSE = N_("No output reads the token {distance} before it, and nothing declares a mask.")
MEANT = N_(
    "If that is meant, pass its mask, bool [{length}, {length}] (True = may attend); if not, "
    'mask="causal" counts it as a violation.'
)
IN_FLOAT64 = N_("Blocked tokens change outputs by at most {size}, in float64 by {less}.")
BY_GRADIENT = N_("Blocked tokens change outputs by at most {size}; the gradients of these pairs are at most {less}.")
ROUNDED, NO_ROUNDING = N_("This is rounding."), N_("This is not rounding.")
IN_IMAGES = N_("with images at 2 to 5 and 8 to 10: {found}")
IMAGES = ("token_type_ids", "mm_token_type_ids")
GRADIENT_SHARE = 0.5  # share of max_rows for gradients: a backward pass costs two forwards
STRICT = N_("No output reads its own token.")  # as with a token put before the row and the last output cut off
UNMOVED = N_(
    "no token changed another's output by more than rounding, not even where the mask allows it: nothing can be "
    "concluded."
)


def measure(trial: CheckTrial) -> MeasuredMask:
    """Measure how much changing each token changes each output, for all tokens or as many as a large module allows."""
    positions = trial.spread(trial.max_rows // FEWEST_SUBSTITUTES)
    substitutes = min(SUBSTITUTES, max(FEWEST_SUBSTITUTES, trial.max_rows // len(positions)))
    moved = torch.full((trial.length, trial.length), torch.nan)
    generator = trial.generator(1)
    _try(trial, moved, positions, substitutes, generator)
    declared = trial.declared.reach
    dead = [j for j in positions if not float(moved[declared[:, j], j].max()) > trial.noise.beside]
    if dead:
        _try(trial, moved, dead, MORE, generator)
    return MeasuredMask(moved.numpy().astype(np.float64), declared.numpy(), trial.noise.beside)


def judge(trial: CheckTrial) -> Finding:
    """Each token in turn is replaced by several others: outputs that may not attend to it under the declared mask do
    not change, and some output that may attend to it does. If a token has no effect at all, the check cannot tell. An
    output need not read its own token.

    Tolerated: rounding. A change larger than between two runs, and no larger than by one additional rounding, is
    tolerated if it is a thousand times smaller in float64; for a module without a copy in float64, if the gradients
    obey. Limits: one row, of --length tokens; in a large module some of its tokens, as the verdict says.
    """
    mask = measure(trial)
    explained, why = _rounding(trial, mask) if mask.leaks.any() else (False, "")
    mask = trial.mask = replace(mask, tolerance=trial.noise.across) if explained else mask
    closed = np.where(mask.declared, 0.0, np.nan_to_num(mask.moved, posinf=np.inf))
    amount = float(closed.max(initial=0.0))
    if mask.leaks.any():
        leaks = [(int(i), int(j)) for i, j in np.argwhere(mask.leaks)]
        size = format_amount(float(mask.moved[leaks[0]]))
        found = Finding.at(leaks[0], LEAK, amount, mask.tolerance, size=size, count=len(leaks))
        cause = cause_of(leaks, trial.declared, earlier_read=bool(np.tril(mask.reaches, -1).any()))
        return found.because(why).because(cause)
    finding = Finding(OBEYS, "", amount, mask.tolerance)
    open_and_moved = mask.reaches & mask.declared
    measured = np.flatnonzero(mask.measured)
    others = mask.declared & ~np.eye(len(mask.declared), dtype=bool)
    own = bool(np.diag(open_and_moved).any()) or not others.any()
    dead = measured[((mask.declared if own else others) & ~open_and_moved.any(axis=0))[:, measured].any(axis=0)]
    if len(dead):
        why = N_("changing token {token} to {tried} other tokens changed no output at all.")
        return unknown(msg(why, token=int(dead[0]), tried=SUBSTITUTES + MORE), finding)
    if others[:, measured].any() and not (open_and_moved & others).any():
        return unknown(msg(UNMOVED), finding)
    words = msg_count(
        "an effect was measured in {seen:,} of {count} open pair and in no blocked one.",
        "an effect was measured in {seen:,} of {count} open pairs and in no blocked one.",
        int(others[:, measured].sum()),
        seen=int((open_and_moved & others)[:, measured].sum()),
    )
    return replace(finding, words=words).because(why).because("" if own else msg(STRICT))


def _rounding(trial: CheckTrial, mask: MeasuredMask) -> tuple[bool, str]:
    """Return whether rounding explains all leaks, and a sentence on what was measured, "" where it cannot be
    rounding."""
    leaks = mask.leaks
    size = float(mask.moved[leaks].max())
    if size > trial.noise.across:
        return False, ""

    def verdict(words: str, less: float, explained: bool) -> tuple[bool, str]:
        measured = msg(words, size=format_amount(size), less=format_amount(less))
        return explained, msg_together([measured, msg(ROUNDED if explained else NO_ROUNDING)])

    precise = in_float64(trial)
    if precise is not None:
        less = float(measure(precise).moved[leaks].max())
        explained = less * FLOAT64_FACTOR < size
        if explained or outputs_and_coarsest(precise.subject, trial.ids[None])[1] == torch.float64:
            return verdict(IN_FLOAT64, less, explained)
    rows = np.flatnonzero(leaks.any(axis=1)).tolist()
    try:
        gradients = measure_gradients(trial, rows)
    except RuntimeError:  # an operation that has no backward
        return False, ""
    if gradients is None or not bool(gradients.any() and gradients.isfinite().all()):
        return False, ""
    less = float(gradients[torch.from_numpy(leaks[rows])].max())
    return verdict(BY_GRADIENT, less, less <= _relative_rounding(trial) * float(gradients.max()))


def _relative_rounding(trial: CheckTrial) -> float:
    """Return the rounding of a gradient as a share of the largest: four times as much in float64, which has no finer
    copy to tell."""
    return torch.finfo(trial.subject.dtype).eps * (4 if trial.subject.dtype == torch.float64 else 1)


def _try(trial: CheckTrial, moved: Tensor, positions: list[int], substitutes: int, generator: torch.Generator) -> None:
    """Change the token at each position `substitutes` times; store each output's largest change in moved [T,T]."""
    rows = trial.ids.repeat(len(positions) * substitutes, 1)
    columns = torch.tensor(positions).repeat_interleave(substitutes)
    own = torch.arange(len(rows))
    rows[own, columns] = trial.other(trial.ids[columns.to(trial.ids.device)], generator)
    done = 0
    for found, base in trial.changed_with_base(rows):
        for difference in max_difference(found, base).cpu():  # [T]
            column = int(columns[done])
            moved[:, column] = torch.fmax(moved[:, column], difference)
            done += 1


def judge_gradients(trial: CheckTrial, surely: Tensor | None = None) -> Finding:
    """The gradient of an output with respect to the embedding of a token that the mask blocks is 0; at every distance
    that the mask allows, some output has a nonzero one. If a module declares no mask, and no output reads a token at
    some distance, the check cannot tell whether that is intended.

    Tolerated: the dtype's epsilon (in float64 four) times the largest gradient, and more where it is a thousand times
    smaller in float64.
    Limits: one row; fewer outputs of a large module; no gradient is taken with respect to an embedding that reads other
    ids than the row's.
    """
    rows = trial.spread(int(trial.max_rows * GRADIENT_SHARE))
    try:
        gradients = measure_gradients(trial, rows)
    except RuntimeError as error:  # an operation that has no backward
        return unknown(msg("no gradient could be taken ({error}).", error=first_line(error)))
    if gradients is None:
        return unknown(msg("no embedding was found that reads the ids: no gradient can be taken."))
    declared = trial.declared.reach[rows]
    largest = float(torch.nan_to_num(gradients, nan=torch.inf).max())
    tolerance = _relative_rounding(trial) * largest if largest < torch.inf else 0.0
    if not bool(gradients.isfinite().all()):
        index, column = (~gradients.isfinite()).nonzero()[0].tolist()
        words = N_("the gradient of output {row} with respect to token {column} is not a number.")
        return Finding.at((rows[index], column), words, torch.inf, tolerance)
    if largest == 0.0:
        return unknown(msg("every gradient is 0, even where the mask is open."))
    closed = torch.where(declared, 0.0, gradients)
    amount = float(closed.max())
    less = _in_float64(trial, rows, declared, amount, tolerance) if amount > tolerance else None
    if less is not None:
        tolerance *= trial.noise.across / trial.noise.beside
    if amount > tolerance:
        index, column = (closed > tolerance).nonzero()[0].tolist()
        words = N_("output {row} has a gradient of {size} with respect to token {column}, which its mask blocks.")
        size = format_amount(float(gradients[index, column]))
        return Finding.at((rows[index], column), words, amount, tolerance, size=size)
    others = declared & (torch.tensor(rows)[:, None] != torch.arange(trial.length))
    if bool(others.any()) and not bool((gradients[others] > 0).any()):
        return unknown(msg("no output has a gradient with respect to another token, not even where the mask is open."))
    near = ""
    if trial.declared.exact:
        shut = zero_grad_pair(trial, gradients, others, rows, None if surely is None else surely[rows])
        numbers = {"silent": int((gradients[others] == 0).sum()), "count": int(others.sum())}
        if shut and not trial.declared.assumed:
            return Finding.at(shut, SHUT, **numbers)
        if shut:
            distance = shut[0] - shut[1]
            near = reads_nearby(trial, gradients, others, rows, distance) or advice(SPARSE, trial.length, distance)
        unread = zero_grad_pair(trial, gradients, others, rows, find=_first_unread)
        if unread:
            return Finding.at(unread, UNREAD, **numbers)
    zero, closed_pairs = int((gradients[~declared] == 0).sum()), int((~declared).sum())
    words = msg_count(
        "exactly 0 in {zero:,} of {count} blocked pair.",
        "exactly 0 in {zero:,} of {count} blocked pairs.",
        closed_pairs,
        zero=zero,
    )
    if less is not None:
        rest = msg(
            "The others are at most {size}, in float64 {less}.", size=format_amount(amount), less=format_amount(less)
        )
        words = msg_together([words, rest, msg(ROUNDED)])
    if not closed_pairs:
        words = msg("its mask blocks no pair.")
    found = Finding(OBEYS, words, amount, tolerance)
    return unknown(msg_together([words, near]), found) if near else found


def reads_nearby(trial: CheckTrial, gradients: Tensor, open_cells: Tensor, rows: list[int], distance: int) -> str:
    """Return a sentence on a module whose outputs read no token `distance` or more before them; "" for another."""

    def obeys(mask: LayerMask) -> bool:
        return not bool(gradients[open_cells & ~mask.allowed(trial.length)[rows]].any())

    if not obeys(LayerMask(window=distance)):
        return ""
    name = "chunk" if obeys(LayerMask(chunk=distance)) else "window"
    return msg(NEARBY, distance=distance - 1, mask=f"{name}:{distance}")


def advice(words: str, short: int, distance: int, **values: int) -> str:
    """Return a sentence on what a module does not read, and how to declare that. short: the length of the short row."""
    return msg_together([msg(words, distance=distance, **values), msg(MEANT, length=short)])


def _in_float64(trial: CheckTrial, rows: list[int], declared: Tensor, amount: float, tolerance: float) -> float | None:
    """Return the largest gradient of a blocked pair in float64 if it shows that `amount` is rounding; else None."""
    if amount * trial.noise.beside > tolerance * trial.noise.across:
        return None
    precise = in_float64(trial)
    gradients = None if precise is None else measure_gradients(precise, rows)
    less = torch.inf if gradients is None else float(gradients[~declared].max())
    return less if less * FLOAT64_FACTOR < amount else None


def _first_zero_grad(
    silent: Tensor, open_cells: Tensor, rows: list[int], surely: Tensor | None
) -> tuple[int, int] | None:
    if surely is not None and bool((silent & surely).any()):
        index, column = (silent & surely).nonzero()[0].tolist()
        return rows[index], column
    length = silent.shape[1]
    for distance in sorted({*range(1 - length, length)} - {0}, key=lambda one: (abs(one), -one)):
        cells = [
            (index, row - distance)
            for index, row in enumerate(rows)
            if 0 <= row - distance < length and bool(open_cells[index, row - distance])
        ]
        if len(cells) > 1 and all(bool(silent[cell]) for cell in cells):
            return rows[cells[0][0]], cells[0][1]
    return None


def _first_unread(
    silent: Tensor, open_cells: Tensor, rows: list[int], _surely: Tensor | None
) -> tuple[int, int] | None:
    """Return a pair whose key no query before it reads, of at least two that may, as at the end of a prefix."""
    for column in range(silent.shape[1]):
        before = [index for index, row in enumerate(rows) if row < column and bool(open_cells[index, column])]
        if len(before) > 1 and bool(silent[before, column].all()):
            return rows[before[0]], column
    return None


def zero_grad_pair(
    trial: CheckTrial, gradients: Tensor, open_cells: Tensor, rows: list[int], surely: Tensor | None = None,
    find: Callable[[Tensor, Tensor, list[int], Tensor | None], tuple[int, int] | None] = _first_zero_grad,
) -> tuple[int, int] | None:  # fmt: skip
    """Return the first pair (i, j) at the nearest distance i − j at which all pairs declared open, at least two, have a
    gradient of exactly 0, for this row of ids and for others: which keys are read may depend on ids. A whole diagonal
    of zeros is a mask; in a single cell the weight may be too small. A pair with a measured effect is not among them:
    its gradient may bypass the embeddings. surely: cells that count even if they are alone. find: what to look for
    instead."""
    seen = None if trial.mask is None else torch.from_numpy(trial.mask.reaches[rows])
    silent = gradients == 0 if seen is None else (gradients == 0) & ~seen
    for offset in range(18, 18 + OTHER_ROWS):
        if find(silent, open_cells, rows, surely) is None:
            return None
        ids = trial.random_rows(1, trial.length, trial.generator(offset))[0]
        again = measure_gradients(replace(trial, ids=ids), rows)
        silent = silent if again is None else silent & (again == 0)
    return find(silent, open_cells, rows, surely)


def measure_gradients(trial: CheckTrial, rows: list[int]) -> Tensor | None:
    """Return the largest gradient of a random mix of the logits at each of `rows` with respect to each id's embeddings,
    [len(rows), T]; None without an embedding."""
    found = []
    for part in torch.tensor(rows).split(max(trial.rows_at_once // 2, 1)):
        ids = trial.ids.expand(len(part), -1)
        with watching_embeddings(trial.subject, ids) as leaves, torch.enable_grad():
            logits = trial.subject.read(trial.subject.call(ids), ids)
            if not leaves:
                return None
            picked = logits[torch.arange(len(part)), part.to(logits.device)]
            picked = picked.masked_fill(~picked.isfinite(), 0.0) if bool(picked.isneginf().any()) else picked
            sign = torch.randint(0, 2, picked.shape, generator=trial.generator(7)).to(picked) * 2 - 1
            each = gradients_by(leaves, (picked * sign).sum())
        found.append(torch.stack([one.float().abs().amax(-1).cpu() for one in each]).amax(0))
    return torch.cat(found)


def gradients_by(leaves: list[Tensor], total: Tensor) -> list[Tensor]:
    """Return the gradient of a number with respect to each leaf; 0 for a leaf that it does not depend on."""
    if not total.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    return list(torch.autograd.grad(total, tuple(leaves), allow_unused=True, materialize_grads=True))


@contextmanager
def watching_embeddings(subject: CheckedModule, ids: Tensor) -> Iterator[list[Tensor]]:
    """Yield a list that is filled with each embedding's output for these ids, as leaves for gradients; a module that
    looks its ids up several times adds several."""
    leaves: list[Tensor] = []

    def keep(_part: nn.Module, arguments: tuple[Any, ...], found: Tensor) -> Tensor | None:
        read = arguments[0] if arguments else None
        if not isinstance(read, Tensor) or read.shape != ids.shape or 2 * int((read == ids).sum()) <= ids.numel():
            return None  # of positions, types or other ids; a module may prepend a token of its own
        if found.shape[:-1] != ids.shape:
            return None  # it depends on positions alone, although it was given the ids
        leaves.append(found.detach().requires_grad_())
        return leaves[-1]

    with subject.uncompiled(), hooks_on(subject.embeddings, keep):
        yield leaves


def judge_images(trial: CheckTrial) -> Finding:
    """Two blocks of image tokens, marked by token_type_ids: an image's tokens attend to each other, and to no later
    ones.

    Measured as influence between tokens. Tolerated: rounding. Limits: modules whose configuration has image_blocks; of
    transformers', those that make such masks from token types alone.
    """
    subject, name = trial.subject, next((one for one in IMAGES if trial.subject.takes(one)), "")
    if not name or not getattr(subject.config, "image_blocks", False) or trial.length < 12:
        return skipped(msg("its configuration declares no image blocks."))
    types = torch.zeros(1, trial.length, dtype=torch.long, device=trial.ids.device)
    types[0, 2:6] = types[0, 8:11] = 1
    number = (types & ~torch.nn.functional.pad(types, (1, 0))[:, :-1].bool().long()).cumsum(-1)[0] * types[0]
    block = ((number[:, None] == number) & (number > 0)).cpu()
    declared = Declared(tuple(layer | block for layer in trial.declared.layers), msg("image blocks"))
    own = replace(trial, subject=copy.copy(subject), declared=declared, mask=None)
    own.subject.row_arguments = {name: types}
    found = judge(own)
    if found.verdict != BROKEN:
        gradients = judge_gradients(own, block & ~torch.eye(trial.length).bool())
        found = gradients if gradients.verdict == BROKEN else found
    obeyed, broken = N_("image tokens see their own image both ways, and nothing later."), IN_IMAGES
    return replace(found, words=msg(broken if found.verdict == BROKEN else obeyed, found=found.words))
