"""What a head moves: a weight says how much of a value is taken, the value's size how much that is.

Kobayashi et al. 2020, "Attention is Not Only a Weight": a token may get most of the weight and add next to nothing.
Sizes: K keys, D head width, W width, V vocabulary.
"""

import torch
from torch import Tensor

from model.attribution.linearized_run import LinearizedRun
from model.attribution.parts import Carried, DirectEffect
from model.base import Model
from model.errors import NotSupported
from model.masks import MaskSpec
from model.trace import Trace

TOP = 8  # tokens that are pushed up, and down


@torch.inference_mode()
def carried(model: Model, trace: Trace, row: int, masks: MaskSpec, layer: int, head: int, query: int) -> Carried:
    """One query's keys, under the run's masks or others in this layer."""
    weights, values = _row(trace, row, masks, layer, head, query)
    norms = values.norm(dim=-1)
    plain = (weights.float().numpy(), norms.float().numpy(), (weights * norms).float().numpy())
    try:
        each = additions(model.frozen(trace, row), trace, row, masks, layer, head, query)
    except NotSupported:
        return Carried(*plain, None, None)
    return Carried(*plain, each.norm(dim=-1).float().numpy(), float(each.sum(0).norm()))


@torch.inference_mode()
def additions(run: LinearizedRun, trace: Trace, row: int, masks: MaskSpec, layer: int, head: int, query: int) -> Tensor:
    """What each key adds to the query's residual stream through a head: float64 [K,W].

    Over all heads, with the output projection's bias, it is the attention layer's output. Raises NotSupported as run.
    """
    weights, values = _row(trace, row, masks, layer, head, query)
    outputs = torch.zeros(len(values), trace.layers[layer].q.shape[1], values.shape[-1], dtype=torch.double)
    outputs[:, head] = weights[:, None] * values
    return run.write(layer, query, outputs)


@torch.inference_mode()
def effect_on_logits(
    run: LinearizedRun, trace: Trace, row: int, masks: MaskSpec, layer: int, head: int, query: int
) -> Tensor:
    """What a head adds to each token's logit after the query: float64 [V]. With what all else adds, and the final
    norm's bias, it makes the logits. Raises NotSupported as run."""
    part = additions(run, trace, row, masks, layer, head, query).sum(0, keepdim=True)
    return run.logits(query, part)[0]


def direct_effect(
    model: Model, trace: Trace, row: int, masks: MaskSpec, layer: int, head: int, query: int
) -> DirectEffect:
    """The tokens that a head pushes most. Raises NotSupported where what it adds is not known."""
    run = model.frozen(trace, row)
    effect = effect_on_logits(run, trace, row, masks, layer, head, query)
    mean = float(effect.mean())

    def most(largest: bool) -> tuple[tuple[str, float], ...]:
        found = effect.topk(min(TOP, len(effect)), largest=largest)
        pairs = zip(found.indices.tolist(), found.values.tolist(), strict=True)
        return tuple((model.label(token), value - mean) for token, value in pairs)

    return DirectEffect(most(True), most(False), mean, run.caps_logits)


def _row(trace: Trace, row: int, masks: MaskSpec, layer: int, head: int, query: int) -> tuple[Tensor, Tensor]:
    """One query's weights float64 [K], and its head's values float64 [K,D]."""
    record = trace.layers[layer]
    stages = record.stages(masks, row, slice(head, head + 1), slice(query, query + 1))
    shared = head * record.v.shape[1] // record.q.shape[1]  # the key-value head that it reads
    return stages.weights[0, 0].double().cpu(), record.v[row, shared].double().cpu()
