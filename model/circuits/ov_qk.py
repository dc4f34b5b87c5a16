"""What a head does on any token, from its weights alone (Elhage et al. 2021): its OV circuit, from a token that is
attended to, to the logits of each next token; its QK circuit, from a query token to the score of each key token. Both
are V × V, and kept as two factors V × D. Of a token they know what weights.py says; what heads move is left out.

And how strongly it reads what an earlier head wrote: Q-, K- and V-composition (section "Composition of heads"), ‖A·B‖
over ‖A‖·‖B‖ in Frobenius norms, where B is the earlier head's OV matrix and A the later one's QK matrix, from the key's
side or (transposed) the query's, or its OV matrix.
Sizes: N tokens, V vocabulary, D head width, W width, P distances, H heads, L layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from i18n import msg
from model.base import Model
from model.circuits.weights import CircuitWeights, LayerWeights, Moments, weights_of
from model.errors import index

SHOWN, LISTED_PER_TOKEN = 8, 6  # tokens, and how many are named for each
LONGEST = 64  # distances of a profile
NEGLIGIBLE = 1e-5  # of what a head could change the logits by
KINDS = ("q", "k", "v")


@dataclass(frozen=True, eq=False)
class TokenEffects:
    """One token of a circuit: the standard deviation of its row, and the tokens with the largest values above 0 in it
    and the smallest below, as labels with those values."""

    token: str
    spread: float
    largest: tuple[tuple[str, float], ...]
    smallest: tuple[tuple[str, float], ...]


@dataclass(frozen=True, eq=False)
class OVCircuit:
    """tokens: those asked for, else those that the head changes the logits most for. effects: float32 [N,V], what
    attending to each adds to every token's logit, less the mean, before the last norm divides it. copying: of the
    circuit's eigenvalues, the sum of their real parts over the sum of their sizes, -1 to 1; NaN where all are 0.
    silent: whether it changes no logit by more than rounding."""

    tokens: tuple[TokenEffects, ...]
    effects: np.ndarray
    copying: float
    silent: bool


@dataclass(frozen=True, eq=False)
class QKCircuit:
    """tokens: the queries asked for, else those with the strongest preferences. effects: float32 [N,V], each key
    token's score, less the mean over keys; with rotary positions, at the distance asked for. profile: float32 [P], the
    score of a key 0, 1, 2 … tokens back from positions alone, less the mean of those that a query sees: of learned
    positions the mean over the first 2·P queries, of rotary ones that of the mean token."""

    tokens: tuple[TokenEffects, ...]
    effects: np.ndarray
    profile: np.ndarray


@torch.inference_mode()
def ov(model: Model, layer: int, head: int, tokens: Sequence[int] = ()) -> OVCircuit:
    """The OV circuit of a head, for these ids or for those it acts on most. Raises NotSupported as weights_of, and
    ValueError for a head or id that is not there."""
    weights, own, head = _head(model, layer, head)
    v, o, moments = own.v[own.shared(head)], own.o[head], weights.moments(layer)
    values = weights.read_by(v, layer)  # [V,D]
    sizes = o.T @ moments.logits @ o
    ids = _ids(values, sizes, tokens)
    effects = weights.to_logits(o @ values[ids].T).T
    copying, rounding = _copying(moments, len(values), v, o), _rounding(moments, v, o)
    silent = bool(copying.isnan() & rounding.isfinite())  # an eigenvalue that is not 0 changes a logit
    if silent:
        strongest = weights.to_logits(o @ values[_ids(values, sizes, ())].T)
        silent = bool((strongest.norm(dim=0) <= rounding).all())
    return OVCircuit(_named(model, ids, effects), effects.numpy(), float(copying), silent)


@torch.inference_mode()
def qk(model: Model, layer: int, head: int, tokens: Sequence[int] = (), distance: int = 0) -> QKCircuit:
    """A head's QK circuit. distance: how many tokens before the query the keys are, for rotary positions; raises
    ValueError for any but 0 with learned positions, which add a score of their own: the profile."""
    weights, own, head = _head(model, layer, head)
    k, moments = own.k[own.shared(head)], weights.moments(layer)
    queries = (weights.read_by(own.q[head], layer) + own.q_bias[head]) * own.scale  # [V,D]
    turned = queries
    if index("distance", distance, LONGEST):
        if weights.turned is None:
            raise ValueError(msg("expected a distance of 0, because this model's positions are not rotary"))
        each = torch.eye(queries.shape[-1])
        turned = queries @ torch.stack([weights.turned(one.expand(distance + 1, -1))[-1] for one in each])  # @ [D,D]
    ids = _ids(turned, k @ moments.keys @ k.T, tokens)
    effects = weights.read_by(turned[ids] @ k, layer).T
    effects = effects - effects.mean(-1, keepdim=True)
    key = k @ moments.mean + own.k_bias[own.shared(head)]
    profile = _profile(weights, own, layer, head, queries.mean(0), key)
    return QKCircuit(_named(model, ids, effects), effects.numpy(), profile.float().numpy())


@torch.inference_mode()
def copying_scores(model: Model) -> np.ndarray:
    """Every head's OVCircuit.copying: float32 [L,H]. Raises NotSupported as weights_of."""
    weights = weights_of(model)
    found = []
    for layer in range(model.num_layers):
        own = weights.layer(layer)
        v = own.of_heads(own.v)
        found.append(_copying(weights.moments(layer), weights.count, v, own.o))
    return torch.stack(found).float().numpy()


