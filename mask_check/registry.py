"""All that can be checked without having a model: sound and broken small modules, by name."""

from functools import partial
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from i18n import N_
from mask_check import samples
from mask_check.sample_networks import SmallConfig, SmallDecoder, SmallOutput, SmallPair
from mask_check.samples import SampleModule, faulty, sample
from model.attention import attention_stages
from model.base import CHECKPOINTS
from model.blocks import positions_of
from model.bug_clinic.bugs import BUGS, Bug
from model.gpt2 import load_transformer

SOUND = (
    sample("sound", SmallDecoder),
    sample("sound-window", partial(SmallDecoder, SmallConfig(sliding_window=3))),
    sample("sound-chunk", partial(SmallDecoder, SmallConfig(attention_chunk_size=5))),
    sample("sound-prefix", partial(SmallDecoder, SmallConfig(prefix_length=6))),
    sample("sound-encoder", partial(SmallDecoder, SmallConfig(is_causal=False))),
    sample("sound-top-k", samples.PicksKeys),
    sample("sound-pair", SmallPair),
)
WINDOWED, WINDOWS = SmallConfig(sliding_window=3), ["full_attention", "sliding_attention", "full_attention"]
PUBLISHED = [
    faulty("future", order=lambda module, order, *_: samples.everything(order)),
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
    faulty("counts-pads", positions_of=samples.counted_over_pads, takes=("input_ids", "attention_mask")),
    faulty("pads", keep_of=lambda module, keep, *_: samples.everything(keep)),
    faulty("repeated", allowed=samples.interleaved, attention_kernels=("eager", "sdpa")),
    faulty("cached-padding", keep_of=lambda module, keep, places: samples.everything(keep) if places.step else keep),
    faulty(
        "cropped",
        defaults=SmallConfig(sliding_window=5),
        cached=lambda module, kept, *_: tuple(one[..., 1:, :] if one.shape[-2] == 4 else one for one in kept),
    ),
    faulty(
        "ring",
        defaults=SmallConfig(sliding_window=5),
        cached=lambda module, kept, *_: tuple(one.roll(1, -2) for one in kept),
    ),
    faulty(
        "static",
        cached=lambda module, kept, *_: tuple(torch.cat([one[..., :-2, :], one[..., -1:, :]], -2) for one in kept),
    ),
    faulty(
        "chunked-steps",
        order=lambda module, order, mask, places: (
            order | (places.keys >= places.queries[:, :1])[:, None] if places.step else order
        ),
    ),
    faulty("wide", defaults=WINDOWED, order=samples.window_wider(1), cached=lambda module, kept, layer, k, v: (k, v)),
    faulty("narrow", defaults=WINDOWED, order=samples.window_wider(-1)),
    faulty("training", order=lambda module, order, *_: samples.everything(order) if module.training else order),
    faulty("source", base=SmallPair, source_allowed=lambda module, allowed, *_: samples.everything(allowed)),
    faulty("encoder-pads", base=SmallPair, source_reach=lambda module, reach, *_: samples.everything(reach)),
    faulty(
        "encoder-causal",
        base=SmallPair,
        source_reach=lambda module, reach, *_: reach & torch.ones(2 * reach.shape[-1:], dtype=torch.bool).tril(),
    ),
    sample("hidden", samples.HidesItsLeak),
    faulty("rows", attend=lambda module, found, *_: found - found.mean(0, keepdim=True) * 0.5),
    faulty("ahead", defaults=SmallConfig(max_position_embeddings=140), order=samples.ahead_in_blocks),
    faulty("unused", block=lambda module, block: block.add_module("query_norm", nn.LayerNorm(24)) or block),
    sample("positions", samples.IgnoresPositions),
    faulty(
        "shift",
        embed=lambda module, found, *_: found + 0.5 * F.pad(found, (0, 0, 1, 0))[:, :-1],
        takes=("input_ids", "position_ids"),
    ),
    faulty(
        "cross-causal",
        base=SmallPair,
        source_allowed=lambda module, allowed, keep, queries: (
            allowed & torch.ones(queries, keep.shape[1], dtype=torch.bool).tril()
        ),
    ),
    faulty("backward", attend=lambda module, found, *_: found / 2 + (found / 2).detach()),
    faulty(
        "checkpointed",
        order=lambda module, order, *_: samples.everything(order) if module.gradient_checkpointing else order,
    ),
    faulty(
        "compiled",
        defaults=SmallConfig(packs_by=None),
        order=lambda module, order, *_: samples.everything(order) if torch.compiler.is_compiling() else order,
    ),
    faulty("rejected", cache=samples.KeepsRejected),
    faulty("first-logits", last=lambda module, found, x, count: x[:, :count]),
    faulty("tree", explicit=samples.mask_as_documents),
    faulty("unpositioned", positions_of=samples.counted_over_pads),
    faulty("images", images_of=lambda module, images, *_: images.clamp(max=1)),
    faulty(
        "one-wide",
        defaults=SmallConfig(sliding_window=5, layer_types=WINDOWS),
        order=samples.window_wider(1),
        cached=lambda module, kept, layer, k, v: (k, v),
    ),
    faulty("top-k", base=samples.PicksKeys, picked=lambda module, picked, *_: samples.everything(picked)),
    faulty(
        "row-of-one",
        defaults=SmallConfig(is_causal=False),
        order=lambda module, order, *_: order.tril() if len(order) == 1 else order,
    ),
]
BUGS_BY_LAW = {  # the Bug clinic's bugs that lie in an attention, by the law of a whole module that names the mistake
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
SECOND_USE = "in-place"  # the mistake is in what is left of the scores


class Bugged(SmallDecoder):
    """One of the Bug clinic's attentions as the eager kernel, from the bug's first layer on; sdpa is right."""

    attention_kernels = ("eager", "sdpa")

    def __init__(self, bug: Bug) -> None:
        kernel = "sdpa" if bug.key in RAISES else "eager"
        super().__init__(SmallConfig(_attn_implementation=kernel), stages=bug.stages)
        self.first_layer = bug.first_layer

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
        if layer < self.first_layer and self.config._attn_implementation == "eager":
            return attention_stages(q, k, v, allowed).output
        return super().attend(layer, q, k, v, allowed)


def _of_bug(bug: Bug) -> SampleModule:
    make = partial(samples.ReusesBlockedScores, bug.stages) if bug.key == SECOND_USE else partial(Bugged, bug)
    return SampleModule(bug.key, bug.title, bug.wrong, BUG_LAWS[bug.key], N_("the Bug clinic"), bug.variant, make)


class UnmaskedTwin(nn.Module):
    """The twin without a causal mask, read with input_ids and an attention_mask, and declared causal: a language model
    is meant to be."""

    def __init__(self) -> None:
        super().__init__()
        self.network = load_transformer(CHECKPOINTS / "twins" / "without_mask")
        size = self.network.config
        self.config = SimpleNamespace(
            vocab_size=size.vocabulary, max_position_embeddings=size.context, num_hidden_layers=size.layers
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> SmallOutput:
        """[B,T] -> logits [B,T,V]."""
        keep = torch.ones_like(input_ids).bool() if attention_mask is None else attention_mask.bool()
        states, _ = self.network(input_ids, positions_of(keep), keep[:, None, None, :])
        return SmallOutput(self.network.logits(states))


TWIN = sample("twin", UnmaskedTwin)
SAMPLES = {one.key: one for one in (*SOUND, *PUBLISHED, *(_of_bug(bug) for bug in BUGS if bug.key in BUG_LAWS), TWIN)}
