"""Modules that break one law each, the way that reports of published software say it was broken.

Each is a small sound module in which one step gives something else: `step(module, result, *arguments)` in place of the
result of the sound method of that name.
"""

import inspect
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from i18n import msg
from mask_check.declared import LayerMask
from mask_check.sample_networks import Places, SmallCache, SmallConfig, SmallDecoder, SmallOutput, Stages
from model.attention import attention_stages

ABOUT: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class SampleModule:
    """A module to try. law: the key of the law that names what is wrong with it, "" for a sound one.

    said: what it is, and what is wrong with it. reported: where it was, in published software. Samples of one title
    are variants of each other. Sentences are to be said where they are shown; `name` is said.
    """

    key: str
    title: str
    said: str
    law: str = ""
    reported: str = ""
    variant: str = ""
    make: Callable[[], nn.Module] = SmallDecoder

    @property
    def name(self) -> str:
        """The title, with the variant where there are several."""
        title = msg(self.title)
        return msg("{title}: {variant}", title=title, variant=msg(self.variant)) if self.variant else title


def sample(key: str, make: Callable[[], nn.Module], about: dict[str, str] | None = None) -> SampleModule:
    """The sample module of this key. about: what is said of it, samples.toml's unless given."""
    return SampleModule(key, make=make, **(about or ABOUT[key]))


def faulty(
    key: str,
    *,
    about: dict[str, str] | None = None,
    base: type[SmallDecoder] = SmallDecoder,
    takes: tuple[str, ...] = (),
    **changes: Any,
) -> SampleModule:
    """A sample of `base` with these steps, or attributes, changed. takes: the arguments of its forward, for one that
    does not take all. key, about: as sample's."""

    def forward(self: Any, *given: Any, **named: Any) -> Any:
        return base.forward(self, *given, **named)

    def changed(name: str, step: Any) -> Any:
        if isinstance(step, type) or not callable(step):
            return step
        sound = getattr(base, name)

        @wraps(sound)
        def method(self: Any, *given: Any) -> Any:
            return step(self, sound(self, *given), *given)

        return method

    name = "".join(word.capitalize() for word in key.split("-"))
    methods: dict[str, Any] = {name: changed(name, step) for name, step in changes.items()}
    if takes:
        known = inspect.signature(base.forward).parameters
        forward.__signature__ = inspect.Signature([known[one] for one in ("self", *takes)])  # type: ignore[attr-defined]
        methods["forward"] = forward
    return sample(key, type(name, (base,), methods), about)


def everything(mask: Tensor) -> Tensor:
    """As large, and open in every cell."""
    return torch.ones_like(mask, dtype=torch.bool)


def window_wider(more: int) -> Callable[..., Tensor]:
    """A step of `order`: windows of so many more tokens."""

    def step(module: SmallDecoder, order: Tensor, mask: LayerMask, places: Places) -> Tensor:
        if mask.window is None:
            return order
        return replace(mask, window=mask.window + more).between(places.queries[:, :, None], places.keys[:, None, :])

    return step


def ahead_in_blocks(module: SmallDecoder, order: Tensor, mask: LayerMask, places: Places) -> Tensor:
    """A step of `order`: in rows of more than 64 tokens, those of a block of 64 see each other."""
    block = places.queries[:, :, None] // 64 == places.keys[:, None, :] // 64
    return order | block if places.keys.shape[1] > 64 else order


def counted_over_pads(module: SmallDecoder, counted: Tensor, keep: Tensor) -> Tensor:
    """A step of `positions_of`."""
    return torch.arange(keep.shape[1]).expand_as(keep)


def interleaved(module: SmallDecoder, allowed: Tensor, *_: Any) -> Tensor:
    """A step of `allowed`: the masks of the rows, repeated for the heads in the wrong order."""
    rows, _one, queries, keys = allowed.shape
    heads = module.config.num_attention_heads
    return allowed[:, 0].repeat(heads, 1, 1).view(rows, heads, queries, keys)


def mask_as_documents(module: SmallDecoder, allowed: Tensor, _mask: Tensor) -> Tensor:
    """A step of `explicit`: numbers of documents, and the causal mask within each."""
    begins = ~F.pad(allowed.diagonal(-1, -2, -1), (1, 0), value=True)
    number = begins.cumsum(-1)
    return (number[..., :, None] == number[..., None, :]).tril()


class HidesItsLeak(SmallDecoder):
    """Reads one number of every later embedding, which is the same for all tokens."""

    def __init__(self) -> None:
        super().__init__()
        with torch.no_grad():
            self.embedding.weight[:, 0] = 0.7

    def embed(self, ids: Tensor) -> Tensor:
        found = super().embed(ids)
        ahead = found[..., :1].flip(1).cumsum(1).flip(1)
        return torch.cat([found[..., :1], found[..., 1:2] + 0.1 * ahead, found[..., 2:]], dim=-1)


class ReusesBlockedScores(SmallDecoder):
    """A causal layer writes -inf into its scores in place, and a layer that should see everything reuses them."""

    attention_kernels = ("eager",)

    def __init__(self, stages: Stages = attention_stages) -> None:
        types = ["full_attention", "bidirectional_attention"]
        super().__init__(SmallConfig(num_hidden_layers=2, layer_types=types, packs_by=None), stages=stages)
        self._scores: Tensor | None = None

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
        if layer == 0:
            stages = self.stages(q, k, v, allowed)
            self._scores = stages.scaled
            return stages.output
        assert self._scores is not None
        scores = self._scores.masked_fill(~allowed, float("-inf"))
        return scores.softmax(-1).nan_to_num(0.0) @ v

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> SmallOutput:  # type: ignore[override]
        return super().forward(input_ids, attention_mask)


class IgnoresPositions(SmallDecoder):
    """Counts positions whatever it is told."""

    def forward(self, input_ids: Tensor, position_ids: Tensor | None = None, **more: Any) -> SmallOutput:  # type: ignore[override]
        return super().forward(input_ids, **more)


class KeepsRejected(SmallCache):
    """A cache that is cut one token too late."""

    def crop(self, length: int) -> None:
        super().crop(length + 1)
        self.length = length


class PicksKeys(SmallDecoder):
    """Each query reads the keys with the highest scores alone, as many as index_topk says."""

    attention_kernels = ("eager",)
    defaults = SmallConfig(index_topk=6)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
        scores = (q @ k.transpose(-1, -2)).mean(1, keepdim=True).masked_fill(~allowed, -torch.inf)
        picked = self.picked(scores, min(self.config.index_topk or scores.shape[-1], scores.shape[-1]))
        return super().attend(layer, q, k, v, allowed & picked)

    def picked(self, scores: Tensor, top: int) -> Tensor:
        """[B,1,Q,K]: whether a score is among the highest of its row."""
        return scores >= scores.topk(top, -1).values[..., -1:]
