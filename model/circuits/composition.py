"""How strongly each head reads what an earlier head wrote: Q-, K- and V-composition (Elhage et al. 2021, section
"Composition of heads"), ‖A·B‖ over ‖A‖·‖B‖ in Frobenius norms, where B is the earlier head's OV matrix and A the later
one's QK matrix, from the key's side or (transposed) the query's, or its OV matrix. From weights alone.
Sizes: H heads, D head width, W width, L layers.
"""

import numpy as np
import torch
from torch import Tensor

from model.base import Model
from model.circuits.weights import LayerWeights, weights_of
from model.errors import index

KINDS = ("q", "k", "v")


@torch.inference_mode()
def composition_of_layer(model: Model, layer: int) -> np.ndarray:
    """Of each head of a layer with each of every earlier layer: float32 [3,H,L,H], for q, k and v, NaN where the other
    is not earlier; less what matrices in random directions would give, 1/√W, which is the root mean square.

    With rotary positions q and k are those at distance 0. Raises NotSupported as weights_of.
    """
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
            both = _products(_root(first), second, earlier, values)
            found[kind, :, number] = (both / (whole[kind][:, None] * size) - later.q.shape[-1] ** -0.5).numpy()
    return found


def composition(model: Model) -> np.ndarray:
    """Of all heads: float32 [3,L,H,L,H], the later head first."""
    layers = model.num_layers
    return np.stack([composition_of_layer(model, layer) for layer in range(layers)], 1)


def strongest_reads(model: Model) -> np.ndarray:
    """Each head's strongest K-composition with an earlier head: float32 [L,H], NaN in the first layer."""
    found = composition(model)[KINDS.index("k")]
    strongest = np.full(found.shape[:2], np.nan, np.float32)
    strongest[1:] = np.nanmax(found[1:], (2, 3))
    return strongest


def _root(some: Tensor) -> Tensor:
    """[H,D,W] -> R [H,D,D] with RᵀR the Gram matrix of the rows: ‖R·M‖ = ‖someᵀ·M‖."""
    values, vectors = torch.linalg.eigh((some @ some.transpose(1, 2)).double())
    root: Tensor = values.clamp(min=0).sqrt()[..., None] * vectors.transpose(1, 2)
    return root


def _size(root: Tensor, read: Tensor) -> Tensor:
    """‖someᵀ·read‖ of each head, from some's root [H,D,D] and read [H,D,W]: [H]."""
    found: Tensor = torch.linalg.vector_norm(root @ read.double(), dim=(1, 2))
    return found


def _products(root: Tensor, read: Tensor, earlier: LayerWeights, values: Tensor) -> Tensor:
    """‖someᵀ·read·o·values‖ of each later head with each earlier one: [H,H]."""
    between = torch.einsum("idw,jwe->ijde", read, earlier.o).double()
    found: Tensor = torch.linalg.vector_norm(root[:, None] @ between @ _root(values).transpose(1, 2), dim=(2, 3))
    return found
