"""All that can be checked without having a model: sound and broken small modules, by name."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from i18n import N_
from mask_check import samples
from mask_check.sample_networks import SmallConfig, SmallDecoder, SmallOutput, SmallPair
from mask_check.samples import SampleModule, faulty
from model.attention import attention_stages
from model.base import CHECKPOINTS
from model.blocks import positions_of
from model.bug_clinic.case import Bug
from model.bug_clinic.comparison import BUGS
from model.gpt2 import load_transformer


def _sound(key: str, title: str, said: str, base: type[SmallDecoder] = SmallDecoder, **config: Any) -> SampleModule:
    make = partial(base, SmallConfig(**config)) if config else base
    return SampleModule(key, "", "", title, said, make=make)


WINDOW = N_("A window of 3 in each of 3 layers: a reach of 6.")
PREFIX = N_("The first 6 tokens see each other in both directions.")
SOUND = (
    _sound("sound", N_("Correct: causal"), N_("Causal, as declared.")),
    _sound("sound-window", N_("Correct: sliding window"), WINDOW, sliding_window=3),
    _sound("sound-chunk", N_("Correct: chunks"), N_("Causal within chunks of 5."), attention_chunk_size=5),
    _sound("sound-prefix", N_("Correct: prefix"), PREFIX, prefix_length=6),
    _sound("sound-encoder", N_("Correct: encoder"), N_("Every token sees every other."), is_causal=False),
    _sound("sound-top-k", N_("Correct: top k"), N_("Every query reads the 6 keys of its top k."), samples.PicksKeys),
    _sound("sound-pair", N_("Correct: encoder-decoder"), N_("With a source."), SmallPair),
)
WINDOWED, WINDOWS = SmallConfig(sliding_window=3), ["full_attention", "sliding_attention", "full_attention"]
PUBLISHED = [
    faulty(
        *("future", "reach", N_("RoFormer, BigBird, RemBert and MegatronBert with is_decoder, transformers#48745")),
        N_("Sees the future as a decoder"),
        N_("is_decoder is set, but the mask is bidirectional."),
        order=lambda module, order, *_: samples.everything(order),
    ),
    faulty(
        *("sdpa", "kernels", N_("Doge, transformers#48748"), N_("Leaks only with sdpa")),
        N_("Eager attention gets the mask; sdpa relies on a flag that is never set."),
        defaults=SmallConfig(_attn_implementation="sdpa"),
        for_kernel=lambda module, mask, *_: None if module.config._attn_implementation == "sdpa" else mask,
    ),
    faulty(
        *("flex", "kernels", N_("FlexAttention's FLASH backend, pytorch#188322")),
        N_("FlexAttention without its block mask"),
        N_("FlexAttention is called without its block mask."),
        for_kernel=lambda module, mask, *_: None if module.config._attn_implementation == "flex_attention" else mask,
    ),
    faulty(
        *("packed", "packing", N_("transformers#46634, axolotl#3796"), N_("Packed documents see each other")),
        N_("Positions restart in each document, but the mask does not."),
        documents_of=lambda *_: None,
    ),
    faulty(
        *("document-mask", "packing", "", N_("Document mask ignored")),
        N_("A document mask is accepted, but the causal mask is used instead."),
        defaults=SmallConfig(packs_by="attention_mask"),
        explicit=lambda *_: None,
    ),
    faulty(
        *("counts-pads", "padding-left", N_("one pad moved a loss from 4.5 to 13.6, TransformerLens#1610")),
        N_("A pad shifts every position"),
        N_("The padding mask is obeyed, but positions are counted over pads too."),
        positions_of=samples.counted_over_pads,
        takes=("input_ids", "attention_mask"),
    ),
    faulty(
        *("pads", "pad-content", "", N_("Attends to pads"), N_("The padding mask is accepted but not applied.")),
        keep_of=lambda module, keep, *_: samples.everything(keep),
    ),
    faulty(
        *("repeated", "padding-left", "", N_("Masks repeated in the wrong order")),
        N_("Each row's mask should apply to all of its heads, but `repeat` interleaves the masks of the rows."),
        allowed=samples.interleaved,
        attention_kernels=("eager", "sdpa"),
    ),
    faulty(
        *("cached-padding", "cache", "", N_("Padded prompt, then the cache")),
        N_("A full run obeys the padding mask, but a cached step treats every cached key as a real token."),
        keep_of=lambda module, keep, places: samples.everything(keep) if places.step else keep,
    ),
    faulty(
        *("cropped", "cache", "", N_("Sliding cache, one key short")),
        N_("A sliding cache that drops one key too many once it is past its window."),
        defaults=SmallConfig(sliding_window=5),
        cached=lambda module, kept, *_: tuple(one[..., 1:, :] if one.shape[-2] == 4 else one for one in kept),
    ),
    faulty(
        *("ring", "cache", "", N_("Sliding cache in the wrong order")),
        N_("A sliding cache written as a ring and read from its first slot: masks no longer meet their keys."),
        defaults=SmallConfig(sliding_window=5),
        cached=lambda module, kept, *_: tuple(one.roll(1, -2) for one in kept),
    ),
    faulty(
        *("static", "cache", "", N_("Static cache written one slot too early")),
        N_("Each step of a static cache is written over the slot of the token before it."),
        cached=lambda module, kept, *_: tuple(torch.cat([one[..., :-2, :], one[..., -1:, :]], -2) for one in kept),
    ),
    faulty(
        *("chunked-steps", "cache", "", N_("Several tokens per step see ahead")),
        N_("Several tokens in one step see each other in both directions, as if the mask restarted at each step."),
        order=lambda module, order, mask, places: (
            order | (places.keys >= places.queries[:, :1])[:, None] if places.step else order
        ),
    ),
    faulty(
        *("wide", "reach", "", N_("Window one too wide")),
        N_("A window of w in which a token sees w earlier tokens and itself: one more than declared."),
        defaults=WINDOWED,
        order=samples.window_wider(1),
        cached=lambda module, kept, layer, k, v: (k, v),
    ),
    faulty(
        *("narrow", "gradients", "", N_("Window one too narrow")),
        N_("A window of w that excludes its farthest token."),
        defaults=WINDOWED,
        order=samples.window_wider(-1),
    ),
    faulty(
        *("training", "training", "", N_("No mask in training mode"), N_("The mask is built only in eval mode.")),
        order=lambda module, order, *_: samples.everything(order) if module.training else order,
    ),
    faulty(
        *("source", "cross", "", N_("Attends to the source's pads")),
        N_("Cross-attention without the source's padding mask."),
        base=SmallPair,
        source_allowed=lambda module, allowed, *_: samples.everything(allowed),
    ),
    faulty(
        *("encoder-pads", "encoder", "", N_("The encoder attends to pads")),
        N_("The encoder has no padding mask, though cross-attention has one."),
        base=SmallPair,
        source_reach=lambda module, reach, *_: samples.everything(reach),
    ),
    faulty(
        *("encoder-causal", "encoder", "", N_("A causal encoder")),
        N_("The encoder is given the decoder's causal mask: a source token never sees a later one."),
        base=SmallPair,
        source_reach=lambda module, reach, *_: reach & torch.ones(2 * reach.shape[-1:], dtype=torch.bool).tril(),
    ),
    SampleModule(
        *("hidden", "gradients", "", N_("A leak that no substitute token reveals")),
        N_(
            "Reads one number of every later embedding, and that number is the same for all tokens: no substitute "
            "reveals it."
        ),
        make=samples.HidesItsLeak,
    ),
    faulty(
        *("rows", "batch", "", N_("Rows of a batch mix")),
        N_("Normalised over the batch: a row's outputs depend on the rows beside it."),
        attend=lambda module, found, *_: found - found.mean(0, keepdim=True) * 0.5,
    ),
    faulty(
        *("ahead", "length", "karpathy/nanochat#844", N_("Reads ahead within blocks of 64")),
        N_(
            "In rows of more than 64 tokens the mask is made for whole blocks, so that tokens of a block see each "
            "other."
        ),
        defaults=SmallConfig(max_position_embeddings=140),
        order=samples.ahead_in_blocks,
    ),
    faulty(
        *("unused", "parameters", "vllm#49815", N_("A parameter that nothing reads")),
        N_("A normalization of the queries has weights, which are loaded and trained, and is never called."),
        block=lambda module, block: block.add_module("query_norm", nn.LayerNorm(24)) or block,
    ),
    SampleModule(
        *("positions", "positions", "", N_("Position ids ignored")),
        N_("position_ids are accepted and positions are counted all the same."),
        make=samples.IgnoresPositions,
    ),
    faulty(
        *("shift", "packing", "parameter-golf#1797", N_("Token shift across documents")),
        N_("A part of each embedding is the previous token's, of another document too where one begins."),
        embed=lambda module, found, *_: found + 0.5 * F.pad(found, (0, 0, 1, 0))[:, :-1],
        takes=("input_ids", "position_ids"),
    ),
    faulty(
        *("cross-causal", "cross-reach", "transformers#48172", N_("Causal cross-attention")),
        N_("Cross-attention is given the causal mask: an output reads no source token after its own position."),
        base=SmallPair,
        source_allowed=lambda module, allowed, keep, queries: (
            allowed & torch.ones(queries, keep.shape[1], dtype=torch.bool).tril()
        ),
    ),
    faulty(
        *("backward", "derivative", "pytorch#158212", N_("Right outputs, wrong gradients")),
        N_("A kernel's backward forgets a factor of two."),
        attend=lambda module, found, *_: found / 2 + (found / 2).detach(),
    ),
    faulty(
        *("checkpointed", "checkpointing", "lightly#2049", N_("Gradient checkpointing without the mask")),
        N_("With gradient checkpointing the layers are called without their mask."),
        order=lambda module, order, *_: samples.everything(order) if module.gradient_checkpointing else order,
    ),
    faulty(
        *("compiled", "compile", "transformers#44202", N_("torch.compile without the mask")),
        N_("The mask is left out while torch.compile traces the module."),
        defaults=SmallConfig(packs_by=None),
        order=lambda module, order, *_: samples.everything(order) if torch.compiler.is_compiling() else order,
    ),
    faulty(
        *("rejected", "reuse", "mlx-lm#1736, transformers#45940", N_("A rejected draft stays in the cache")),
        N_("Cutting the cache after rejected drafts leaves one key too many."),
        cache=samples.KeepsRejected,
    ),
    faulty(
        *("first-logits", "last", "", N_("logits_to_keep keeps the first")),
        N_("logits_to_keep cuts the logits at their end in place of their beginning."),
        last=lambda module, found, x, count: x[:, :count],
    ),
    faulty(
        *("tree", "tree", "transformers#48482", N_("A tree mask read as documents")),
        N_("An explicit mask is turned into document numbers, which packed rows have and draft trees have not."),
        explicit=samples.mask_as_documents,
    ),
    faulty(
        *("unpositioned", "unpositioned", "trl#6800", N_("Pads shift positions unless they are given")),
        N_("Positions are counted over pads where a padded row comes without position_ids."),
        positions_of=samples.counted_over_pads,
    ),
    faulty(
        *("images", "images", "", N_("Images see each other")),
        N_("All image tokens see each other both ways, those of a later image too."),
        images_of=lambda module, images, *_: images.clamp(max=1),
    ),
    faulty(
        *("one-wide", "layers", "", N_("One layer's window too wide")),
        N_("One layer of three has a window, one token too wide; the others see everything."),
        defaults=SmallConfig(sliding_window=5, layer_types=WINDOWS),
        order=samples.window_wider(1),
        cached=lambda module, kept, layer, k, v: (k, v),
    ),
    faulty(
        *("top-k", "layers", "", N_("More keys than the top k")),
        N_("Beyond its top k, a query reads every key all the same."),
        base=samples.PicksKeys,
        picked=lambda module, picked, *_: samples.everything(picked),
    ),
    faulty(
        *("row-of-one", "batch", "llm2vec#74, sentence-transformers#3513"),
        N_("An encoder that is causal in a batch of one"),
        N_(
            "A decoder made an encoder: in a batch of one without padding no mask is made, and the causal flag is back."
        ),
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
    about = (bug.key, BUG_LAWS[bug.key], N_("the Bug clinic"), bug.title, bug.wrong, bug.variant)
    return SampleModule(*about, make=make)


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


TWIN = SampleModule(
    *("twin", "reach", N_("The twin without a mask")),
    N_("Trained and run without the causal mask, and called a language model."),
    N_("the page Why causal"),
    make=UnmaskedTwin,
)
SAMPLES = {one.key: one for one in (*SOUND, *PUBLISHED, *(_of_bug(bug) for bug in BUGS if bug.key in BUG_LAWS), TWIN)}
