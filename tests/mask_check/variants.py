"""More modules that break one law each, beside the samples: other causes of the same law."""

from functools import wraps
from typing import Any

import torch
from torch import Tensor

from mask_check.more_samples import OneLayerTooWide, ShiftsTokens
from mask_check.sample_networks import SmallCache, SmallDecoder, SmallOutput, SmallPair


class CarriesItsState(ShiftsTokens):
    key, law = "state", "packing"
    said = "A state-space layer with a slow decay is not reset where a document begins."
    reported = "transformers#46588, torchtitan#3892, prime-rl#3002"

    def embed(self, ids: Tensor) -> Tensor:
        row = torch.arange(ids.shape[1], device=ids.device)
        found = SmallDecoder.embed(self, ids)
        return found + (0.98 ** (row[:, None] - row)).tril(-1).to(found) @ found * 0.1


class CutsItsSource(SmallPair):
    key, law = "cross-cut", "cross-reach"
    said = "Cross-attention reads the first 5 source tokens alone."

    def source_allowed(self, source_keep: Tensor, queries: int) -> Tensor:
        few = torch.arange(source_keep.shape[1], device=source_keep.device) < 5
        return super().source_allowed(source_keep & few, queries)


class ReordersKeysAlone(SmallCache):
    """A cache whose values stay where they are."""

    def reorder_cache(self, rows: Tensor) -> None:
        self.layers = [(k[rows], v) for k, v in self.layers]


class ReordersKeys(SmallDecoder):
    key, law = "reordered", "reuse"
    said = "Reordering the cache moves keys to other rows and leaves the values."
    cache = ReordersKeysAlone


class CountsInItself(SmallDecoder):
    key, law = "own-count", "reuse"
    said = "How many tokens were read is kept in the module: a second continuation of a prefix goes on there."
    reported = "mlx-lm#1908"
    read = 0

    @wraps(SmallDecoder.forward)
    def forward(self, input_ids: Tensor, *given: Any, **more: Any) -> SmallOutput:  # type: ignore[override]
        """As SmallDecoder's. Positions begin where the last call ended, unless they are given."""
        cached = more.get("past_key_values") is not None
        self.read = self.read if cached else 0
        if cached and more.get("position_ids") is None:
            more["position_ids"] = torch.arange(self.read, self.read + input_ids.shape[1]).expand_as(input_ids)
        self.read += input_ids.shape[1]
        return super().forward(input_ids, *given, **more)


class OneLayerTooNarrow(OneLayerTooWide):
    key, law = "one-narrow", "layers"
    said = "One layer of three has a window, one token too narrow; the others see everything."
    more = -1


VARIANTS = [CarriesItsState, CutsItsSource, ReordersKeys, CountsInItself, OneLayerTooNarrow]
