"""Law 1: changing a token moves nothing that its mask closes, and does move what it opens.

Every position's token is replaced by several others in turn. A change that arrives nowhere proves nothing: it may be
the token that is dead, not the way. So each must be seen to arrive somewhere, or the answer is "cannot tell".
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from i18n import N_, say, say_count
from mask_check.findings import BROKEN, OBEYS, Finding, MeasuredMask
from mask_check.subject import apart
from mask_check.trial import CheckTrial, unknown, written

LAW, NAME = "reach", N_("What reaches what")
SUBSTITUTES = 3
FEWEST_SUBSTITUTES = 2
MORE = 4  # further substitutes for a token whose change arrived nowhere


def positions(trial: CheckTrial) -> list[int]:
    """The positions whose tokens are changed: all, or as many as a large module allows, both ends among them."""
    most = max(trial.most_rows // FEWEST_SUBSTITUTES, 4)
    if most >= trial.length:
        return list(range(trial.length))
    return sorted({round(place) for place in np.linspace(0, trial.length - 1, most)})


def measure(trial: CheckTrial) -> MeasuredMask:
    """How far changing each token moves each output."""
    places = positions(trial)
    substitutes = min(SUBSTITUTES, max(FEWEST_SUBSTITUTES, trial.most_rows // len(places)))
    moved = torch.full((trial.length, trial.length), torch.nan)
    generator = trial.generator(1)
    _try(trial, moved, places, substitutes, generator)
    declared = trial.declared.reach
    dead = [j for j in places if not float(moved[declared[:, j], j].max()) > trial.noise.beside]
    if dead:
        _try(trial, moved, dead, MORE, generator)
    return MeasuredMask(moved.numpy().astype(np.float64), declared.numpy(), trial.noise.beside)


def judge(trial: CheckTrial, mask: MeasuredMask) -> Finding:
    """Nothing arrives where the declared mask is closed, and something where it is open."""
    closed = np.where(mask.declared, 0.0, np.nan_to_num(mask.moved, posinf=np.inf))
    amount = float(closed.max(initial=0.0))
    if mask.leaks.any():
        row, column = first_pair(mask.leaks)
        count = int(mask.leaks.sum())
        words = _leak_words(row, column, written(float(mask.moved[row, column])), count)
        return Finding(LAW, NAME, BROKEN, words, amount, mask.tolerance, (row, column))
    finding = Finding(LAW, NAME, OBEYS, "", amount, mask.tolerance)
    open_and_moved = mask.reaches & mask.declared
    measured = np.flatnonzero(mask.measured)
    dead = [int(j) for j in measured if not open_and_moved[:, j].any()]
    if dead:
        why = say("changing token {token} moved no output at all, with {tried} other tokens.",
                  token=dead[0], tried=SUBSTITUTES + MORE)  # fmt: skip
        return unknown(LAW, NAME, why, finding)
    others = mask.declared & ~np.eye(len(mask.declared), dtype=bool)
    if others[:, measured].any() and not (open_and_moved & others).any():
        why = say("no token moved the output of another, not even where the mask allows it: nothing can be concluded.")
        return unknown(LAW, NAME, why, finding)
    share = (open_and_moved & others)[:, measured].sum()
    words = say("{seen:,} of {all:,} open pairs were seen to be open, and no closed one.",
                seen=int(share), all=int(others[:, measured].sum()))  # fmt: skip
    return Finding(LAW, NAME, OBEYS, words, amount, mask.tolerance)


def _leak_words(row: int, column: int, size: str, count: int) -> str:
    """What the first leaking pair, of so many, shows."""
    told: dict[str, Any] = {"row": row, "column": column, "size": size}
    if column > row:
        return say_count(
            "output {row} moves by {size} when token {column} is changed: it sees a later token.",
            "output {row} moves by {size} when token {column} is changed: it sees a later token, one of {count} pairs.",
            count, **told,
        )  # fmt: skip
    return say_count(
        "output {row} moves by {size} when token {column} is changed: it sees a token that its mask closes.",
        "output {row} moves by {size} when token {column} is changed: it sees a token that its mask closes, one of "
        "{count} pairs.",
        count, **told,
    )  # fmt: skip


def first_pair(cells: np.ndarray) -> tuple[int, int]:
    """The first True cell, row by row."""
    row, column = np.argwhere(cells)[0]
    return int(row), int(column)


def _try(trial: CheckTrial, moved: Tensor, places: list[int], substitutes: int, generator: torch.Generator) -> None:
    """Change every place's token `substitutes` times; keep in moved [T,T] the largest change of each output."""
    rows = trial.ids.repeat(len(places) * substitutes, 1)
    columns = torch.tensor(places).repeat_interleave(substitutes)
    own = torch.arange(len(rows))
    rows[own, columns] = trial.other(trial.ids[columns.to(trial.ids.device)], generator)
    done = 0
    for found, base in trial.changed_beside_base(rows):
        for difference in apart(found, base).cpu():  # [T]
            column = int(columns[done])
            moved[:, column] = torch.fmax(moved[:, column], difference)
            done += 1
