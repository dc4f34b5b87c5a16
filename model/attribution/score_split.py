"""The split of a head's score q·k, by dimension, and by what wrote the query and the key. With frozen norms q and k are
linear in the residual stream, and the score is a sum over pairs of sources. What an architecture adds to the scores
(ALiBi's slopes, Doge's mask) is kept apart; a soft-cap is applied to their sum.

Sizes: D head width, S sources.
"""

import torch
from torch import Tensor

from i18n import N_, msg
from model.attribution.linearized_run import LinearizedRun
from model.attribution.parts import DirectEffect, ScoreSplit, ValueWeightedAttention
from model.base import Model
from model.errors import NotSupported
from model.hardware import precision_name
from model.masks import MaskSpec
from model.text import TokenBatch
from model.trace import Trace

TOP = 8  # tokens with the largest positive, and negative, effects
TOLERANCE = 1e-5  # relative to the sum of the terms' sizes, which counts as at least 1


@torch.inference_mode()
def carried(
    model: Model, trace: Trace, row: int, masks: MaskSpec, layer: int, head: int, query: int
) -> ValueWeightedAttention:
    """Return the value-weighted attention of one query, under the run's masks or others in this layer."""
    weights, values = _row(trace, row, masks, layer, head, query)
    norms = values.norm(dim=-1)
    plain = (weights.float().numpy(), norms.float().numpy(), (weights * norms).float().numpy())
    try:
        each = additions(model.frozen(trace, row), trace, row, masks, layer, head, query)
    except NotSupported:
        return ValueWeightedAttention(*plain, None, None)
    return ValueWeightedAttention(*plain, each.norm(dim=-1).float().numpy(), float(each.sum(0).norm()))


@torch.inference_mode()
def additions(run: LinearizedRun, trace: Trace, row: int, masks: MaskSpec, layer: int, head: int, query: int) -> Tensor:
    """Return what each key adds to the query's residual stream through a head: float64 [K,W]. Over all heads, with the
    output projection's bias, it sums to the attention layer's output. Raises NotSupported as run."""
    weights, values = _row(trace, row, masks, layer, head, query)
    outputs = torch.zeros(len(values), trace.layers[layer].q.shape[1], values.shape[-1], dtype=torch.double)
    outputs[:, head] = weights[:, None] * values
    return run.write(layer, query, outputs)


@torch.inference_mode()
def effect_on_logits(
    run: LinearizedRun, trace: Trace, row: int, masks: MaskSpec, layer: int, head: int, query: int
) -> Tensor:
    """Return what a head adds to each logit after the query: float64 [V]. With everything else that adds to them, and
    the final norm's bias, it sums to the logits. Raises NotSupported as run."""
    part = additions(run, trace, row, masks, layer, head, query).sum(0, keepdim=True)
    return run.logits(query, part)[0]


def direct_effect(
    model: Model, trace: Trace, row: int, masks: MaskSpec, layer: int, head: int, query: int
) -> DirectEffect:
    """Return the tokens whose logits a head changes most. Raises NotSupported if what it adds is not available."""
    run = model.frozen(trace, row)
    effect = effect_on_logits(run, trace, row, masks, layer, head, query)
    mean = float(effect.mean())
    up, down = model.extremes(effect - mean, TOP)
    return DirectEffect(up, down, mean, run.caps_logits)


def _row(trace: Trace, row: int, masks: MaskSpec, layer: int, head: int, query: int) -> tuple[Tensor, Tensor]:
    """Return one query's weights, float64 [K], and its head's values, float64 [K,D]."""
    record = trace.layers[layer]
    stages = record.stages(masks, row, slice(head, head + 1), slice(query, query + 1))
    return stages.weights[0, 0].double().cpu(), record.v[row, record.key_value_head(head)].double().cpu()


@torch.inference_mode()
def score_split(model: Model, trace: Trace, row: int, layer: int, head: int, query: int, key: int) -> ScoreSplit:
    """Split the score of one cell of a run by dimension and by source."""
    record = trace.layers[layer]
    shared = record.key_value_head(head)
    q, k = record.q[row, head, query].double().cpu(), record.k[row, shared, key].double().cpu()
    scale, bias = record.factor, record.terms_in(row, slice(head, head + 1), slice(query, query + 1)).bias
    each = q * k * scale
    score, added = float(each.sum()), 0.0 if bias is None else float(bias[0, 0, key])
    plain = (q.numpy(), k.numpy(), scale, each.numpy(), score, added, record.terms.softcap)
    try:
        run = model.frozen(trace, row)
        wrote = run.stream([query, key], layer)
        by_query, by_key = (run.q_and_k(layer, position, wrote.parts[:, i]) for i, position in enumerate((query, key)))
    except NotSupported as error:
        return ScoreSplit(*plain, why_not=str(error))
    of_query, of_key = by_query.q[:, head], by_key.k[:, shared]  # [S,D]
    of_query[-1] += by_query.q_bias[head]  # the last source is the biases
    of_key[-1] += by_key.k_bias[shared]
    terms = of_query @ of_key.T * scale
    found, size = float(terms.sum()), max(float(terms.abs().sum()), 1.0)
    if not abs(found - score) <= TOLERANCE * size:
        template = N_(
            "With its norms frozen the terms sum to {found:.4f} and not to the score: q and k are not linear in their "
            "sources"
        )
        if not model.takes_positions or type(trace.batch) is not TokenBatch:  # RoFormer, and batches with an image
            template = N_("The model counts positions itself, so its layers cannot be called on one position alone")
        if trace.states.dtype != torch.float32:
            template = N_("The split of a score by source is lost in the rounding of {dtype}: choose float32")
        return ScoreSplit(*plain, why_not=msg(template, found=found, dtype=precision_name(trace.states.dtype)))
    return ScoreSplit(*plain, sources=wrote.names, terms=terms.numpy())
