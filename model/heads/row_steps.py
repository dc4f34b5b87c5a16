"""One head of a run step by step, and one query's row of it, from q·k to its weights and its output, in double
precision: attention.py's steps in numpy, which a person can check; a test holds the two equal."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from model.heads.view import HeadView, view_of

if TYPE_CHECKING:
    from model.spec import MaskSpec
    from model.trace import Trace


@dataclass(frozen=True, eq=False)
class Arithmetic:
    """What one head of width d does to q·k. softcap None, bias and sink False where the architecture has none."""

    scale: float
    width: int
    softcap: float | None = None
    bias: bool = False
    sink: bool = False

    def formula(self) -> str:
        """ "q·k / √64" or "q·k × 0.5", with the cap and the bias of those that have them."""
        usual = np.isclose(self.scale, self.width**-0.5)
        scaled = f"q·k / √{self.width}" if usual else f"q·k × {self.scale:.6g}"
        if self.softcap is not None:
            scaled = f"{self.softcap:g}·tanh({scaled} / {self.softcap:g})"
        return scaled + (" + bias" if self.bias else "")

    def softmax(self) -> str:
        """What makes weights of the scores."""
        power = "e<sup>score</sup>"
        return f"{power} / (Σ {power} + e<sup>sink</sup>)" if self.sink else f"{power} / Σ {power}"


@dataclass(eq=False)
class RowSteps:
    """One query's row over K keys, from q·k on computed anew in double precision.

    raw [K]: q·k. bias [K], or None. sink: a score that only the denominator has, or None. blocked: for each mask, bool
    [K]. values [K,D]. query, keys: labels; position: the query's.

    Computed from them, [K] each: scaled, raw times the scale; capped, within the soft-cap; score, what the mask meets;
    free, where no mask blocks; exp, e^(score - top), 0 where blocked; weights, which sum to 1, to less with a sink.
    top: the largest score that is left, -inf where none is; total: the denominator, sink_exp the sink's part of it.
    output [D]: the weighted sum of the values.
    """

    raw: np.ndarray
    arithmetic: Arithmetic
    blocked: dict[str, np.ndarray]
    values: np.ndarray
    query: str
    keys: list[str]
    position: int
    bias: np.ndarray | None = None
    sink: float | None = None

    def __post_init__(self) -> None:
        cap, sink = self.arithmetic.softcap, -np.inf if self.sink is None else self.sink
        self.scaled = self.raw.astype(np.float64) * self.arithmetic.scale
        self.capped = self.scaled if cap is None else cap * np.tanh(self.scaled / cap)
        self.score = self.capped if self.bias is None else self.capped + self.bias
        self.free = ~np.any([np.zeros(self.raw.shape, bool), *self.blocked.values()], axis=0)
        self.top = float(max(self.score[self.free].max(initial=-np.inf), sink))
        left = np.subtract(self.score, self.top, out=np.zeros_like(self.score), where=self.free)
        self.exp = np.where(self.free, np.exp(left), 0.0)
        self.sink_exp = 0.0 if self.sink is None else float(np.exp(self.sink - self.top))
        self.total = float(self.exp.sum()) + self.sink_exp
        self.weights = self.exp / self.total if self.total else np.zeros_like(self.exp)
        self.output = self.weights @ self.values.astype(np.float64)

    def heaviest(self, most: int) -> np.ndarray:
        """The places of at most so many keys with the largest weights, in the order of the text; never a blocked one
        where there are enough of others."""
        order = np.lexsort((np.arange(len(self.raw)), -self.weights, ~self.free))
        return np.sort(order[:most])


@dataclass(frozen=True, eq=False)
class HeadSteps:
    """raw: float32 [Q,K], q·k. values: [K,D], those of its key-value head. output: [Q,D]. row: the chosen query's."""

    head: HeadView
    raw: np.ndarray
    values: np.ndarray
    output: np.ndarray
    row: RowSteps


def head_steps(trace: "Trace", row: int, masks: "MaskSpec", layer: int, head: int, query: int) -> HeadSteps:
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
