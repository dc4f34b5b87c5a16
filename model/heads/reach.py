"""The reach of information through a stack of masked attentions: which tokens can affect a position after n layers.

After one layer a position depends on the tokens that it may attend to, in the next on those that these depend on: a
product of boolean masks. A window of W positions back reaches n·(W-1)+1 positions after n layers (Mistral 7B,
arXiv:2310.06825, section 2, which rounds this to n·W). This is what the masks allow, not what a model makes of it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.masks import MaskSpec
from model.trace import Trace


@dataclass(frozen=True)
class PathStep:
    """One step of a path: in `layer`, `query` attends to `key`, and receives what that position depends on by then."""

    layer: int
    query: int
    key: int


@dataclass(frozen=True, eq=False)
class Reach:
    """The reach in one row of T positions over L layers. first: int16 [T,T], see `reach`. window: int64 [L,T], how many
    keys a query may attend to in each layer alone; seen: int64 [L,T], how many can affect it after 1, 2, … L layers,
    itself included. blocked: of one layer, for each mask that is on in it, bool [T,T], True = no head may attend, due
    to this mask."""

    first: np.ndarray
    window: np.ndarray
    seen: np.ndarray
    blocked: dict[str, np.ndarray]


def reach(allowed: list[Tensor]) -> Tensor:
    """Return after how many layers, 1 to L, key k can affect query q; 0 if never: int16 [T,T]. allowed: a bool [T,T]
    for each layer, the first one first. The residual stream carries a token's own state from layer to layer, so each
    layer is its mask OR the identity. Raises ValueError for anything but boolean squares of one size."""
    square = (max(allowed[0].shape, default=0),) * 2 if allowed else ()
    if not allowed or any((mask.dtype, mask.shape) != (torch.bool, square) for mask in allowed):
        found = [(mask.dtype, list(mask.shape)) for mask in allowed]
        why = f"expected a boolean square of one size for each of at least one layer, got {found}"  # not shown
        raise ValueError(why)
    known = torch.eye(len(allowed[0]), dtype=torch.bool)
    first = known.to(torch.int16)
    settled = None  # a mask that adds nothing to what is known
    for layers, mask in enumerate(allowed, 1):
        if known.all() or (settled is not None and torch.equal(mask, settled)):
            continue
        before, known = known, known | (mask.float() @ known.float() > 0)  # sums of at most T ones
        new = known & ~before
        first[new] = layers
        settled = None if new.any() else mask
    return first


def reach_of(trace: Trace, row: int, masks: MaskSpec, layer: int, head: int) -> Reach:
    """Return the reach in one row of a run, if every layer were under `masks`, where they apply; and the cells blocked
    in one layer. Raises ValueError for cross-attention."""
    layers = layer_masks(trace, row, masks)
    first = reach(layers)
    seen = [((first > 0) & (first <= n)).sum(-1) for n in range(1, len(layers) + 1)]
    blocked = trace.blocked_by(layer, row, masks, head=head)
    return Reach(
        first.numpy(),
        torch.stack([mask.sum(-1) for mask in layers]).numpy(),
        torch.stack(seen).numpy(),
        {name: (mask & ~layers[layer]).numpy() for name, mask in blocked.items()},
    )


def leaked_tokens(trace: Trace, row: int, masks: MaskSpec) -> tuple[int, ...]:
    """Return the real tokens of a row that can affect the position which predicts them, the one before, after all
    layers, if every layer were under `masks`; none under a causal mask."""
    layers = layer_masks(trace, row, masks)
    if not any(mask.triu(1).any() for mask in layers):
        return ()
    first, real = reach(layers), trace.queries.real(row)
    return tuple(token for token in range(real.start + 1, real.stop) if first[token - 1, token] > 0)


def paths_to(trace: Trace, row: int, masks: MaskSpec, tokens: tuple[int, ...]) -> dict[int, tuple[PathStep, ...]]:
    """Return for each of these tokens a `path` to it from the position that predicts it."""
    layers = layer_masks(trace, row, masks)
    return {token: path(layers, token - 1, token) for token in tokens}


def path(allowed: list[Tensor], query: int, key: int) -> tuple[PathStep, ...]:
    """Return a path by which `key` affects `query` after as few layers as possible: its steps, the last one first.
    allowed: as in `reach`. Raises ValueError if there is no path."""
    holders = [torch.zeros(len(allowed[0]), dtype=torch.bool)]  # after n layers: which positions depend on key
    holders[0][key] = True
    for mask in allowed:
        holders.append(holders[-1] | (mask & holders[-1]).any(-1))
    looks: list[PathStep] = []
    layers = len(allowed)
    while query != key:
        layers = next((n for n in range(1, layers + 1) if holders[n][query]), 0)
        if not layers:
            raise ValueError(f"expected a query that depends on the key, got query {query} and key {key}")  # not shown
        layers -= 1
        sources = (allowed[layers][query] & holders[layers]).nonzero().flatten()
        looks.append(PathStep(layers, query, query := int(sources[0])))
    return tuple(looks)


def layer_masks(trace: Trace, row: int, masks: MaskSpec) -> list[Tensor]:
    """Return each layer's mask, bool [Q,K], True = at least one head may attend: one is enough to pass information."""
    heads = range(trace.num_heads)
    kinds = {head in masks.heads: head for head in heads} if masks.heads else {True: 0}  # one head of each kind
    return [
        torch.stack([trace.allowed(layer, row, masks, head=head) for head in kinds.values()]).any(0)
        for layer in range(trace.num_layers)
    ]
