"""The layer that an attention is in, and what layers without attention are."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn

from i18n import N_, msg, msg_list
from model.errors import NotSupported

ATTENTION = "attention"
STATE_SPACE, RECURRENCE, LINEAR_ATTENTION = N_("state space"), N_("recurrence"), N_("linear attention")
KINDS = (  # (pattern of the names of a layer's parts, kind); the first match counts
    (r"cross.?att", N_("cross-attention to images")),
    (r"attention|attn", None),  # an attention that was not found
    (r"mamba|ssm|statespace", STATE_SPACE),
    (r"delta|lightning|retention|linearatt", LINEAR_ATTENTION),
    (r"recurrent|rglru|rwkv|lstm", RECURRENCE),
    (r"conv", N_("convolution")),
    (r"mlp|moe|expert|feedforward|ffn", N_("feed-forward")),
)
BESIDE = (  # the same for the name and class of one part that writes into the residual stream
    (r"mlp|moe|expert|feed_?forward|ffn", "MLP"),
    (r"conv(?!1d)", "convolution"),
    *((words, kind) for words, kind in KINDS if kind not in (None, "convolution", "feed-forward")),
    (r"", "MLP"),
)
LINEAR = re.compile(r"linear_?att|delta|lightning|retention|kda", re.IGNORECASE)
UNKNOWN_KIND = N_("its layer {number} ({name}) is of a kind that Unmask does not support")


@dataclass(frozen=True)
class Place:
    """The layer of an attention. path: of the list of layers; number: in that list; serial: of the call."""

    path: str
    number: int
    serial: int
    module: nn.Module


class RunningModules:
    """Which of a stack's modules are running, within `watch`."""

    def __init__(self) -> None:
        self._running: list[tuple[str, nn.Module, int]] = []
        self._calls = 0

    @contextmanager
    def watch(self, stack: nn.Module) -> Iterator[None]:
        hooks = []
        for name, module in stack.named_modules():

            def enter(module: nn.Module, _: object, name: str = name) -> None:
                self._calls += 1
                self._running.append((name, module, self._calls))

            def leave(*_: object) -> None:
                self._running.pop()

            hooks += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
        try:
            yield
        finally:
            self._running.clear()
            for hook in hooks:
                hook.remove()

    def module(self) -> nn.Module | None:
        return self._running[-1][1] if self._running else None

    def place(self) -> Place | None:
        """The outermost that is in a list of layers."""
        for name, module, serial in self._running:
            path, _, number = name.rpartition(".")
            if number.isdigit():
                return Place(path, int(number), serial, module)
        return None


def numbers(places: list[Place | None]) -> tuple[int, ...] | None:
    """The number of each attention's layer; None if these are not unique: shared weights, nested blocks."""
    found = [place for place in places if place is not None]
    calls = {(place.path, place.number): place.serial for place in found}
    if len(found) < len(places) or len({place.path for place in found}) > 1:
        return None
    if any(calls[place.path, place.number] != place.serial for place in found):
        return None
    return tuple(place.number for place in found)


def kinds(stack: nn.Module, places: list[Place | None], shown: tuple[int, ...]) -> tuple[str, ...]:
    """The kind of each layer of the stack. shown: those with attention.

    Raises NotSupported for another layer that seems to have attention.
    """
    path = next(place.path for place in places if place is not None)
    layers = list(stack.get_submodule(path).children())
    return tuple(ATTENTION if number in shown else _kind(number, layer) for number, layer in enumerate(layers))


def parts_beside(layer: nn.Module, attention: nn.Module | None) -> str:
    """What of a layer writes into the residual stream besides its attention: "MLP", "state space + MLP" …"""
    found = set()
    for name, part in layer.named_children():
        words = f"{name} {type(part).__name__}".lower()
        holds_it = any(one is attention for one in part.modules())
        if not holds_it and "norm" not in words and next(part.parameters(), None) is not None:
            linear = LINEAR_ATTENTION if LINEAR.search(words) else None
            found.add(linear or next(kind for known, kind in BESIDE if re.search(known, words)))
    return msg_list([*map(msg, sorted(found - {"MLP"})), *(["MLP"] if "MLP" in found or not found else [])], " + ")


def unseen(stack: nn.Module) -> str:
    """Why no attention was found in a stack."""
    own = sorted({type(module).__name__ for module in stack.modules() if re.search("Att", type(module).__name__)})
    parts = " ".join(type(module).__name__ for module in stack.modules()).lower()
    kind = next((kind for words, kind in KINDS if kind is not None and re.search(words, parts)), None)
    if kind in (STATE_SPACE, RECURRENCE, LINEAR_ATTENTION):
        return msg("it has no attention between tokens: its layers are a {kind}", kind=msg(kind))
    if own:
        return msg("its attention ({name}) is not a softmax over all tokens that Unmask can trace", name=own[0])
    return msg("it has no attention")


def _kind(number: int, layer: nn.Module) -> str:
    parts = [type(module).__name__ for module in layer.modules()] + [name for name, _ in layer.named_children()]
    parts = [part for part in parts if "norm" not in part.lower()]  # "post_attention_layernorm"
    if any(LINEAR.search(part) for part in parts):
        return LINEAR_ATTENTION
    names = " ".join(parts).lower()
    kind = next((kind for words, kind in KINDS if re.search(words, names)), None)
    if kind is None:
        raise NotSupported(msg(UNKNOWN_KIND, number=number, name=type(layer).__name__))
    return kind
