"""The residual stream of a transformers network: the input of its first layer, the output of each layer, and the
modules after the last one (a final norm, a projection), found by which module reads what.

The hooks are registered once, when a model is loaded, and do nothing unless this thread is reading.
Sizes: B rows, T tokens, W width.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from i18n import N_, msg
from model.base import Residuals, StreamEdit
from model.errors import NotSupported

NO_LIST = N_(
    "Its layers are not a list that each token's state passes through, so the states after each of them are "
    "not available"
)
TOLERANCE = 1e-5  # of the largest state
ROOTS = {"rsqrt", "sqrt"}


class FrozenNorms(TorchFunctionMode):
    """Norms that divide by the deviations of another run. kept: their reciprocals in an earlier run of the same code,
    in their order; None: keep those of this run."""

    def __init__(self, kept: list[Tensor] | None = None) -> None:
        super().__init__()
        self.kept: list[Tensor] = []
        self._again = None if kept is None else iter(kept)

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
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
        result = self._rms_norm(x - x.mean(tuple(range(-len(shape), 0)), keepdim=True), shape, weight, eps)
        return result if bias is None else result + bias

    def _rms_norm(self, x: Tensor, shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
        eps = torch.finfo(x.dtype).eps if eps is None else eps
        result = x * self._keep((x.square().mean(tuple(range(-len(shape), 0)), keepdim=True) + eps).rsqrt())
        return result if weight is None else result * weight


class Uncapped(TorchFunctionMode):
    """A network's head without the softcap of its logits: tanh of a tensor as wide as the vocabulary does nothing."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self._vocabulary = vocabulary
        self.capped = False

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(function, "__name__", "") == "tanh" and args[0].shape[-1] == self._vocabulary:
            self.capped = True
            return args[0]
        return function(*args, **(kwargs or {}))


@dataclass(frozen=True, eq=False)
class LayerCall:
    """A layer and its arguments."""

    module: nn.Module
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def again(self, x: Tensor, module: nn.Module) -> Tensor:
        """The output of module, this layer or its replacement, on another stream [B,T,W]."""
        if self.arguments:
            return cast(Tensor, _tensor(module(x, *self.arguments[1:], **self.options)))
        return cast(Tensor, _tensor(module(**self.options | {"hidden_states": x})))


@dataclass(eq=False)
class ResidualStreams:
    """What was read of a run. streams: the input of the first layer and the output of each; entered: the input of each.
    before, calls: the modules outside the list of layers with their input and output, called before the first layer
    and, at the end of the run, after the last. entering: changes what enters a layer.
    """

    streams: list[Tensor] = field(default_factory=list)
    entered: list[Tensor] = field(default_factory=list)
    layers: list[LayerCall] = field(default_factory=list)
    before: list[tuple[nn.Module, Tensor, Tensor]] = field(default_factory=list)
    calls: list[tuple[nn.Module, Tensor, Tensor]] = field(default_factory=list)
    entering: StreamEdit | None = None


_READING: ContextVar[ResidualStreams | None] = ContextVar("_READING", default=None)  # by this thread


class ResidualHooks:
    """Hooks on a stack, whose list of layers is its submodule `path`; None if there is no such list."""

    def __init__(self, stack: nn.Module, path: str | None) -> None:
        self._known = path is not None
        if path is None:
            return
        holder = stack
        for name in path.split("."):  # on every level down to the list, the modules outside it
            for other, module in holder.named_children():
                if other != name:
                    module.register_forward_hook(_called, with_kwargs=True)
            holder = holder.get_submodule(name)
        for layer in holder.children():
            layer.register_forward_pre_hook(_enter, with_kwargs=True)
            layer.register_forward_hook(_leave)

    @contextmanager
    def reading(self, entering: StreamEdit | None = None) -> Iterator[ResidualStreams]:
        """Within it, this thread's run of the stack is read, with what entering makes of each layer's input. Raises
        NotSupported for a stack without such a list."""
        if not self._known:
            raise NotSupported(msg(NO_LIST))
        read = ResidualStreams(entering=entering)
        token = _READING.set(read)
        try:
            yield read
        finally:
            _READING.reset(token)


def residuals(read: ResidualStreams, states: Tensor) -> Residuals:
    """The residual stream of a run that ended in states [B,T,W].

    Raises NotSupported unless the modules after the last layer make those states of its output.
    """
    if not read.streams or any(stream.shape != read.streams[0].shape for stream in read.streams):
        raise NotSupported(msg(NO_LIST))
    here, after = read.streams[-1], []
    for module, given, made in read.calls:
        if given.data_ptr() == here.data_ptr() and given.shape == here.shape:
            after.append(module)
            here = made

    def final(stream: Tensor) -> Tensor:
        return reduce(lambda x, module: _tensor(module(x)), after, stream)

    ends, most = final(read.streams[-1]), TOLERANCE * max(float(states.abs().max()), 1.0)
    if ends.shape != states.shape or not float((ends - states).abs().max()) <= most:
        raise NotSupported(msg("What follows its last layer is not a norm or projection that Unmask can find"))
    return Residuals(tuple(read.streams), final)


def _enter(
    module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The layer's arguments, where they are changed."""
    read = _READING.get()
    given = arguments[0] if arguments else options.get("hidden_states")
    if read is None or not isinstance(given, Tensor):
        return None
    if read.entering is not None:
        given = read.entering(len(read.layers), given)
        arguments = (given, *arguments[1:]) if arguments else ()
        options = options if arguments else options | {"hidden_states": given}
    read.layers.append(LayerCall(module, arguments, options))
    read.entered.append(given)
    if not read.streams:
        read.streams.append(given)
        read.before = list(read.calls)
    return None if read.entering is None else (arguments, options)


def _leave(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
    read = _READING.get()
    if read is not None and read.streams:
        read.streams.append(_tensor(output))
        read.calls.clear()  # only what follows the last layer is asked for


def _called(module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any], output: Any) -> None:
    read = _READING.get()
    given = next((one for one in (*arguments, *options.values()) if isinstance(one, Tensor)), None)
    if read is not None and given is not None and isinstance(made := _tensor(output), Tensor):
        read.calls.append((module, given, made))


def _tensor(output: Any) -> Any:
    return output[0] if isinstance(output, tuple | list) else output
