"""Modules that break one law each, the way that reports of published software say it was broken.

Each is the small sound decoder with one method replaced. Its fields are those of registry.SampleModule.
"""

from dataclasses import replace

import torch
from torch import Tensor

from i18n import N_
from mask_check.declared import LayerMask
from mask_check.sample_networks import Places, SmallConfig, SmallDecoder, SmallOutput, SmallPair, Stages
from model.attention import attention_stages


class SeesTheFuture(SmallDecoder):
    key, law = "future", "reach"
    title = N_("Sees the future as a decoder")
    said = N_("is_decoder is set, but the mask is bidirectional.")
    reported = N_("RoFormer, BigBird, RemBert and MegatronBert with is_decoder, transformers#48745")

    def order(self, mask: LayerMask, places: Places) -> Tensor:
        return torch.ones_like(super().order(mask, places))


class LeaksUnderSdpa(SmallDecoder):
    key, law = "sdpa", "kernels"
    title = N_("Leaks only with sdpa")
    said = N_("Eager attention gets the mask; sdpa relies on a flag that is never set.")
    reported = N_("Doge, transformers#48748")
    defaults = SmallConfig(_attn_implementation="sdpa")

    def for_sdpa(self, allowed: Tensor) -> Tensor | None:
        return None


class IgnoresTheBlockMask(SmallDecoder):
    key, law = "flex", "kernels"
    title = N_("FlexAttention without its block mask")
    said = N_("FlexAttention is called without its block mask.")
    reported = N_("FlexAttention's FLASH backend, pytorch#188322")

    def for_flex(self, block_mask: object) -> object:
        return None


class PacksTogether(SmallDecoder):
    key, law = "packed", "packing"
    title = N_("Packed documents see each other")
    said = N_("Positions restart in each document, but the mask does not.")
    reported = N_("transformers#46634, axolotl#3796")

    def documents_of(self, position_ids: Tensor) -> Tensor | None:
        return None


class IgnoresTheDocumentMask(SmallDecoder):
    key, law = "document-mask", "packing"
    title = N_("Document mask ignored")
    said = N_("A document mask is accepted, but the causal mask is used instead.")
    defaults = SmallConfig(packs_by="attention_mask")

    def explicit(self, mask: Tensor) -> Tensor | None:
        return None


class CountsPads(SmallDecoder):
    key, law = "counts-pads", "padding-left"
    title = N_("A pad shifts every position")
    said = N_("The padding mask is obeyed, but positions are counted over pads too.")
    reported = N_("one pad moved a loss from 4.5 to 13.6, TransformerLens#1610")

    def positions_of(self, keep: Tensor) -> Tensor:
        return torch.arange(keep.shape[1]).expand(len(keep), -1)

    def forward(  # type: ignore[override]  # takes no position_ids, so that nobody can put it right from outside
        self, input_ids: Tensor, attention_mask: Tensor | None = None
    ) -> SmallOutput:
        return super().forward(input_ids, attention_mask)


class LooksAtPads(SmallDecoder):
    key, law = "pads", "pad-content"
    title = N_("Attends to pads")
    said = N_("The padding mask is accepted but not applied.")

    def allowed(self, layer: int, places: Places) -> Tensor:
        everything = torch.ones_like(places.keep)
        return super().allowed(layer, replace(places, keep=everything))


class RepeatsMasks(SmallDecoder):
    key, law = "repeated", "padding-left"
    title = N_("Masks repeated in the wrong order")
    said = N_("Each row's mask should apply to all of its heads, but `repeat` interleaves the masks of the rows.")

    attention_kernels = ("eager", "sdpa")

    def allowed(self, layer: int, places: Places) -> Tensor:
        allowed = super().allowed(layer, places)
        rows, _, queries, keys = allowed.shape
        heads = self.config.num_attention_heads
        return allowed[:, 0].repeat(heads, 1, 1).view(rows, heads, queries, keys)


class ForgetsPaddingWhenCached(SmallDecoder):
    key, law = "cached-padding", "cache"
    title = N_("Padded prompt, then the cache")
    said = N_("A full run obeys the padding mask, but a cached step treats every cached key as a real token.")

    def allowed(self, layer: int, places: Places) -> Tensor:
        keep = torch.ones_like(places.keep) if places.step else places.keep
        return super().allowed(layer, replace(places, keep=keep))


