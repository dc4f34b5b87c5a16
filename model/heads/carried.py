"""What a head moves: a weight says how much of a value is taken, the value's size how much that is.

Kobayashi et al. 2020, "Attention is Not Only a Weight": a token may get most of the weight and add next to nothing.
Sizes: K keys, D head width, W width, V vocabulary.
"""

import torch
from torch import Tensor

from model.base import Model
from model.decoder import DecoderModel
from model.heads.parts import Carried, DirectEffect
from model.heads.stream import blocks_of, heads_through, network_of, stream, through_frozen
from model.masks import MaskSpec
from model.trace import Trace

TOP = 8  # tokens that are pushed up, and down


@torch.inference_mode()
def carried(model: Model, trace: Trace, row: int, masks: MaskSpec, layer: int, head: int, query: int) -> Carried:
    """One query's keys, under the run's masks or others in this layer."""
    weights, values = _row(trace, row, masks, layer, head, query)
    added = output = None
    if isinstance(model, DecoderModel):
        each = additions(model, trace, row, masks, layer, head, query)
        added, output = each.norm(dim=-1).float().numpy(), float(each.sum(0).norm())
    norms = values.norm(dim=-1)
    return Carried(weights.float().numpy(), norms.float().numpy(), (weights * norms).float().numpy(), added, output)


@torch.inference_mode()
def additions(model: Model, trace: Trace, row: int, masks: MaskSpec, layer: int, head: int, query: int) -> Tensor:
    """What each key adds to the query's residual stream through a head: float64 [K,W].

    Over all heads, with the output projection's bias, it is the attention layer's output. Raises NotSupported for a
    model that is no decoder of ours.
    """
    attention = blocks_of(network_of(model))[layer].attention
    weights, values = _row(trace, row, masks, layer, head, query)
    alone = torch.zeros(attention.heads, *values.shape, dtype=torch.double)
    alone[head] = weights[:, None] * values
    return heads_through(attention, alone)[head]


@torch.inference_mode()
def effect_on_logits(
    model: Model, trace: Trace, row: int, masks: MaskSpec, layer: int, head: int, query: int
) -> Tensor:
    """What a head adds to each token's logit after the query: float64 [V]. With what all else adds, and the final
    norm's bias, it makes the logits. Raises NotSupported for a model that is no decoder of ours."""
    network = network_of(model)
    total = stream(model, trace, row, [query], len(network.blocks)).total
    part = additions(model, trace, row, masks, layer, head, query).sum(0)[None]
    through = through_frozen(network.norm, part[None], total)[0, 0]
    return network.logits(through.float()).double()  # in the network's own precision: the vocabulary is large


def direct_effect(
    model: Model, trace: Trace, row: int, masks: MaskSpec, layer: int, head: int, query: int
) -> DirectEffect:
    """The tokens that a head pushes most. Raises NotSupported for a model that is no decoder of ours."""
    effect = effect_on_logits(model, trace, row, masks, layer, head, query)
    mean = float(effect.mean())

    def most(largest: bool) -> tuple[tuple[str, float], ...]:
        found = effect.topk(min(TOP, len(effect)), largest=largest)
        pairs = zip(found.indices.tolist(), found.values.tolist(), strict=True)
        return tuple((model.label(token), value - mean) for token, value in pairs)

    return DirectEffect(most(True), most(False), mean)


def _row(trace: Trace, row: int, masks: MaskSpec, layer: int, head: int, query: int) -> tuple[Tensor, Tensor]:
    """One query's weights float64 [K], and its head's values float64 [K,D]."""
    record = trace.layers[layer]
    stages = record.stages(masks, row, slice(head, head + 1), slice(query, query + 1))
    shared = head * record.v.shape[1] // record.q.shape[1]  # the key-value head that it reads
    return stages.weights[0, 0].double().cpu(), record.v[row, shared].double().cpu()
