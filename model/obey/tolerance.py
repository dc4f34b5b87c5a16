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

from model.obey.findings import Noise
from model.obey.subject import Subject, apart

ROUNDS = 3


def noise_of(subject: Subject, ids: Tensor, company: Tensor, seed: int) -> Noise:
    """ids [1,T]: the row. company [N,T]: other rows, which stand in the batch with it once."""
    alone = subject.outputs(ids.expand(1 + len(company), -1))
    twice = subject.outputs(ids.expand(1 + len(company), -1))
    beside = subject.outputs(torch.cat([ids, company]))
    base, rounded = alone[:1], _rounded(subject, ids, seed)
    finite = base[base.isfinite()]
    floor = torch.finfo(subject.dtype).eps * float(finite.abs().max()) if finite.numel() else 0.0
    repeated = max(float(apart(base, found).max()) for found in (alone, twice))
    mixed = min(float(apart(base, beside[:1]).max()), rounded)  # more than that is no rounding: see the law of batches
    return Noise(max(repeated, mixed, floor), rounded)


def _rounded(subject: Subject, ids: Tensor, seed: int) -> float:
    base, most = subject.outputs(ids), 0.0
    generator = torch.Generator().manual_seed(seed)
    for _ in range(ROUNDS):
        with rounded_once_more(subject.module, generator):
            most = max(most, float(apart(base, subject.outputs(ids)).max()))
    return most


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

    hooks = [
        part.register_forward_hook(lambda part, _arguments, found: move(part, found))
        for part in module.modules()
        if next(part.children(), None) is None
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class Products(TorchDispatchMode):
    """While it lasts, sizes gets those of all factors of matrix products, and in which groups they are multiplied."""

    def __init__(self) -> None:
        super().__init__()
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
    return max(torch.finfo(found.dtype).eps, torch.finfo(kept_in).eps / 2 * terms**0.5)
