"""How much rounding alone moves a module's outputs: measured on the module itself, in its own number type.

Monte Carlo arithmetic (Parker 1997, "Monte Carlo Arithmetic"): the same input again, with the output of every innermost
part moved by one unit in the last place, up or down at random. What that does to the outputs is what another order of
the same sums may do; a mask that is obeyed may not do more.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from model.obey.subject import Subject, apart

ROUNDS = 3
SAFETY = 4.0  # over the largest of ROUNDS draws: two runs are compared, and a draw need not be the worst case


def noise_of(subject: Subject, ids: Tensor, seed: int) -> float:
    """The largest change of an output that the same run twice, or one more rounding in every part, makes."""
    base = subject.outputs(ids)
    most = float(apart(base, subject.outputs(ids)).max())
    generator = torch.Generator(device="cpu").manual_seed(seed)
    for _ in range(ROUNDS):
        with rounded_once_more(subject.module, generator):
            most = max(most, float(apart(base, subject.outputs(ids)).max()))
    finite = base[base.isfinite()]
    floor = torch.finfo(subject.dtype).eps * float(finite.abs().max()) if finite.numel() else 0.0
    return max(most, floor)


def tolerance_of(noise: float) -> float:
    """What counts as no change."""
    return SAFETY * noise


@contextmanager
def rounded_once_more(module: nn.Module, generator: torch.Generator) -> Iterator[None]:
    """While it lasts, every innermost part's output is multiplied by 1 + or - its number type's epsilon."""

    def moved(found: Any) -> Any:
        if isinstance(found, Tensor) and found.is_floating_point():
            sign = torch.randint(0, 2, found.shape, generator=generator).to(found) * 2 - 1
            return found * (1 + sign * torch.finfo(found.dtype).eps)
        if type(found) is tuple:
            return tuple(moved(one) for one in found)
        return found

    hooks = [
        part.register_forward_hook(lambda _part, _arguments, found: moved(found))
        for part in module.modules()
        if next(part.children(), None) is None
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
