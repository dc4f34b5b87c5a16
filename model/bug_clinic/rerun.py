"""One row of a run as cases for the laws, and the run of our own Transformer once more with another attention.

Sizes: B rows, H heads, T positions, D head width, W model width.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import cast

import torch
from torch import Tensor

from model.base import Model
from model.bug_clinic.case import Attention, AttentionCase, bias_of
from model.bug_clinic.masks import repeated
from model.kv_cache import network_of
from model.trace import LayerRecord, Trace
from model.transformer import Block, Transformer, positions_of


@torch.inference_mode()
def case_of(model: Model, trace: Trace, layer: int, row: int) -> AttentionCase:
    """One row of one layer of a run as a case for the laws, float32. Our own Transformer runs again up to the layer."""
    record, one = trace.layers[layer], slice(row, row + 1)
    terms = (bias_of(record.terms, one), record.terms.sinks)
    bias, sinks = (None if term is None else term.float().cpu() for term in terms)
    case = AttentionCase(
        *_projected(record, one),
        trace.allowed(layer, row)[None, None],
        trace.keys.keep[one].cpu(),
        record.scale,
        replace(record.terms, bias=bias, sinks=sinks),
        masks=_repeated(trace, layer, row),
    )
    network, other = network_of(model), other_layer(layer, trace.num_layers)
    if network is not None:
        before = next(islice(streams(network, trace, row, lambda _: AttentionCase.stages), layer, None))
        read = _blocks(network)[layer].attention_norm(before)
        return replace(case, inputs=_cut(read, network.config.heads), others=_by_another(network, other, read))
    return case if other is None else replace(case, others=_projected(trace.layers[other], one))


def _projected(record: LayerRecord, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v of some rows, float32."""
    return record.q[rows].float().cpu(), record.k[rows].float().cpu(), record.v[rows].float().cpu()


def other_layer(layer: int, layers: int) -> int | None:
    """The layer whose module stands in for one that two attentions share: the next, of the last the one before."""
    if layers == 1:
        return None
    return layer + 1 if layer + 1 < layers else layer - 1


@torch.inference_mode()
def rerun(network: Transformer, trace: Trace, row: int, attention_of: Callable[[int], Attention]) -> Tensor:
    """The traced run of one row once more, each layer with the attention that attention_of(layer) gives.

    [1,T,W], the states before the logits.
    """
    *_, last = streams(network, trace, row, attention_of)
    states: Tensor = network.norm(last)
    return states


def streams(network: Transformer, trace: Trace, row: int, attention_of: Callable[[int], Attention]) -> Iterator[Tensor]:
    """[1,T,W]: what that run adds to, before each layer and after the last. Call in inference mode."""
    ids, keep = trace.batch.ids[row : row + 1], trace.batch.keep[row : row + 1]
    x = network.token_embedding(ids) + network.position_embedding(positions_of(keep))
    yield x
    for layer, block in enumerate(_blocks(network)):
        read = block.attention_norm(x)
        others = _by_another(network, other_layer(layer, trace.num_layers), read)
        case = AttentionCase(
            *block.attention.project(read, read, read),
            trace.allowed(layer, row)[None, None],
            keep,
            inputs=_cut(read, network.config.heads),
            others=others,
            masks=_repeated(trace, layer, row),
        )
        x = block.feed_forward(x + block.attention.merge(case.run(attention_of(layer)).output))
        yield x


def _by_another(network: Transformer, layer: int | None, read: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """q, k and v that another layer's module makes of what is read."""
    return None if layer is None else _blocks(network)[layer].attention.project(read, read, read)


def _repeated(trace: Trace, layer: int, row: int) -> Tensor:
    """The masks of the row's heads, bool [1,H,T,T], where the batch's are repeated in the wrong order."""
    masks = torch.stack([trace.allowed(layer, other) for other in range(len(trace.keys.keep))])[:, None]
    return repeated(masks, trace.num_heads)[row : row + 1]


def _blocks(network: Transformer) -> list[Block]:
    return cast(list[Block], network.blocks)


def _cut(x: Tensor, heads: int) -> Tensor:
    """[B,T,W] -> [B,H,T,D], the way the projections' outputs are cut."""
    by_head: Tensor = x.unflatten(-1, (heads, -1)).transpose(1, 2)
    return by_head