def _copying(moments: Moments, tokens: int, v: Tensor, o: Tensor) -> Tensor:
    """The copying scores of v [..,D,W] and o [..,W,D] -> [..]; NaN where no eigenvalue is more than rounding, and where
    weights are so large that products overflow."""
    product = v @ moments.copied @ o
    finite = product.isfinite().all((-2, -1))
    eigenvalues = torch.linalg.eigvals(product.where(finite[..., None, None], 0))  # LAPACK may crash on NaN
    sizes, rounding = eigenvalues.abs().sum(-1), tokens**0.5 * _rounding(moments, v, o)
    return torch.where(finite & (sizes > rounding), eigenvalues.real.sum(-1) / sizes, torch.nan)


def _rounding(moments: Moments, v: Tensor, o: Tensor) -> Tensor:
    """[..]: of what v [..,D,W] and o [..,W,D] could change all logits by after one token, what counts as nothing."""
    nothing: Tensor = NEGLIGIBLE * moments.logits.trace().sqrt() * v.norm(dim=(-2, -1)) * o.norm(dim=(-2, -1))
    return nothing


def _head(model: Model, layer: int, head: int) -> tuple[CircuitWeights, LayerWeights, int]:
    weights = weights_of(model)
    head = index("head", head, model.num_heads)
    return weights, weights.layer(index("layer", layer, model.num_layers)), head


def _ids(left: Tensor, gram: Tensor, tokens: Sequence[int]) -> list[int]:
    """These tokens, or those with the largest rows in the circuit of left [V,D] and another factor with this Gram
    matrix [D,D], without the V × V numbers."""
    for token in tokens:
        if not 0 <= token < len(left):
            raise ValueError(msg("expected ids from 0 to {last}, got {token}", last=len(left) - 1, token=token))
    sizes = ((left @ gram) * left).sum(-1)
    return list(tokens) or sizes.topk(min(SHOWN, len(left))).indices.tolist()


def _named(model: Model, ids: Sequence[int], effects: Tensor) -> tuple[TokenEffects, ...]:
    found = []
    for token, row in zip(ids, effects, strict=True):
        largest, smallest = model.extremes(row, LISTED_PER_TOKEN)
        found.append(TokenEffects(model.label(token), float(row.std(unbiased=False)), largest, smallest))
    return tuple(found)