class CropsItsCache(SmallDecoder):
    key, law = "cropped", "cache"
    title = N_("Sliding cache, one key short")
    said = N_("A sliding cache that drops one key too many once it is past its window.")
    defaults = SmallConfig(sliding_window=5)

    def cached(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        k, v = super().cached(layer, k, v)
        full = k.shape[-2] == (self.masks[layer].window or 0) - 1
        return (k[..., 1:, :], v[..., 1:, :]) if full else (k, v)


class ChunkedStepsSeeAhead(SmallDecoder):
    key, law = "chunked-steps", "cache"
    title = N_("Several tokens per step see ahead")
    said = N_("Several tokens in one step see each other in both directions, as if the mask restarted at each step.")

    def order(self, mask: LayerMask, places: Places) -> Tensor:
        order = super().order(mask, places)
        new = places.keys >= places.queries[:, :1]
        return order | new[:, None] if places.step else order


class WindowTooWide(SmallDecoder):
    key, law = "wide", "reach"
    title = N_("Window one too wide")
    said = N_("A window of w in which a token sees w earlier tokens and itself: one more than declared.")
    defaults = SmallConfig(sliding_window=3)

    def order(self, mask: LayerMask, places: Places) -> Tensor:
        return super().order(LayerMask(window=(mask.window or 0) + 1), places)

    def cached(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return k, v


class WindowTooNarrow(WindowTooWide):
    key, law = "narrow", "gradients"
    title = N_("Window one too narrow")
    said = N_("A window of w that excludes its farthest token.")

    def order(self, mask: LayerMask, places: Places) -> Tensor:
        return SmallDecoder.order(self, LayerMask(window=(mask.window or 0) - 1), places)


class TrainsWithoutMask(SmallDecoder):
    key, law = "training", "training"
    title = N_("No mask in training mode")
    said = N_("The mask is built only in eval mode.")

    def order(self, mask: LayerMask, places: Places) -> Tensor:
        order = super().order(mask, places)
        return torch.ones_like(order) if self.training else order


class LooksAtSourcePads(SmallPair):
    key, law = "source", "cross"
    title = N_("Attends to the source's pads")
    said = N_("Cross-attention without the source's padding mask.")

    def source_allowed(self, source_keep: Tensor, queries: int) -> Tensor:
        return torch.ones_like(source_keep)[:, None, None, :]


class EncodesPads(SmallPair):
    key, law = "encoder-pads", "encoder"
    title = N_("The encoder attends to pads")
    said = N_("The encoder has no padding mask, though cross-attention has one.")

    def source_reach(self, source_keep: Tensor) -> Tensor:
        return torch.ones_like(source_keep)[:, None, None, :]


class EncodesCausally(SmallPair):
    key, law = "encoder-causal", "encoder"
    title = N_("A causal encoder")
    said = N_("The encoder is given the decoder's causal mask: a source token never sees a later one.")

    def source_reach(self, source_keep: Tensor) -> Tensor:
        length = source_keep.shape[1]
        return super().source_reach(source_keep) & torch.ones(length, length, dtype=torch.bool).tril()


class LeaksWhatFewTokensHave(SmallDecoder):
    key, law = "hidden", "gradients"
    title = N_("A leak that no substitute token reveals")
    said = N_(
        "Reads one number of every later embedding, and that number is the same for all tokens: no substitute "
        "reveals it."
    )

    def __init__(self) -> None:
        super().__init__()
        with torch.no_grad():
            self.embedding.weight[:, 0] = 0.7

    def embed(self, ids: Tensor) -> Tensor:
        found = super().embed(ids)
        ahead = found[..., :1].flip(1).cumsum(1).flip(1)
        return torch.cat([found[..., :1], found[..., 1:2] + 0.1 * ahead, found[..., 2:]], dim=-1)


class MixesItsRows(SmallDecoder):
    key, law = "rows", "batch"
    title = N_("Rows of a batch mix")
    said = N_("Normalised over the batch: a row's outputs depend on the rows beside it.")

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
        found = super().attend(layer, q, k, v, allowed)
        return found - found.mean(0, keepdim=True) * 0.5


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
