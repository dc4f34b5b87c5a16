"""Heads of a whole run compared with another's, and heads whose weights somebody else computed.

Sizes: L layers, H heads, Q queries, K keys, S and S' the sides of a thumbnail.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from i18n import say
from model.errors import index
from model.heads.survey import thumbnail_size
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


def given_weights(attentions: Any, row: int, *, across: bool = False) -> np.ndarray:
    """What transformers gives as `attentions`, as float32 [L,H,Q,K] of a row: a tensor [B,H,Q,K] for each layer, or
    from `generate` such a tuple for each step, whose queries follow each other; or an output that holds either.

    across: whether the keys are another text, so that they are the same at each step. Raises ValueError for anything
    else.
    """
    found = getattr(attentions, "attentions", attentions)
    if found is attentions and getattr(attentions, "decoder_attentions", None) is not None:
        raise ValueError(
            "expected one attention of an encoder-decoder, its output's decoder_attentions, cross_attentions (with "
            f"keys=…) or encoder_attentions, got {type(attentions).__name__}"  # not shown
        )
    if getattr(attentions, "beam_indices", None) is not None:
        raise ValueError("expected greedy or sampled steps, got those of a beam search (num_beams=1)")  # not shown
    steps = found if _is_tuple(found) and all(map(_is_tuple, found)) else [found]
    if not all(_is_tuple(step) and all(map(_is_array, step)) for step in steps):
        raise ValueError(
            "expected a tuple of a tensor [B,H,Q,K] for each layer, or generate's tuple of such tuples "
            "(output_attentions=True, and attention that gives its weights: attn_implementation='eager'), got "
            f"{_kind(found)}"  # not shown
        )
    weights = [_stacked(step, row) for step in steps]
    if len({part.shape[:2] for part in weights}) > 1:
        raise ValueError("expected as many layers and heads at every step, got others")  # not shown
    if not all(bool(((part >= 0) & (part <= 1 + 1e-3)).all()) for part in weights):
        raise ValueError("expected weights from 0 to 1, after the softmax, got others")  # not shown
    return _in_turn(weights, across=across).numpy()


def _stacked(layers: Sequence[Any], row: int) -> torch.Tensor:
    """[L,H,Q,K] of a row."""
    tensors = [torch.as_tensor(one).detach().float().cpu() for one in layers]
    shapes = {tuple(one.shape) for one in tensors}
    if len(shapes) > 1 or tensors[0].ndim != 4:
        raise ValueError(f"expected one shape [B,H,Q,K] for all layers, got {sorted(shapes)}")  # not shown
    return torch.stack([one[index("row", row, len(tensors[0]))] for one in tensors])


def _in_turn(steps: list[torch.Tensor], *, across: bool) -> torch.Tensor:
    """Steps [L,H,Q,K], each with the queries that follow those before, as one [L,H,Q,K]. Keys that a step had not
    have weight 0: later ones, and those that a sliding cache had dropped."""
    whole = steps[-1]
    if len(steps) == 1 or (not across and whole.shape[2] > 1 and whole.shape[2] == whole.shape[3]):
        return whole  # without a cache each step is the whole text again
    total = sum(step.shape[2] for step in steps)
    keys = max(step.shape[3] for step in steps) if across else total
    result = torch.zeros(*whole.shape[:2], total, keys)
    done = 0
    for step in steps:
        queries, held = step.shape[2:]
        end = held if across else done + queries
        if held > end:
            raise ValueError(
                f"expected {end} keys at most after {end} tokens, got {held}: a static cache, or another text, whose "
                "labels are keys=…"  # not shown
            )
        result[:, :, done : done + queries, end - held : end] = step
        done += queries
    return result


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


def _is_tuple(some: Any) -> bool:
    return isinstance(some, tuple | list) and len(some) > 0


def _is_array(one: Any) -> bool:
    return isinstance(one, torch.Tensor | np.ndarray)


def _kind(attentions: Any) -> str:
    if isinstance(attentions, Sequence) and not isinstance(attentions, str) and len(attentions):
        return f"{len(attentions)} of {type(attentions[0]).__name__}"
    return type(attentions).__name__