def _profile(weights: CircuitWeights, own: LayerWeights, layer: int, head: int, query: Tensor, key: Tensor) -> Tensor:
    """[P]; query, key [D]: of the mean token, biases included, the query scaled."""
    if weights.turned is not None:
        turned = weights.turned(query.expand(min(LONGEST, own.reach or LONGEST, weights.model.context), -1))
        scores = turned @ key
        return scores - scores.mean()
    count = min(2 * LONGEST, weights.positions.num_embeddings)
    queries = weights.at_positions(own.q[head], layer, count) * own.scale + query
    keys = weights.at_positions(own.k[own.shared(head)], layer, count) + key
    scores, seen = queries @ keys.T, torch.ones(count, count).tril()
    scores = scores - (scores * seen).sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)
    return torch.stack([scores.diagonal(-back).mean() for back in range(count // 2)])


@torch.inference_mode()
def composition_of_layer(model: Model, layer: int) -> np.ndarray:
    """A layer's heads composed with each earlier head: float32 [3,H,L,H], for q, k and v, NaN where the other is not
    earlier; less 1/√W, the root mean square for random directions. With rotary positions q and k are those at
    distance 0. Raises NotSupported as weights_of."""
    weights = weights_of(model)
    later = weights.layer(index("layer", layer, model.num_layers))
    found = np.full((len(KINDS), model.num_heads, model.num_layers, model.num_heads), np.nan, np.float32)
    k, v = later.of_heads(later.k), later.of_heads(later.v)
    sides = ((k, later.q), (later.q, k), (later.o.transpose(1, 2), v))  # what is read is the second of each two
    whole = [_size(_root(first), second) for first, second in sides]
    for number in range(layer):
        earlier = weights.layer(number)
        values = earlier.of_heads(earlier.v)
        size = _size(_root(earlier.o.transpose(1, 2)), values)
        for kind, (first, second) in enumerate(sides):
            between = torch.einsum("idw,jwe->ijde", second, earlier.o).double()
            products = _root(first)[:, None] @ between @ _root(values).transpose(1, 2)
            both = torch.linalg.vector_norm(products, dim=(2, 3))  # of each later head with each earlier one, [H,H]
            found[kind, :, number] = (both / (whole[kind][:, None] * size) - later.q.shape[-1] ** -0.5).numpy()
    return found


def composition(model: Model) -> np.ndarray:
    """How strongly each head reads what an earlier one wrote: float32 [3,L,H,L,H], the later head first."""
    layers = model.num_layers
    return np.stack([composition_of_layer(model, layer) for layer in range(layers)], 1)


def strongest_reads(model: Model) -> np.ndarray:
    """Each head's strongest K-composition with an earlier head: float32 [L,H], NaN in the first layer."""
    found = composition(model)[KINDS.index("k")]
    strongest = np.full(found.shape[:2], np.nan, np.float32)
    strongest[1:] = np.nanmax(found[1:], (2, 3))
    return strongest


def _root(some: Tensor) -> Tensor:
    """[H,D,W] -> R [H,D,D] with RᵀR the Gram matrix of the rows: ‖R·M‖ = ‖someᵀ·M‖; NaN where it overflows."""
    gram = some.double() @ some.double().transpose(1, 2)
    finite = gram.isfinite().all((-2, -1))[:, None, None]
    values, vectors = torch.linalg.eigh(gram.where(finite, 0))  # LAPACK may crash on NaN
    root: Tensor = values.clamp(min=0).sqrt()[..., None] * vectors.transpose(1, 2)
    return root.where(finite, torch.nan)


def _size(root: Tensor, read: Tensor) -> Tensor:
    """‖someᵀ·read‖ of each head, from some's root [H,D,D] and read [H,D,W]: [H]."""
    found: Tensor = torch.linalg.vector_norm(root @ read.double(), dim=(1, 2))
    return found
