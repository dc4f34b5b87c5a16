"""The layers of a transformers network, called one by one on slots that all have one position of a text.

Attention returns prepared outputs, so slots do not influence each other: a layer computes, for many parts of a stream,
the query that each makes at that position, or what each of many outputs of its heads adds to the stream.
Sizes: N slots' parts, n slots, W width, H heads, D head width.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from i18n import say
from model.errors import NotSupported, first_line
from model.huggingface.attention_hook import AttentionRun, Call
from model.huggingface.residual import FrozenNorms, ResidualHooks
from model.huggingface.stacks import Inputs, Stacks, device_of, intercepted

SLOTS = 32


class _ScriptedAttention(AttentionRun):
    """Returns prepared outputs. `ends`: ends the layer at its attention instead, which keeps q and k."""

    gives: Tensor | None = None
    ends = False
    heard: Call | None = None

    def attend(self, call: Call) -> Tensor:
        self.heard = call
        if self.ends:
            raise _Reached
        return call.q.new_zeros(*call.q.shape[:-1], call.v.shape[-1]) if self.gives is None else self.gives


class _Reached(Exception):
    """The layer's query and key are known."""


class _ZeroModule(nn.Module):
    """Replaces a module with weights by zeros of the same shapes."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.__dict__["wrapped"] = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["wrapped"], name)

    def forward(self, *arguments: Any, **options: Any) -> Any:
        module = self.__dict__["wrapped"]
        if type(module) is nn.Linear:  # a router may be one that gives more
            return arguments[0].new_zeros(*arguments[0].shape[:-1], module.out_features)
        return _zeros(module(*arguments, **options))


def _zeros(value: Any) -> Any:
    if isinstance(value, Tensor):
        return torch.zeros_like(value)
    return type(value)(_zeros(one) for one in value) if isinstance(value, tuple | list) else value


def attention_alone(layer: nn.Module, attention: nn.Module | None) -> nn.Module:
    """A copy of a layer in which only the part with the attention, and norms, compute; all else gives zeros."""
    shadow = copy.copy(layer)
    shadow._modules = dict(layer._modules)
    for name, child in layer.named_children():
        if not any(one is attention for one in child.modules()):
            shadow._modules[name] = _silenced(child)
    return shadow


def _silenced(module: nn.Module) -> nn.Module:
    if "norm" in type(module).__name__.lower():
        return module
    if next(module.parameters(recurse=False), None) is not None:
        return _ZeroModule(module)
    shadow = copy.copy(module)
    shadow._modules = {name: child if child is None else _silenced(child) for name, child in module._modules.items()}
    return shadow


class LayerProbe:
    """At one position of a text. token: any."""

    def __init__(self, stack: Stacks, hooks: ResidualHooks, token: int, position: int, *, own_code: bool) -> None:
        self._slots = min(SLOTS, stack.context())
        self._run = _ScriptedAttention([self._slots])
        self._run.own_code = own_code
        ids = torch.full((1, self._slots), token, device=device_of(stack.network))
        self._run.positions = torch.full_like(ids, position)
        with hooks.reading() as read:
            stack.states(self._run, Inputs(ids, torch.ones_like(ids, dtype=torch.bool)))
        self._layers = read.layers
        self._attention_alone: dict[int, nn.Module] = {}

    def heads(self, number: int, whole: Tensor, parts: Tensor) -> tuple[Tensor, Tensor]:
        """q [N,H,D] and k [N,Hkv,D] that parts [N,W] of the stream `whole` [W] make in a layer, its norms frozen."""
        x = self._filled(whole)
        kept, _ = self._call(number, x, None, None)
        found = []
        for some in parts.split(self._slots):
            self._call(number, self._padded(some), None, kept)
            heard = self._run.heard
            assert heard is not None
            found.append([part[0].transpose(0, 1)[: len(some)] for part in (heard.q, heard.k)])
        q, k = (torch.cat(some).double().cpu() for some in zip(*found, strict=True))
        return q, k

    def adds(
        self, number: int, attention: nn.Module | None, x: Tensor, whole: Tensor, parts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What leaves a layer [N,W] without its feed-forward part, into which the stream x [W] goes and whose heads,
        that give `whole` [H,D], give parts [N,H,D] of it instead; its norms frozen. And what leaves it where neither
        the stream nor its heads give anything, [W]."""
        if number not in self._attention_alone:
            self._attention_alone[number] = attention_alone(self._layers[number].module, attention)
        filled, alone = self._filled(x), self._attention_alone[number]
        kept, _ = self._call(number, filled, self._given(self._filled(whole)), None, alone)
        found = []
        for some in parts.split(self._slots):
            _, made = self._call(number, filled, self._given(self._padded(some)), kept, alone)
            found.append(made[0, : len(some)])
        nothing = self._given(self._filled(torch.zeros_like(whole)))
        _, ground = self._call(number, torch.zeros_like(filled), nothing, kept, alone)
        return torch.cat(found).double().cpu(), ground[0, 0].double().cpu()

    def _call(
        self, number: int, x: Tensor, gives: Tensor | None, kept: list[Tensor] | None, module: nn.Module | None = None
    ) -> tuple[list[Tensor], Tensor]:
        """The deviations and what leaves the layer; without prepared outputs x, and q and k are kept."""
        run, layer = self._run, self._layers[number]
        run.gives, run.ends = gives, gives is None
        with intercepted(run, layer.module, 1), FrozenNorms(kept) as norms:
            try:
                made = layer.again(x.clone(), module or layer.module)
            except _Reached:
                made = x
            except Exception as error:  # noqa: BLE001 - what a stranger's layer raises on its own, nobody can list
                why = f"{type(error).__name__}: {first_line(error)}"
                raise NotSupported(say("Its layers cannot be called one by one ({why})", why=why)) from None
        return norms.kept, made

    def _filled(self, one: Tensor) -> Tensor:
        """The same in every slot: [..] -> [1,n,..]."""
        return self._padded(one.expand(self._slots, *one.shape))

    def _padded(self, some: Tensor) -> Tensor:
        """[N,..] -> [1,n,..], zeros in the slots that are left."""
        weight = next(self._layers[0].module.parameters())
        result = weight.new_zeros(1, self._slots, *some.shape[1:])
        result[0, : len(some)] = some
        return result

    @staticmethod
    def _given(outputs: Tensor) -> Tensor:
        return outputs.transpose(1, 2)  # [1,n,H,D] -> [1,H,n,D]
