"""Heads of a whole run compared with another's, and heads whose weights somebody else computed.

Sizes: L layers, H heads, Q queries, K keys, S and S' the sides of a thumbnail.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from model.errors import index
from model.heads.survey import thumbnail_size
from model.language import say
from model.trace import Thumbnails, Trace


@dataclass(frozen=True, eq=False)
class Changes:
    """thumbnails: float32 [L,H,S,S'], the largest change of a weight in each patch, without its sign.
    largest: float32 [L,H], of each head, 0 to 1."""

    thumbnails: np.ndarray
    largest: np.ndarray

    def nbytes(self) -> int:
        """The memory it takes, in bytes."""
        return self.thumbnails.nbytes + self.largest.nbytes


@torch.inference_mode()
def changes(trace: Trace, other: Trace, row: int) -> Changes:
    """Every weight of a run less the other's, a block of queries at a time.

    Raises ValueError for runs of other shapes or on other tokens.
    """
    shapes = [[(*record.q.shape[1:3], record.k.shape[2]) for record in one.layers] for one in (trace, other)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            say("expected two runs of one shape, got {one} and {other}", one=_said(trace), other=_said(other))
        )
    if not torch.equal(trace.batch.ids[row], other.batch.ids[row]):
        raise ValueError(say("expected two runs on the same tokens, got other ones"))
    thumbnails = Thumbnails(trace, thumbnail_size(trace.num_layers, trace.num_heads))
    for (layer, some, weights), (_, _, others) in zip(trace.blocks(row), other.blocks(row), strict=True):
        thumbnails.add(layer, some, (weights - others).abs())
    found = thumbnails.result.numpy()
    return Changes(found, found.max((2, 3)))


def every_weight(trace: Trace, row: int) -> np.ndarray:
    """float32 [L,H,Q,K]: all of them, which of a long text are many."""
    blocks: list[list[torch.Tensor]] = [[] for _ in trace.layers]
    for layer, _, weights in trace.blocks(row):
        blocks[layer].append(weights.cpu())
    return torch.stack([torch.cat(some, dim=1) for some in blocks]).numpy()


def given_weights(attentions: Sequence[Any], row: int) -> np.ndarray:
    """What transformers gives as `attentions`, a tensor [B,H,Q,K] for each layer, as float32 [L,H,Q,K] of a row.

    Raises ValueError for anything else.
    """
    if (
        isinstance(attentions, torch.Tensor | np.ndarray)
        or not len(attentions)
        or any(one is None for one in attentions)
    ):
        raise ValueError(
            "expected a tuple of a tensor [B,H,Q,K] for each layer (output_attentions=True, and attention that gives "
            f"its weights: attn_implementation='eager'), got {_kind(attentions)}"  # not shown
        )
    layers = [torch.as_tensor(one).detach().float().cpu() for one in attentions]
    shapes = {tuple(one.shape) for one in layers}
    if len(shapes) > 1 or layers[0].ndim != 4:
        raise ValueError(f"expected one shape [B,H,Q,K] for all layers, got {sorted(shapes)}")  # not shown
    weights = torch.stack([one[index("row", row, len(layers[0]))] for one in layers])
    if not bool(((weights >= 0) & (weights <= 1 + 1e-3)).all()):
        raise ValueError("expected weights from 0 to 1, after the softmax, got others")  # not shown
    return weights.numpy()


def thumbnails(weights: np.ndarray) -> np.ndarray:
    """float32 [L,H,Q,K] -> [L,H,S,S']: the largest weight of each patch."""
    layers, heads, queries, keys = weights.shape
    size = thumbnail_size(layers, heads)
    return F.adaptive_max_pool2d(torch.from_numpy(weights), (min(queries, size), min(keys, size))).numpy()


def _said(trace: Trace) -> str:
    return say(
        "{layers} layers of {heads} heads on {tokens} tokens",
        layers=trace.num_layers, heads=trace.num_heads, tokens=trace.batch.ids.shape[1],
    )  # fmt: skip


def _kind(attentions: Any) -> str:
    if isinstance(attentions, Sequence) and len(attentions):
        return f"{len(attentions)} of {type(attentions[0]).__name__}"
    return type(attentions).__name__
