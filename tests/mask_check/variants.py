"""More modules that break one law each, by causes that the samples do not have."""

from functools import wraps
from typing import Any

import torch
from torch import Tensor

from mask_check.sample_networks import SmallCache, SmallConfig, SmallDecoder, SmallOutput, SmallPair
from mask_check.samples import faulty, sample, window_wider


def carried(_module: SmallDecoder, found: Tensor, ids: Tensor) -> Tensor:
    """Add a slowly decaying state that is not reset where a document begins: a step of `embed`."""
    row = torch.arange(ids.shape[1], device=ids.device)
    return found + (0.98 ** (row[:, None] - row)).tril(-1).to(found) @ found * 0.1


class ReordersKeysAlone(SmallCache):
    """A cache that reorders its keys but not its values."""

    def reorder_cache(self, rows: Tensor) -> None:
        self.layers = [(k[rows], v) for k, v in self.layers]


class CountsInItself(SmallDecoder):
    """A decoder that keeps the number of tokens read in the module."""

    read = 0

    @wraps(SmallDecoder.forward)
    def forward(self, input_ids: Tensor, *given: Any, **more: Any) -> SmallOutput:  # type: ignore[override]
        """Call SmallDecoder's forward. Positions begin where the last call ended, unless they are given."""
        cached = more.get("past_key_values") is not None
        self.read = self.read if cached else 0
        if cached and more.get("position_ids") is None:
            more["position_ids"] = torch.arange(self.read, self.read + input_ids.shape[1]).expand_as(input_ids)
        self.read += input_ids.shape[1]
        return super().forward(input_ids, *given, **more)


ABOUT = {
    "state": ("packing", "A state across documents", "A state-space layer is not reset where a document begins."),
    "cross-cut": ("cross-reach", "A cut source", "Cross-attention reads the first 5 source tokens alone."),
    "reordered": ("reuse", "Keys alone", "Reordering the cache moves keys to other rows and leaves the values."),
    "own-count": ("reuse", "Its own count", "A second continuation of a prefix goes on where the first ended."),
    "one-narrow": ("layers", "One narrow layer", "One layer of three has a window, one token too narrow."),
}


def about(key: str) -> dict[str, str]:
    return dict(zip(("law", "title", "said"), ABOUT[key], strict=True))


LAYERS = ["full_attention", "sliding_attention", "full_attention"]
VARIANTS = [
    faulty("state", about=about("state"), embed=carried, takes=("input_ids", "position_ids")),
    faulty(
        "cross-cut",
        about=about("cross-cut"),
        base=SmallPair,
        source_allowed=lambda _module, allowed, *_: allowed & (torch.arange(allowed.shape[-1]) < 5),
    ),
    faulty("reordered", about=about("reordered"), cache=ReordersKeysAlone),
    sample("own-count", CountsInItself, about("own-count")),
    faulty(
        "one-narrow",
        about=about("one-narrow"),
        defaults=SmallConfig(sliding_window=5, layer_types=LAYERS),
        order=window_wider(-1),
    ),
]
