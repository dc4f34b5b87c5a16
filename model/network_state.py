"""Whether a network in memory is as it was, which whatever was computed from its weights asks before it is used."""

import math
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

CAPTURING = "transformers.utils.output_capturing"  # its hooks stay after a call with output_attentions, without effect
SAMPLES = 1024  # how many numbers of each weight are compared
HOOKS = ("_forward_hooks", "_forward_pre_hooks")  # of a module of torch, by their numbers


class NetworkState:
    """What `of` tells of a network, None if there is none, for comparison later. A copy is that of the copied network,
    whose parameters are others."""

    def __init__(self, network: Any, of: Callable[[Any], Hashable], changed: bool = False) -> None:
        self._network, self._of = network, of
        self._fingerprint = None if changed else of(network)

    @property
    def changed(self) -> bool:
        return self._fingerprint != self._of(self._network)

    def __reduce__(self) -> tuple[Any, ...]:
        return NetworkState, (self._network, self._of, self.changed)


def weights_in(network: Any) -> Hashable:
    """A value that changes with the weights, also in place, and with their device and type. Fused optimizers and writes
    through `.data` change no version of a tensor, so some numbers of each are compared as well."""
    if network is None:
        return ()
    buffers = (
        one
        for part in network.modules()
        for name, one in part._buffers.items()
        if one is not None and name not in part._non_persistent_buffers_set  # what is computed from the configuration
    )
    return tuple(map(_fingerprint, (*network.parameters(), *buffers)))


def _fingerprint(weight: Tensor) -> Hashable:
    found = id(weight), weight.dtype, weight.device, 0 if weight.is_inference() else weight._version
    with suppress(NotImplementedError, RuntimeError):  # on no device, or of a quantized kind without plain numbers
        numbers = weight.detach()
        step, row = max(numbers.numel() // SAMPLES, 1), numbers.shape[-1] if numbers.ndim else 1
        while math.gcd(step, row) > 1:  # of every column
            step += 1
        some = numbers.flatten()[::step].cpu().contiguous()
        return *found, some.view(torch.uint8).numpy().tobytes()
    return found


def hooks_and_parameters(network: Any) -> Hashable:
    """A value that changes when the network gets a hook, or when a parameter is replaced."""
    if network is None:
        return frozenset()
    hooks = {
        (name, kind, number)
        for name, module in network.named_modules()
        for kind in HOOKS
        for number, hook in getattr(module, kind, {}).items()
        if getattr(hook, "__module__", None) != CAPTURING
    }
    return frozenset(hooks | {(name, id(weight)) for name, weight in network.named_parameters()})
