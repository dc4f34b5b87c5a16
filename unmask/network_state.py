"""Whether a network in memory is as it was: a run that needs its weights asks, and so does what was loaded from it."""

from collections.abc import Callable, Hashable
from typing import Any

CAPTURING = "transformers.utils.output_capturing"  # its hooks stay after a call with output_attentions, without effect
HOOKS = ("_forward_hooks", "_forward_pre_hooks")  # of a module of torch, by their numbers


class NetworkState:
    """What `of` tells of a network, None if there is none, for comparison later. A copy is that of the copied network,
    whose parameters are others."""

    def __init__(self, network: Any, of: Callable[[Any], Hashable], changed: bool = False) -> None:
        self._network, self._of = network, of
        self._told = None if changed else of(network)

    @property
    def changed(self) -> bool:
        return self._told != self._of(self._network)

    def __reduce__(self) -> tuple[Any, ...]:
        return NetworkState, (self._network, self._of, self.changed)


def weights_in(network: Any) -> Hashable:
    """What changes with the weights, in place too, as an optimizer does, and with where and as what they are stored;
    but for what is written into them through `.data`."""
    weights = () if network is None else network.parameters()
    return tuple(
        (id(one), 0 if one.is_inference() else one._version, one.data_ptr(), one.dtype, one.device) for one in weights
    )


def hooks_and_parameters(network: Any) -> Hashable:
    """What changes when the network gets a hook, or a parameter in another's place."""
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
