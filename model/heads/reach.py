"""How far information travels through a stack of masked attentions: whom a token can have heard of after n layers.

After one layer a token knows of the tokens that it may look at. In the next it looks at tokens that have themselves
looked, so what it can know of is a product of boolean masks. A window of W positions back reaches n·(W-1)+1 positions
after n layers (Mistral 7B, arXiv:2310.06825, section 2, which rounds this to n·W).
This is what the masks let through, not what a model makes of it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.masks import MaskSpec
from model.trace import Trace


@dataclass(frozen=True)
class PathStep:
    """One look of a path: in `layer`, `query` looks at `key`, and takes over what that one knows by then."""

    layer: int
    query: int
    key: int


@dataclass(frozen=True, eq=False)
class Reach:
    """Of one row of a run with T positions.

    first: int16 [T,T], see `reach`. window: int64 [L,T], how many keys a query may look at in each layer alone.
    """

    first: Tensor
    window: Tensor

    def seen(self) -> Tensor:
        """int64 [L,T]: how many keys a query can know of after 1, 2, … L layers, itself among them."""
        return counts(self.first, len(self.window))


def reach(allowed: list[Tensor]) -> Tensor:
    """allowed: a bool [T,T] for each layer, the first one first -> int16 [T,T].

    The number of layers, 1 to L, after which query q can know of key k; 0 where it never can. The residual stream
    carries a token's own state from layer to layer, so each layer is its mask OR the identity: a query has its own
    token, and all that it knew before, after every layer, even where its mask blocks them.
    Raises ValueError for anything but boolean squares of one size.
    """
    _check(allowed)
    known = torch.eye(len(allowed[0]), dtype=torch.bool)
    first = known.to(torch.int16)
    settled = None  # a mask that adds nothing to what is known
    for layers, mask in enumerate(allowed, 1):
        if known.all() or (settled is not None and torch.equal(mask, settled)):
            continue
        before, known = known, known | (mask if layers == 1 else _through(mask, known))
        new = known & ~before
        first[new] = layers
        settled = None if new.any() else mask
    return first


def counts(first: Tensor, layers: int) -> Tensor:
    """first [T,T] as `reach` gives it -> int64 [layers,T]: how many keys each query knows of after n layers."""
    return torch.stack([((first > 0) & (first <= n)).sum(-1) for n in range(1, layers + 1)])


def reach_of(trace: Trace, row: int, masks: MaskSpec) -> Reach:
    """Reach in one row of a run, were every layer of it under `masks`, each where they hold.

    Raises ValueError for a target that looks at its source: a product needs queries and keys to be the same tokens.
    """
    layers = layer_masks(trace, row, masks)
    return Reach(reach(layers), torch.stack([mask.sum(-1) for mask in layers]))


def looks_ahead(trace: Trace, row: int, masks: MaskSpec) -> bool:
    """Whether some token may look at a later one in some layer: without that none can know its own answer."""
    return any(bool(layer_mask(trace, layer, row, masks).triu(1).any()) for layer in range(trace.num_layers))


def known_answers(first: Tensor, real: slice) -> list[int]:
    """Among the real tokens, those that the position which predicts them, the one before, can know of after all layers;
    none under a causal mask. first: as `reach` gives it."""
    return [token for token in range(real.start + 1, real.stop) if first[token - 1, token] > 0]


def answers_known(trace: Trace, row: int, masks: MaskSpec) -> tuple[int, ...]:
    """`known_answers` of the tokens that look in one row of a run, were every layer of it under `masks`."""
    if not looks_ahead(trace, row, masks):
        return ()
    return tuple(known_answers(reach_of(trace, row, masks).first, trace.queries.real(row)))


def ways_to(trace: Trace, row: int, masks: MaskSpec, tokens: tuple[int, ...]) -> dict[int, tuple[PathStep, ...]]:
    """For each of these tokens `path` to it from the position that predicts it."""
    layers = layer_masks(trace, row, masks)
    return {token: path(layers, token - 1, token) for token in tokens}


def path(allowed: list[Tensor], query: int, key: int) -> tuple[PathStep, ...]:
    """A path that brings `query` to know of `key` after as few layers as can be: its looks, the last one first.

    allowed: as `reach` takes it. Raises ValueError where there is no path.
    """
    holders = [torch.zeros(len(allowed[0]), dtype=torch.bool)]  # after n layers: who knows of key
    holders[0][key] = True
    for mask in allowed:
        holders.append(holders[-1] | (mask & holders[-1]).any(-1))
    looks: list[PathStep] = []
    layers = len(allowed)
    while query != key:
        layers = next((n for n in range(1, layers + 1) if holders[n][query]), 0)
        if not layers:
            raise ValueError(f"expected a query that can know of the key, got query {query} and key {key}")  # not shown
        layers -= 1
        told = (allowed[layers][query] & holders[layers]).nonzero().flatten()
        looks.append(PathStep(layers, query, query := int(told[0])))
    return tuple(looks)


def layer_masks(trace: Trace, row: int, masks: MaskSpec) -> list[Tensor]:
    """`layer_mask` of every layer."""
    return [layer_mask(trace, layer, row, masks) for layer in range(trace.num_layers)]


@dataclass(frozen=True, eq=False)
class ShownReach:
    """As Reach, as plain arrays; and of one layer, for each mask that is on in it, bool [T,T], True = no head may look,
    for this mask. seen: int64 [L,T], see Reach.seen.
    """

    first: np.ndarray
    window: np.ndarray
    seen: np.ndarray
    blocked: dict[str, np.ndarray]


def shown_reach(trace: Trace, row: int, masks: MaskSpec, layer: int, head: int) -> ShownReach:
    """Reach in one row of a run, and what shuts one of its layers. Raises as reach_of."""
    found = reach_of(trace, row, masks)
    shut = ~layer_mask(trace, layer, row, masks)
    blocked = trace.blocked_by(layer, row, masks, head=head)
    return ShownReach(
        found.first.numpy(),
        found.window.numpy(),
        found.seen().numpy(),
        {name: (mask & shut).numpy() for name, mask in blocked.items()},
    )


def layer_mask(trace: Trace, layer: int, row: int, masks: MaskSpec) -> Tensor:
    """bool [Q,K], True = at least one head of the layer may look: one head is enough to bring the news."""
    heads = range(trace.num_heads)
    kinds = {head in masks.heads: head for head in heads} if masks.heads else {True: 0}  # heads of a kind are alike
    return torch.stack([trace.allowed(layer, row, masks, head=head) for head in kinds.values()]).any(0)


def _through(mask: Tensor, known: Tensor) -> Tensor:
    """bool [Q,T] by bool [T,K]: whether any token that q looks at knows of k. As numbers: sums of at most T ones."""
    return (mask.float() @ known.float()) > 0


def _check(allowed: list[Tensor]) -> None:
    shapes = [(str(mask.dtype), list(mask.shape)) for mask in allowed]
    size = len(allowed[0]) if allowed and allowed[0].ndim else 0
    if not allowed or any(shape != ("torch.bool", [size, size]) for shape in shapes):
        why = f"expected a boolean square of one size for each of at least one layer, got {shapes}"  # not shown
        raise ValueError(why)
