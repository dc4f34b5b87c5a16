"""How much rounding alone moves a module's outputs: measured on the module itself, in its own number type.

Monte Carlo arithmetic (Parker 1997): the same input again, with the output of every innermost part moved up or down at
random by as much as rounding may: one unit in the last place, and for a sum of K products u·√K, the growth that random
rounding errors have (Higham and Mary 2019, "A New Approach to Probabilistic Rounding Error Analysis"). What that does
to the outputs is what another order of the same sums may do; a mask that is obeyed may not do more.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from i18n import N_, msg
from mask_check.findings import SAFETY, CannotCheck, Noise
from mask_check.subject import CheckedModule, apart, hooked

ROUNDS = 3
CHANGES = N_(
    "in eval mode the same {count} tokens give outputs that differ by {amount} from one run to the next, more than "
    "rounding explains"
)
RANDOM = N_(
    "in eval mode the same {count} tokens give outputs that differ by {amount} from one run to the next and agree "
    "where torch's random numbers are the same: dropout, or something else random, is active. F.dropout needs "
    "training=self.training"
)


def noise_of(subject: CheckedModule, ids: Tensor, company: Tensor, seed: int) -> Noise:
    """ids [1,T]: the row. company [N,T]: other rows, which stand in the batch with it once.

    Sets subject.one_row where the rows of a batch change each other by more than rounding. Raises CannotCheck for a
    module that gives other outputs for the same ids each time.
    """
    copies, again = (subject.batch_outputs(ids.expand(1 + len(company), -1)) for _ in range(2))
    beside = subject.batch_outputs(torch.cat([company, ids]))
    rounded, base, steady = _rounded(subject, ids, seed)
    finite = copies[copies.isfinite()]
    floor = torch.finfo(subject.dtype).eps * float(finite.abs().max()) if finite.numel() else 0.0
    repeated = float(apart(copies, again).max())
    most = SAFETY * max(rounded, floor)
    if repeated > most:
        drawn = steady <= most < float(apart(base, subject.outputs(ids)).max())
        values = {"count": ids.shape[1], "amount": f"{repeated:.3g}"}
        raise CannotCheck(msg(RANDOM if drawn else CHANGES, **values))
    mixed = max(float(apart(copies[:1], copies).max()), float(apart(copies[-1:], beside[-1:]).max()))
    subject.one_row = mixed > most
    return Noise(max(repeated, min(mixed, rounded), floor), rounded)


def _rounded(subject: CheckedModule, ids: Tensor, seed: int) -> tuple[float, Tensor, float]:
    """How much rounding moves the outputs of ids, those outputs, and how much running ids once more moves them, where
    all runs draw the same random numbers."""
    with subject.uncompiled():
        return _rounded_as_it_is(subject, ids, seed)


def _rounded_as_it_is(subject: CheckedModule, ids: Tensor, seed: int) -> tuple[float, Tensor, float]:
    with _same_random_numbers(subject.device):
        base = subject.outputs(ids)
    with _same_random_numbers(subject.device):
        steady = float(apart(base, subject.outputs(ids)).max())
    most = 0.0
    generator = torch.Generator().manual_seed(seed)
    for _ in range(ROUNDS):
        with rounded_once_more(subject.module, generator), _same_random_numbers(subject.device):
            most = max(most, float(apart(base, subject.outputs(ids)).max()))
    return most, base, steady


@contextmanager
def _same_random_numbers(device: torch.device) -> Iterator[None]:
    """While it lasts, torch draws the numbers that follow one seed; afterwards it goes on as if nothing had been."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(0)
        yield


@contextmanager
def rounded_once_more(module: nn.Module, generator: torch.Generator) -> Iterator[None]:
    """While it lasts, every innermost part's output is multiplied by 1 + or - what rounding may come to in it."""

    def move(part: nn.Module, found: Any) -> Any:
        if isinstance(found, Tensor) and found.is_floating_point():
            sign = torch.randint(0, 2, found.shape, generator=generator).to(found) * 2 - 1
            return found * (1 + sign * rounding_of(part, found))
        if type(found) is tuple:
            return tuple(move(part, one) for one in found)
        return found

    innermost = (part for part in module.modules() if next(part.children(), None) is None)
    with hooked(innermost, lambda part, _arguments, found: move(part, found)):
        yield


class Products(TorchDispatchMode):
    """While it lasts, sizes gets those of all factors of matrix products, and in which groups they are multiplied."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch gives its dispatch modes no types
        self.sizes: list[list[int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "mm" in func.__name__:
            factors = [one for one in (*args, *(kwargs or {}).values()) if isinstance(one, Tensor)]
            self.sizes += [list(one.shape) if one.is_floating_point() else one.tolist() for one in factors]
        return func(*args, **(kwargs or {}))


def rounding_of(part: nn.Module, found: Tensor) -> float:
    """How far, relative to it, one output of a part may be rounded. Sums of half precision are kept in float32."""
    weight = getattr(part, "weight", None)
    terms = 1
    if isinstance(weight, Tensor) and weight.ndim > 1 and not isinstance(part, nn.Embedding):
        terms = max(weight.numel() // max(found.shape[-1], 1), 1)
    kept_in = torch.float64 if found.dtype == torch.float64 else torch.float32
    return float(max(torch.finfo(found.dtype).eps, torch.finfo(kept_in).eps / 2 * terms**0.5))
