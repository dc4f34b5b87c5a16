"""Why a head's score is what it is: q·k split exactly, by dimension, and by what wrote the query and the key.

Before attention a norm divides the residual stream by its deviation. With that held at its value, q and k are linear in
the stream, and the score is a sum over pairs: a source of the query times a source of the key (Elhage et al. 2021, "A
Mathematical Framework for Transformer Circuits").
Sizes: D head width, S sources.
"""

import torch
from torch import Tensor, nn

from model.base import Model
from model.errors import NotSupported
from model.heads.parts import ScoreSplit
from model.heads.stream import blocks_of, linear, network_of, stream, through_frozen
from model.trace import Trace

TOLERANCE = 1e-5  # of the sum of the terms' sizes, and at least of 1


@torch.inference_mode()
def score_split(model: Model, trace: Trace, row: int, layer: int, head: int, query: int, key: int) -> ScoreSplit:
    """The score of one cell of a run."""
    record = trace.layers[layer]
    shared = head * record.k.shape[1] // record.q.shape[1]  # the key-value head that it reads
    q, k = record.q[row, head, query].double().cpu(), record.k[row, shared, key].double().cpu()
    scale = q.shape[-1] ** -0.5 if record.scale is None else record.scale
    each = q * k * scale
    plain = (q.numpy(), k.numpy(), scale, each.numpy(), float(each.sum()))
    try:
        names, terms = by_source(model, trace, row, layer, head, query, key)
    except NotSupported as error:
        return ScoreSplit(*plain, why_not=str(error))
    size = max(float(terms.abs().sum()), 1.0)
    if abs(float(terms.sum()) - plain[-1]) > TOLERANCE * size:
        return ScoreSplit(*plain, why_not="The terms do not sum to the score as they should")
    return ScoreSplit(*plain, sources=names, terms=terms.numpy())


def by_source(
    model: Model, trace: Trace, row: int, layer: int, head: int, query: int, key: int
) -> tuple[tuple[str, ...], Tensor]:
    """Names S, and terms float64 [S,S]. Raises NotSupported for a model that is no decoder of ours."""
    block = blocks_of(network_of(model))[layer]
    wrote = stream(model, trace, row, [query, key], layer)
    parts = through_frozen(block.attention_norm, wrote.parts, wrote.total)  # [S,2,W]
    q = _through(block.attention.query, block.attention_norm, parts[:, 0], head, block.attention.heads)
    k = _through(block.attention.key, block.attention_norm, parts[:, 1], head, block.attention.heads)
    return wrote.names, q @ k.T * q.shape[-1] ** -0.5


def _through(projection: nn.Linear, norm: nn.LayerNorm, parts: Tensor, head: int, heads: int) -> Tensor:
    """Each source's part of a head's query or key: [S,W] -> [S,D]; the norm's bias and its own go to the last one."""
    rows = slice(head * projection.out_features // heads, (head + 1) * projection.out_features // heads)
    found = parts @ projection.weight.double()[rows].T
    found[-1] += linear(projection, norm.bias.double())[rows]
    return found
