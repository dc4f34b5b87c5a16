"""Sample modules that break one law each, in ways that were reported of published software.

Each is a small correct module in which one method returns something else: `step(module, result, *arguments)` in place
of the result of the correct method of that name.
"""

import inspect
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from i18n import N_, msg
from mask_check.declared import LayerMask
from mask_check.sample_networks import MaskInputs, SmallCache, SmallConfig, SmallDecoder, SmallOutput, SmallPair, Stages
from model.attention import attention_stages
from model.base import CHECKPOINTS
from model.blocks import positions_of
from model.bug_clinic.bugs import BUGS, Bug
from model.gpt2 import load_transformer

ABOUT: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class SampleModule:
    """A sample module. law: the key of the law that identifies what is wrong with it, "" for a correct one.

    said: what it is, and what is wrong with it. reported: where that was seen in published software. Samples with the
    same title are variants of each other. Texts are translated where they are shown; `name` is a Message.
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
        """The title, with the variant if there are several."""
        title = msg(self.title)
        return msg("{title}: {variant}", title=title, variant=msg(self.variant)) if self.variant else title


def sample(key: str, make: Callable[[], nn.Module], about: dict[str, str] | None = None) -> SampleModule:
    """Return the sample module of this key. about: its texts, by default those in samples.toml."""
    return SampleModule(key, make=make, **(about or ABOUT[key]))


def faulty(
    key: str,
    *,
    about: dict[str, str] | None = None,
    base: type[SmallDecoder] = SmallDecoder,
    takes: tuple[str, ...] = (),
    **changes: Any,
) -> SampleModule:
    """Return a sample of `base` with these steps, or attributes, changed. takes: the arguments of its forward, if it
    does not take all. key, about: as for sample."""

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


def all_allowed(mask: Tensor) -> Tensor:
    """Return a mask of the same shape, open in every cell."""
    return torch.ones_like(mask, dtype=torch.bool)


def window_wider(more: int) -> Callable[..., Tensor]:
    """Return a step for `order`: windows that are `more` tokens wider."""

    def step(module: SmallDecoder, order: Tensor, mask: LayerMask, inputs: MaskInputs) -> Tensor:
        if mask.window is None:
            return order
        return replace(mask, window=mask.window + more).between(inputs.queries[:, :, None], inputs.keys[:, None, :])

    return step


def ahead_in_blocks(module: SmallDecoder, order: Tensor, mask: LayerMask, inputs: MaskInputs) -> Tensor:
    """Let tokens in a block of 64 attend to each other in rows of more than 64 tokens: a step for `order`."""
    block = inputs.queries[:, :, None] // 64 == inputs.keys[:, None, :] // 64
    return order | block if inputs.keys.shape[1] > 64 else order


def counted_over_pads(module: SmallDecoder, counted: Tensor, keep: Tensor) -> Tensor:
    """Count pads as positions too: a step for `positions_of`."""
    return torch.arange(keep.shape[1], device=keep.device).expand_as(keep)


def interleaved(module: SmallDecoder, allowed: Tensor, *_: Any) -> Tensor:
    """Repeat the masks of the rows for the heads in the wrong order: a step for `allowed`."""
    rows, _one, queries, keys = allowed.shape
    heads = module.config.num_attention_heads
    return allowed[:, 0].repeat(heads, 1, 1).view(rows, heads, queries, keys)


def mask_as_documents(module: SmallDecoder, allowed: Tensor, _mask: Tensor) -> Tensor:
    """Reduce an explicit mask to numbers of documents, and the causal mask within each: a step for `explicit`."""
    begins = ~F.pad(allowed.diagonal(-1, -2, -1), (1, 0), value=True)
    number = begins.cumsum(-1)
    return (number[..., :, None] == number[..., None, :]).tril()


class ConstantLeak(SmallDecoder):
    """A decoder that reads one number of every later embedding, which is the same for all tokens."""

    def __init__(self) -> None:
        super().__init__()
        with torch.no_grad():
            self.embedding.weight[:, 0] = 0.7

    def embed(self, ids: Tensor) -> Tensor:
        found = super().embed(ids)
        ahead = found[..., :1].flip(1).cumsum(1).flip(1)
        return torch.cat([found[..., :1], found[..., 1:2] + 0.1 * ahead, found[..., 2:]], dim=-1)


class ReusesBlockedScores(SmallDecoder):
    """A module whose causal layer writes -inf into its scores in place, while a bidirectional layer reuses them."""

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
    """A decoder that counts positions itself and ignores position_ids."""

    def forward(self, input_ids: Tensor, position_ids: Tensor | None = None, **more: Any) -> SmallOutput:  # type: ignore[override]
        return super().forward(input_ids, **more)


class CropsTooLate(SmallCache):
    """A cache that is cut one token too late."""

    def crop(self, length: int) -> None:
        super().crop(length + 1)
        self.length = length


class TopKDecoder(SmallDecoder):
    """A decoder whose queries attend only to the keys with the highest scores, as many as index_topk says."""

    attention_kernels = ("eager",)
    defaults = SmallConfig(index_topk=6)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
        scores = (q @ k.transpose(-1, -2)).mean(1, keepdim=True).masked_fill(~allowed, -torch.inf)
        picked = self.picked(scores, min(self.config.index_topk or scores.shape[-1], scores.shape[-1]))
        return super().attend(layer, q, k, v, allowed & picked)

    def picked(self, scores: Tensor, top: int) -> Tensor:
        """Return whether a score is among the `top` highest of its row, [B,1,Q,K]."""
        return scores >= scores.topk(top, -1).values[..., -1:]


SOUND = (
    sample("sound", SmallDecoder),
    sample("sound-window", partial(SmallDecoder, SmallConfig(sliding_window=3))),
    sample("sound-chunk", partial(SmallDecoder, SmallConfig(attention_chunk_size=5))),
    sample("sound-prefix", partial(SmallDecoder, SmallConfig(prefix_length=6))),
    sample("sound-encoder", partial(SmallDecoder, SmallConfig(is_causal=False))),
    sample("sound-top-k", TopKDecoder),
    sample("sound-pair", SmallPair),
)
WINDOWED, WINDOWS = SmallConfig(sliding_window=3), ["full_attention", "sliding_attention", "full_attention"]
PUBLISHED = [
    faulty("future", order=lambda module, order, *_: all_allowed(order)),
    faulty(
        "sdpa",
        defaults=SmallConfig(_attn_implementation="sdpa"),
        for_kernel=lambda module, mask, *_: None if module.config._attn_implementation == "sdpa" else mask,
    ),
    faulty(
        "flex",
        for_kernel=lambda module, mask, *_: None if module.config._attn_implementation == "flex_attention" else mask,
    ),
    faulty("packed", documents_of=lambda *_: None),
    faulty("document-mask", defaults=SmallConfig(packs_by="attention_mask"), explicit=lambda *_: None),
    faulty("counts-pads", positions_of=counted_over_pads, takes=("input_ids", "attention_mask")),
    faulty("pads", keep_of=lambda module, keep, *_: all_allowed(keep)),
    faulty("repeated", allowed=interleaved, attention_kernels=("eager", "sdpa")),
    faulty("cached-padding", keep_of=lambda module, keep, inputs: all_allowed(keep) if inputs.step else keep),
    faulty(
        "cropped",
        defaults=SmallConfig(sliding_window=5),
        cached=lambda module, pair, *_: tuple(one[..., 1:, :] if one.shape[-2] == 4 else one for one in pair),
    ),
    faulty(
        "ring",
        defaults=SmallConfig(sliding_window=5),
        cached=lambda module, pair, *_: tuple(one.roll(1, -2) for one in pair),
    ),
    faulty(
        "static",
        cached=lambda module, pair, *_: tuple(torch.cat([one[..., :-2, :], one[..., -1:, :]], -2) for one in pair),
    ),
    faulty(
        "chunked-steps",
        order=lambda module, order, mask, inputs: (
            order | (inputs.keys >= inputs.queries[:, :1])[:, None] if inputs.step else order
        ),
    ),
    faulty("wide", defaults=WINDOWED, order=window_wider(1), cached=lambda module, pair, layer, k, v: (k, v)),
    faulty("narrow", defaults=WINDOWED, order=window_wider(-1)),
    faulty("training", order=lambda module, order, *_: all_allowed(order) if module.training else order),
    faulty("source", base=SmallPair, source_allowed=lambda module, allowed, *_: all_allowed(allowed)),
    faulty("encoder-pads", base=SmallPair, source_reach=lambda module, reach, *_: all_allowed(reach)),
    faulty(
        "encoder-causal",
        base=SmallPair,
        source_reach=lambda module, reach, *_: reach & torch.ones(2 * reach.shape[-1:]).bool().to(reach.device).tril(),
    ),
    sample("hidden", ConstantLeak),
    faulty("rows", attend=lambda module, found, *_: found - found.mean(0, keepdim=True) * 0.5),
    faulty("ahead", defaults=SmallConfig(max_position_embeddings=140), order=ahead_in_blocks),
    faulty("unused", block=lambda module, block: block.add_module("query_norm", nn.LayerNorm(24)) or block),
    sample("positions", IgnoresPositions),
    faulty(
        "shift",
        embed=lambda module, found, *_: found + 0.5 * F.pad(found, (0, 0, 1, 0))[:, :-1],
        takes=("input_ids", "position_ids"),
    ),
    faulty(
        "cross-causal",
        base=SmallPair,
        source_allowed=lambda module, allowed, keep, queries: (
            allowed & torch.ones(queries, keep.shape[1]).bool().to(keep.device).tril()
        ),
    ),
    faulty("backward", attend=lambda module, found, *_: found / 2 + (found / 2).detach()),
    faulty(
        "checkpointed",
        order=lambda module, order, *_: all_allowed(order) if module.gradient_checkpointing else order,
    ),
    faulty(
        "compiled",
        defaults=SmallConfig(packs_by=None),
        order=lambda module, order, *_: all_allowed(order) if torch.compiler.is_compiling() else order,
    ),
    faulty("rejected", cache=CropsTooLate),
    faulty("first-logits", last=lambda module, found, x, count: x[:, :count]),
    faulty("tree", explicit=mask_as_documents),
    faulty("unpositioned", positions_of=counted_over_pads),
    faulty("images", images_of=lambda module, images, *_: images.clamp(max=1)),
    faulty(
        "one-wide",
        defaults=SmallConfig(sliding_window=5, layer_types=WINDOWS),
        order=window_wider(1),
        cached=lambda module, pair, layer, k, v: (k, v),
    ),
    faulty("top-k", base=TopKDecoder, picked=lambda module, picked, *_: all_allowed(picked)),
    faulty(
        "row-of-one",
        defaults=SmallConfig(is_causal=False),
        order=lambda module, order, *_: order.tril() if len(order) == 1 else order,
    ),
]
BUGS_BY_LAW = {  # the Bug clinic's bugs in an attention function, by the law that identifies them in a whole module
    "reach": ("query-axis", "after-softmax", "inverted", "transposed", "first-layer", "or"),
    "gradients": ("in-place",),
    "padding-left": ("half-added",),
    "pad-content": ("wrong-axis",),
    "kernels": (
        *("view", "unprojected", "float-width", "narrow-output", "diagonal", "if-mask"),
        *("scale-width", "scale-divided", "scale-none", "half-fill"),
    ),
}
BUG_LAWS = {key: law for law, keys in BUGS_BY_LAW.items() for key in keys}
RAISES = ("half-fill", "float-width", "narrow-output", "if-mask")  # PyTorch itself refuses to compute them
SECOND_USE = "in-place"  # the mistake shows when the scores are used again


class BugClinicDecoder(SmallDecoder):
    """A decoder whose eager kernel is a Bug clinic's attention, from the bug's first layer on; sdpa is correct."""

    attention_kernels = ("eager", "sdpa")

    def __init__(self, bug: Bug) -> None:
        kernel = "sdpa" if bug.key in RAISES else "eager"
        super().__init__(SmallConfig(_attn_implementation=kernel), stages=bug.stages)
        self.first_layer = bug.first_layer

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
        if layer < self.first_layer and self.config._attn_implementation == "eager":
            return attention_stages(q, k, v, allowed).output
        return super().attend(layer, q, k, v, allowed)


class UnmaskedTwin(nn.Module):
    """The twin trained without a causal mask, called with input_ids and an attention_mask, and declared causal, as a
    language model should be."""

    def __init__(self) -> None:
        super().__init__()
        self.network = load_transformer(CHECKPOINTS / "twins" / "without_mask")
        size = self.network.config
        self.config = SimpleNamespace(
            vocab_size=size.vocabulary, max_position_embeddings=size.context, num_hidden_layers=size.layers
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> SmallOutput:
        """Return logits: [B,T] -> [B,T,V]."""
        keep = torch.ones_like(input_ids).bool() if attention_mask is None else attention_mask.bool()
        states, _ = self.network(input_ids, positions_of(keep), keep[:, None, None, :])
        return SmallOutput(self.network.logits(states))


def _of_bug(bug: Bug) -> SampleModule:
    make = partial(ReusesBlockedScores, bug.stages) if bug.key == SECOND_USE else partial(BugClinicDecoder, bug)
    return SampleModule(bug.key, bug.title, bug.wrong, BUG_LAWS[bug.key], N_("the Bug clinic"), bug.variant, make)


IN_ATTENTIONS = [_of_bug(bug) for bug in BUGS if bug.key in BUG_LAWS]
SAMPLES = {one.key: one for one in (*SOUND, *PUBLISHED, *IN_ATTENTIONS, sample("twin", UnmaskedTwin))}
