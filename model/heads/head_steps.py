"""One head of a run step by step, and one query's row of it, as plain arrays."""

from dataclasses import dataclass

import numpy as np

from model.heads.row_steps import Arithmetic, RowSteps
from model.heads.view import HeadView, view_of
from model.masks import MaskSpec
from model.trace import Trace


@dataclass(frozen=True, eq=False)
class HeadSteps:
    """raw: float32 [Q,K], q·k. values: [K,D], those of its key-value head. output: [Q,D]. row: the chosen query's."""

    head: HeadView
    raw: np.ndarray
    values: np.ndarray
    output: np.ndarray
    row: RowSteps


def head_steps(trace: Trace, row: int, masks: MaskSpec, layer: int, head: int, query: int) -> HeadSteps:
    """A head under the run's masks or others, and all numbers of its row `query`."""
    record, (stages, blocked) = trace.layers[layer], trace.stages_and_masks(layer, head, row, masks)
    terms = record.terms_in(row, slice(head, head + 1), slice(query, query + 1))
    values = record.v[row, record.key_value_head(head)].float().cpu().numpy()
    shown = view_of(trace, row, layer, stages, blocked)
    has_bias, has_sink = terms.bias is not None, terms.sinks is not None
    steps = RowSteps(
        raw=stages.raw[query].double().numpy(),
        arithmetic=Arithmetic(record.factor, record.q.shape[-1], terms.softcap, has_bias, has_sink),
        blocked={name: mask[query] for name, mask in shown.blocked.items()},
        values=values,
        query=trace.queries.pieces[row][query],
        keys=list(trace.keys.pieces[row]),
        position=query,
        bias=None if terms.bias is None else terms.bias[0, 0].double().cpu().numpy(),
        sink=None if terms.sinks is None else terms.sinks.item(),
    )
    return HeadSteps(shown, stages.raw.numpy(), values, stages.output.numpy(), steps)
