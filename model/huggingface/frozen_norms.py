"""Norms that divide by what they divided by before, whoever wrote them.

Every norm of transformers' networks ends in a reciprocal root (of a mean of squares, of a variance) that multiplies, or
in one of torch's own norms. Those are heard while a network's code runs; all else passes.
"""

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

ROOTS = {"rsqrt", "sqrt"}


class FrozenNorms(TorchFunctionMode):
    """kept: the reciprocal deviations of an earlier run of the same code, in their order; None: keep those of this."""

    def __init__(self, kept: list[Tensor] | None = None) -> None:
        super().__init__()
        self.kept: list[Tensor] = []
        self._again = None if kept is None else iter(kept)

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "").strip("_")
        if name == "layer_norm":
            return self._layer_norm(*args, **kwargs)
        if name == "rms_norm":
            return self._rms_norm(*args, **kwargs)
        result = function(*args, **kwargs)
        if name in ROOTS or (name == "pow" and len(args) > 1 and isinstance(args[1], float) and args[1] in (-0.5, 0.5)):
            return self._keep(result)
        return result

    def _keep(self, found: Tensor) -> Tensor:
        if self._again is None:
            self.kept.append(found)
            return found
        return next(self._again)

    def _layer_norm(
        self, x: Tensor, shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
    ) -> Tensor:
        dims = tuple(range(-len(shape), 0))
        centred = x - x.mean(dims, keepdim=True)
        result = centred * self._keep((centred.square().mean(dims, keepdim=True) + eps).rsqrt())
        result = result if weight is None else result * weight
        return result if bias is None else result + bias

    def _rms_norm(self, x: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
        eps = torch.finfo(x.dtype).eps if eps is None else eps
        dims = tuple(range(-len(shape), 0))
        result = x * self._keep((x.square().mean(dims, keepdim=True) + eps).rsqrt())
        return result if weight is None else result * weight


class Uncapped(TorchFunctionMode):
    """A network's head without the cap of its logits: what is as wide as the vocabulary passes tanh as it is."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self._vocabulary = vocabulary
        self.capped = False

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if getattr(function, "__name__", "") == "tanh" and args[0].shape[-1] == self._vocabulary:
            self.capped = True
            return args[0]
        return function(*args, **(kwargs or {}))
