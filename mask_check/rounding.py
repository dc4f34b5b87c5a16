"""Whether a small violation is rounding: in float64 rounding is far smaller, a leak is not."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mask_check.subject import CheckedModule, TookTooLong, apart
from mask_check.trial import CheckTrial, OperationObserver

MAX_IN_FLOAT64, MAX_THOROUGH = 3e7, 5e8  # parameters of a module that is copied, by default and with --thorough
FLOAT64_FACTOR = (
    1000  # how many times smaller rounding is in float64 at the least; float64 is 2²⁹ times as fine as float32
)


def fits_in_float64(trial: CheckTrial) -> bool:
    """Whether the module is small enough for a copy in float64."""
    return trial.subject.parameters <= (MAX_THOROUGH if trial.asked.thorough else MAX_IN_FLOAT64)


def in_float64(trial: CheckTrial) -> CheckTrial | None:
    """The same trial on a copy in float64. None if the module is too large, is in float64 already, does not run in it,
    or gives other outputs in it."""
    if trial.subject.dtype == torch.float64 or not fits_in_float64(trial):
        return None
    try:
        precise = replace(trial, subject=trial.subject.in_float64(), mask=None)
        same = float(apart(precise.alone.to(trial.alone), trial.alone).max())
    except (TookTooLong, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - it cannot be copied, or a tensor that it makes itself has another type
        return None
    return precise if same <= trial.tolerance else None


def outputs_and_coarsest(subject: CheckedModule, ids: Tensor) -> tuple[Tensor, torch.dtype]:
    """Outputs [T,V] of ids [1,T], and the least precise number type of the tensors that were made for them."""
    types: set[torch.dtype] = set()

    def keep(_name: str, _given: Any, found: Any) -> None:
        types.update(one.dtype for one in tensors(found) if one.numel() > 1)

    with OperationObserver(keep), torch.enable_grad():
        outputs = subject.read(subject.call(ids), ids)[0].detach()
    return outputs, max(types, key=lambda one: torch.finfo(one).eps, default=subject.dtype)


def tensors(found: Any) -> Iterator[Tensor]:
    """All floating-point tensors in what a forward returned."""
    if isinstance(found, Tensor):
        if found.is_floating_point():
            yield found
        return
    inside = found.values() if isinstance(found, dict) else found if isinstance(found, tuple | list) else None
    for one in (vars(found).values() if hasattr(found, "__dict__") else ()) if inside is None else inside:
        yield from tensors(one)
