"""Further modules that break one law each: longer rows, training, serving, images, and what encoders are made of.

Each is a small sound module with one method replaced. Its fields are those of registry.SampleModule.
"""

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from i18n import N_
from mask_check.declared import LayerMask
from mask_check.sample_networks import Places, SmallCache, SmallConfig, SmallDecoder, SmallOutput, SmallPair


class ReadsAheadInBlocks(SmallDecoder):
    key, law = "ahead", "length"
    title = N_("Reads ahead within blocks of 64")
    said = N_(
        "In rows of more than 64 tokens the mask is made for whole blocks, so that tokens of a block see each other."
    )
    reported = "karpathy/nanochat#844"
    defaults = SmallConfig(max_position_embeddings=140)

    def order(self, mask: LayerMask, places: Places) -> Tensor:
        order = super().order(mask, places)
        block = places.queries[:, :, None] // 64 == places.keys[:, None, :] // 64
        return order | block if places.keys.shape[1] > 64 else order


class ForgetsItsNorm(SmallDecoder):
    key, law = "unused", "parameters"
    title = N_("A parameter that nothing reads")
    said = N_("A normalization of the queries has weights, which are loaded and trained, and is never called.")
    reported = "vllm#49815"

    def __init__(self) -> None:
        super().__init__()
        self.query_norm = nn.LayerNorm(self.config.hidden_size)


class IgnoresPositions(SmallDecoder):
    key, law = "positions", "positions"
    title = N_("Position ids ignored")
    said = N_("position_ids are accepted and positions are counted all the same.")

    def forward(self, input_ids: Tensor, position_ids: Tensor | None = None, **more: Any) -> SmallOutput:  # type: ignore[override]
        return super().forward(input_ids, **more)


class ShiftsTokens(SmallDecoder):
    key, law = "shift", "packing"
    title = N_("Token shift across documents")
    said = N_("A part of each embedding is the previous token's, of another document too where one begins.")
    reported = "parameter-golf#1797"

    def embed(self, ids: Tensor) -> Tensor:
        found = super().embed(ids)
        return found + 0.5 * F.pad(found, (0, 0, 1, 0))[:, :-1]

    def forward(self, input_ids: Tensor, position_ids: Tensor | None = None) -> SmallOutput:  # type: ignore[override]
        return super().forward(input_ids, position_ids=position_ids)


class ReadsSourceCausally(SmallPair):
    key, law = "cross-causal", "cross-reach"
    title = N_("Causal cross-attention")
    said = N_("Cross-attention is given the causal mask: an output reads no source token after its own position.")
    reported = "transformers#48172"

    def source_allowed(self, source_keep: Tensor, queries: int) -> Tensor:
        order = torch.ones(queries, source_keep.shape[1], dtype=torch.bool, device=source_keep.device).tril()
        return super().source_allowed(source_keep, queries) & order


class HalvesGradients(torch.autograd.Function):
    """The identity, whose backward forgets a factor."""

    @staticmethod
    def forward(ctx: Any, found: Tensor) -> Tensor:
        return found.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] / 2


class WrongBackward(SmallDecoder):
    key, law = "backward", "derivative"
    title = N_("Right outputs, wrong gradients")
    said = N_("A kernel's backward forgets a factor of two.")
    reported = "pytorch#158212"

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
        found: Tensor = HalvesGradients.apply(super().attend(layer, q, k, v, allowed))  # type: ignore[no-untyped-call]
        return found


class CheckpointsWithoutMask(SmallDecoder):
    key, law = "checkpointed", "checkpointing"
    title = N_("Gradient checkpointing without the mask")
    said = N_("With gradient checkpointing the layers are called without their mask.")
    reported = "lightly#2049"

    def order(self, mask: LayerMask, places: Places) -> Tensor:
        order = super().order(mask, places)
        return torch.ones_like(order) if self.gradient_checkpointing else order


class CompilesWithoutMask(SmallDecoder):
    key, law = "compiled", "compile"
    title = N_("torch.compile without the mask")
    said = N_("The mask is left out while torch.compile traces the module.")
    reported = "transformers#44202"
    defaults = SmallConfig(packs_by=None)

    def order(self, mask: LayerMask, places: Places) -> Tensor:
        order = super().order(mask, places)
        return torch.ones_like(order) if torch.compiler.is_compiling() else order


class KeepsRejected(SmallCache):
    """A cache that is cut one token too late."""

    def crop(self, length: int) -> None:
        super().crop(length + 1)
        self.length = length


class KeepsRejectedDrafts(SmallDecoder):
    key, law = "rejected", "reuse"
    title = N_("A rejected draft stays in the cache")
    said = N_("Cutting the cache after rejected drafts leaves one key too many.")
    reported = "mlx-lm#1736, transformers#45940"
    cache = KeepsRejected


class KeepsTheFirst(SmallDecoder):
    key, law = "first-logits", "last"
    title = N_("logits_to_keep keeps the first")
    said = N_("logits_to_keep cuts the logits at their end in place of their beginning.")

    def last(self, x: Tensor, count: int) -> Tensor:
        return x[:, :count]


class TreesAsDocuments(SmallDecoder):
    key, law = "tree", "tree"
    title = N_("A tree mask read as documents")
    said = N_("An explicit mask is turned into document numbers, which packed rows have and draft trees have not.")
    reported = "transformers#48482"

    def explicit(self, mask: Tensor) -> Tensor | None:
        allowed = super().explicit(mask)
        assert allowed is not None
        begins = ~F.pad(allowed.diagonal(-1, -2, -1), (1, 0), value=True)
        number = begins.cumsum(-1)
        return (number[..., :, None] == number[..., None, :]).tril()


class PadsShiftPositions(SmallDecoder):
    key, law = "unpositioned", "unpositioned"
    title = N_("Pads shift positions unless they are given")
    said = N_("Positions are counted over pads where a padded row comes without position_ids.")
    reported = "trl#6800"

    def positions_of(self, keep: Tensor) -> Tensor:
        return torch.arange(keep.shape[1]).expand(len(keep), -1)


class MergesImages(SmallDecoder):
    key, law = "images", "images"
    title = N_("Images see each other")
    said = N_("All image tokens see each other both ways, those of a later image too.")

    def images_of(self, token_type_ids: Tensor) -> Tensor:
        return (token_type_ids == 1).long()


class OneLayerTooWide(SmallDecoder):
    key, law = "one-wide", "layers"
    title = N_("One layer's window too wide")
    said = N_("One layer of three has a window, one token too wide; the others see everything.")
    defaults = SmallConfig(sliding_window=5, layer_types=["full_attention", "sliding_attention", "full_attention"])
    more = 1

    def order(self, mask: LayerMask, places: Places) -> Tensor:
        return super().order(mask if mask.window is None else replace(mask, window=mask.window + self.more), places)

    def cached(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return k, v


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


class PicksEverything(PicksKeys):
    key, law = "top-k", "layers"
    title = N_("More keys than the top k")
    said = N_("Beyond its top k, a query reads every key all the same.")

    def picked(self, scores: Tensor, top: int) -> Tensor:
        return torch.ones_like(scores).bool()


class EncodesOneRowCausally(SmallDecoder):
    key, law = "row-of-one", "batch"
    title = N_("An encoder that is causal in a batch of one")
    said = N_(
        "A decoder made an encoder: in a batch of one without padding no mask is made, and the causal flag is back."
    )
    reported = "llm2vec#74, sentence-transformers#3513"
    defaults = SmallConfig(is_causal=False)

    def order(self, mask: LayerMask, places: Places) -> Tensor:
        order = super().order(mask, places)
        return order.tril() if len(order) == 1 else order
