"""One head of a run step by step, and one query's row of it, as plain arrays."""

from dataclasses import dataclass

import numpy as np

from model.heads.row_steps import Arithmetic, RowSteps
from model.heads.view import HeadView, head_view
from model.masks import MaskSpec
from model.trace import LayerRecord, Trace


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
    record, stages = trace.layers[layer], trace.stages(layer, head, row, masks)
    shown = head_view(trace, row, masks, layer, head)
    values = record.v[row, head * record.v.shape[1] // record.q.shape[1]].float().cpu().numpy()  # of its group
    sinks = record.terms.sinks
    steps = RowSteps(
        raw=stages.raw[query].double().numpy(),
        arithmetic=_arithmetic(record),
        blocked={name: mask[query] for name, mask in shown.blocked.items()},
        values=values,
        query=trace.queries.pieces[row][query],
        keys=list(trace.keys.pieces[row]),
        position=query,
        bias=_bias(record, row, head, query),
        sink=None if sinks is None else float(sinks[head]),
    )
    return HeadSteps(shown, stages.raw.numpy(), values, stages.output.numpy(), steps)


def _arithmetic(record: LayerRecord) -> Arithmetic:
    scale = record.q.shape[-1] ** -0.5 if record.scale is None else record.scale
    terms = record.terms
    return Arithmetic(scale, record.q.shape[-1], terms.softcap, terms.bias is not None, terms.sinks is not None)


def _bias(record: LayerRecord, row: int, head: int, query: int) -> np.ndarray | None:
    """What the architecture adds to the scores of one row, [K], or None."""
    if record.terms.bias is None:
        return None
    whole = (record.q.shape[0], record.q.shape[1], record.q.shape[2], record.k.shape[2])
    return record.terms.bias.expand(whole)[row, head, query].double().cpu().numpy()
