"""Trials in float64, which tell rounding from a small violation: rounding is far smaller in float64, a leak is not."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from mask_check.findings import NOISE_FACTOR, Noise
from mask_check.subject import CheckedModule, TookTooLong, max_difference
from mask_check.trial import CheckTrial, OperationObserver, rounding_of

MAX_IN_FLOAT64, MAX_THOROUGH = 3e7, 5e8  # most parameters of a module to copy, by default and with --thorough
COPY_FACTOR = 2.0  # factor on the noise of a row that has a copy in float64, which also shows leaks that are smaller
FLOAT64_FACTOR = 1000  # rounding is at least this many times smaller in float64, which is 2²⁹ times as fine as float32


def fits_in_float64(trial: CheckTrial) -> bool:
    """Whether the module is small enough for a copy in float64."""
    return trial.subject.parameters <= (MAX_THOROUGH if trial.options.thorough else MAX_IN_FLOAT64)


def in_float64(trial: CheckTrial) -> CheckTrial | None:
    """Return the same trial on a copy in float64; None if the module is too large, is in float64 already, does not run
    in it, or gives other outputs in it."""
    if trial.subject.dtype == torch.float64 or not fits_in_float64(trial):
        return None
    try:
        precise = replace(trial, subject=trial.subject.in_float64(), mask=None)
        same = float(max_difference(precise.alone.to(trial.alone), trial.alone).max())
    except (TookTooLong, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - a copy may fail, or a tensor created inside may keep its dtype
        return None
    return precise if same <= trial.tolerance else None


class LongRowRounding:
    """Tells whether rounding explains a change in a row that is longer than the one whose noise the trial has.

    Rounding is measured when it is first asked for."""

    def __init__(self, trial: CheckTrial) -> None:
        self.given = trial

    @cached_property
    def trial(self) -> CheckTrial:
        """The trial with this row's noise."""
        sampled, precise = self._sampled, self.precise
        if precise is None:
            return sampled
        # functions such as FFTs round without being parts of the module, which the sample rounds once more
        error = float(max_difference(precise.alone.to(sampled.alone), sampled.alone).max())
        rounded = COPY_FACTOR * max(sampled.noise.rounded, error)
        return replace(sampled, noise=replace(sampled.noise, rounded=rounded))

    @cached_property
    def _sampled(self) -> CheckTrial:
        noise = self.given.noise
        rounded = rounding_of(self.given.subject, self.given.ids[None], self.given.seed)[0]
        return replace(self.given, noise=replace(noise, rounded=rounded)) if math.isfinite(rounded) else self.given

    @cached_property
    def precise(self) -> CheckTrial | None:
        return in_float64(self._sampled)

    def explains(self, amount: float, measure: Callable[[CheckTrial], float]) -> bool:
        """Whether an amount is no larger than this row's rounding and, in a copy in float64 if there is one, a thousand
        times smaller. measure: returns the amount in the trial that it is given."""
        small = amount <= self.trial.tolerance
        return small and (self.precise is None or measure(self.precise) * FLOAT64_FACTOR < amount)

    def trial_that_shows(self, amount: float) -> CheckTrial:
        """Return the trial whose tolerance an amount that rounding does not explain exceeds, in float64 if need be."""
        if amount > self.trial.tolerance or self.precise is None:
            return self.trial
        return replace(self.precise, noise=Noise(amount / FLOAT64_FACTOR / NOISE_FACTOR, 0.0))


def outputs_and_coarsest(subject: CheckedModule, ids: Tensor) -> tuple[Tensor, torch.dtype]:
    """Return outputs [T,V] of ids [1,T], and the least precise number type of the tensors computed for them."""
    types: set[torch.dtype] = set()

    def keep(_name: str, _given: Any, found: Any) -> None:
        types.update(one.dtype for one in tensors(found) if one.numel() > 1)

    with OperationObserver(keep), torch.enable_grad():
        outputs = subject.read(subject.call(ids), ids)[0].detach()
    return outputs, max(types, key=lambda one: torch.finfo(one).eps, default=subject.dtype)


def tensors(found: Any) -> Iterator[Tensor]:
    """Yield all floating-point tensors in what a forward returned."""
    if isinstance(found, Tensor):
        if found.is_floating_point():
            yield found
        return
    inside = found.values() if isinstance(found, dict) else found if isinstance(found, tuple | list) else None
    for one in (vars(found).values() if hasattr(found, "__dict__") else ()) if inside is None else inside:
        yield from tensors(one)
