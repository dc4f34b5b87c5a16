"""Law 7: d output_i / d embedding_j is 0 where the mask is closed.

A lucky substitute can leave an output as it was; a gradient does not ask what stands there instead. One backward pass a
row, from all logits of position i in random proportion. Behind a mask it is exactly 0, so that what is tolerated is no
more than the number type's own epsilon of the largest gradient.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from i18n import N_, say, together
from mask_check.findings import BROKEN, OBEYS, Finding
from mask_check.subject import CheckedModule
from mask_check.trial import CheckTrial, unknown, written
from model.errors import first_line

LAW, NAME = "gradients", N_("Gradients behind the mask")
MOST_WORK = 0.5  # of the rows that law 1 may take: a backward pass costs two forwards


def judge(trial: CheckTrial) -> Finding:
    """Gradients [T,T] against the declared mask."""
    rows = _rows(trial)
    try:
        gradients = measure(trial, rows)
    except RuntimeError as error:  # an operation that has no backward
        return unknown(LAW, NAME, say("no gradient could be taken ({error}).", error=first_line(error)))
    if gradients is None:
        why = say("no embedding was found that reads the ids, so there is nothing to differentiate with respect to.")
        return unknown(LAW, NAME, why)
    declared = trial.declared.reach[rows]
    largest = float(torch.nan_to_num(gradients, nan=torch.inf).max())
    tolerance = torch.finfo(trial.subject.dtype).eps * largest if largest < torch.inf else 0.0
    if not bool(gradients.isfinite().all()):
        row, column = [int(one) for one in (~gradients.isfinite()).nonzero()[0]]
        words = say(
            "the gradient of output {row} with respect to token {column} is not a number.", row=rows[row], column=column
        )
        return Finding(LAW, NAME, BROKEN, words, torch.inf, tolerance, (rows[row], column))
    if largest == 0.0:
        return unknown(LAW, NAME, say("every gradient is 0, even where the mask is open."))
    closed = torch.where(declared, 0.0, gradients)
    amount = float(closed.max())
    if amount > tolerance:
        row, column = [int(one) for one in (closed > tolerance).nonzero()[0]]
        size = float(gradients[row, column])
        words = say("output {row} has a gradient of {size} with respect to token {column}, which its mask closes.",
                    row=rows[row], size=written(size), column=column)  # fmt: skip
        return Finding(LAW, NAME, BROKEN, words, amount, tolerance, (rows[row], column))
    others = declared & (torch.tensor(rows)[:, None] != torch.arange(trial.length))
    if bool(others.any()) and not bool((gradients[others] > 0).any()):
        return unknown(
            LAW, NAME, say("no output has a gradient with respect to another token, not even where the mask is open.")
        )
    if trial.declared.exact:
        shut = shut_distances(gradients, others, rows)
        if shut:
            _, row, column = shut
            silent = int((gradients[others] == 0).sum())
            count = int(others.sum())
            all_open = say("{silent:,} of {count:,} open pairs are silent.", silent=silent, count=count)
            words = together([_shut_words(*shut), all_open])
            return Finding(LAW, NAME, BROKEN, words, pair=(row, column), silent=silent)
    count, closed_pairs = int((gradients[~declared] == 0).sum()), int((~declared).sum())
    words = say("exactly 0 in {count:,} of {closed:,} closed pairs.", count=count, closed=closed_pairs)
    if not closed_pairs:
        words = say("its mask closes no pair.")
    return Finding(LAW, NAME, OBEYS, words, amount, tolerance)


def _shut_words(distance: int, row: int, column: int) -> str:
    if distance > 0:
        return say(
            "the mask is declared open {distance} back, but no output has a gradient that far: that of output {row} "
            "with respect to token {column} is 0, like all others at this distance.",
            distance=distance, row=row, column=column,
        )  # fmt: skip
    return say(
        "the mask is declared open {distance} ahead, but no output has a gradient that far: that of output {row} with "
        "respect to token {column} is 0, like all others at this distance.",
        distance=-distance, row=row, column=column,
    )  # fmt: skip


def shut_distances(gradients: Tensor, open_cells: Tensor, rows: list[int]) -> tuple[int, int, int] | None:
    """The nearest distance i − j at which every pair declared open, two at least, has a gradient of exactly 0.

    With its first pair (i, j). A whole diagonal that is shut is a mask; a single cell may be a weight too small.
    """
    for distance in sorted(
        {*range(-gradients.shape[1] + 1, gradients.shape[1])} - {0}, key=lambda one: (abs(one), -one)
    ):
        cells = [
            (place, row - distance)
            for place, row in enumerate(rows)
            if 0 <= row - distance < gradients.shape[1] and bool(open_cells[place, row - distance])
        ]
        if len(cells) > 1 and all(float(gradients[cell]) == 0.0 for cell in cells):
            place, column = cells[0]
            return distance, rows[place], column
    return None


def measure(trial: CheckTrial, rows: list[int]) -> Tensor | None:
    """[len(rows), T]: the largest gradient of a random mix of a row's logits by every embedding; None without one."""
    found = []
    at_once = max(trial.rows_at_once // 2, 1)
    for part in torch.tensor(rows).split(at_once):
        with watching_embedding(trial.subject, trial.ids.expand(len(part), -1)) as leaves, torch.enable_grad():
            logits = trial.subject.read(
                trial.subject.call(trial.ids.expand(len(part), -1)), trial.ids.expand(len(part), -1)
            )
            if not leaves:
                return None
            picked = logits[torch.arange(len(part)), part.to(logits.device)]
            picked = picked.masked_fill(~picked.isfinite(), 0.0) if bool(picked.isneginf().any()) else picked
            sign = torch.randint(0, 2, picked.shape, generator=trial.generator(7)).to(picked) * 2 - 1
            (gradient,) = torch.autograd.grad((picked * sign).sum(), leaves[:1])
        found.append(gradient.float().abs().amax(-1).cpu())
    return torch.cat(found)


@contextmanager
def watching_embedding(subject: CheckedModule, ids: Tensor) -> Iterator[list[Tensor]]:
    """While it lasts, what an embedding makes of these ids is kept, as a tensor that gradients are taken by."""
    leaves: list[Tensor] = []

    def keep(_part: nn.Module, arguments: tuple[Any, ...], found: Tensor) -> Tensor | None:
        read = arguments[0] if arguments else None
        if leaves or not isinstance(read, Tensor) or read.shape != ids.shape or not torch.equal(read, ids):
            return None
        leaves.append(found.detach().requires_grad_())
        return leaves[0]

    hooks = [part.register_forward_hook(keep) for part in subject.module.modules() if isinstance(part, nn.Embedding)]
    try:
        yield leaves
    finally:
        for hook in hooks:
            hook.remove()


def _rows(trial: CheckTrial) -> list[int]:
    most = max(int(trial.most_rows * MOST_WORK), 4)
    if most >= trial.length:
        return list(range(trial.length))
    return sorted({round(one) for one in torch.linspace(0, trial.length - 1, most).tolist()})
