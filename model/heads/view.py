"""One head of a run as plain arrays to draw, without torch: its weights, its masks, its name, and its arithmetic step
by step. The steps of a row repeat in NumPy, in double precision, what attention.py computes; a test compares both.

Sizes: Q queries, K keys, T positions, D head width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from i18n import N_, msg
from model.spec import OFF

if TYPE_CHECKING:
    from torch import Tensor

    from model.attention import AttentionStages
    from model.spec import MaskSpec
    from model.trace import Trace


Span = tuple[int, int]  # a position, and the one after the last
BLOCK_ROWS = 64  # queries per block of a long text
MAX_CELLS = 128  # per side: three pictures of it, with every mask, stay under 1.2 MB


def blocked_by_any(blocked: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """Return bool of this shape, True where at least one of the masks, by name, blocks the cell."""
    return reduce(np.logical_or, blocked.values(), np.zeros(shape, bool))


@dataclass(frozen=True, eq=False)
class HeadView:
    """One head on one text: Q queries (rows) by K keys (columns).

    weights: float32 [Q,K], 0 to 1, blocked cells 0. scaled: float32 [Q,K], the scores before masking.
    blocked: for each mask that is on, bool [Q,K], True = it blocks the cell.
    queries, keys: a label for each position. first, first_key: the positions of the first row and of the first column.
    step: how many positions each row and column stands for; if that is more than one, size: how many positions there
    are, of queries and of keys. whole: the view that this is a part or reduction of, or None.
    available: the masks that it can have. group: how many heads share its keys and values, itself included.
    merged: rows and columns stand for words, sentences or several queries (model/heads/merging.py). layers: rows stand
    for layers.
    """

    weights: np.ndarray
    scaled: np.ndarray
    blocked: dict[str, np.ndarray]
    queries: list[str]
    keys: list[str]
    first: int = 0
    first_key: int = 0
    step: int = 1
    size: tuple[int, int] = (0, 0)
    whole: "HeadView | None" = None
    available: frozenset[str] = frozenset()
    group: int = 1
    merged: bool = False
    layers: bool = False

    def any_blocked(self) -> np.ndarray:
        """Return bool [Q,K], True where at least one mask blocks the cell."""
        return blocked_by_any(self.blocked, self.weights.shape)

    def empty_rows(self) -> np.ndarray:
        """Return bool [Q], True where every key of the whole view is blocked, also those that a part leaves out."""
        if self.whole is None:
            return np.asarray(np.all(self.any_blocked(), axis=1))
        step, rows = self.step // self.whole.step, len(self.weights)
        empty = self.whole.empty_rows()[self.first - self.whole.first :][: rows * step]
        full = np.pad(empty, (0, rows * step - len(empty)), constant_values=True)
        return np.asarray(np.all(full.reshape(rows, step), axis=1))


@dataclass(frozen=True, eq=False)
class MaskView:
    """The masks of one head over T positions, without hand-drawn strokes, and the strokes.

    blockers: for each mask that is on, bool [T,T], True = it blocks the cell, whatever opens it again.
    openers: likewise the cells that a mask opens. token_indices: int [T], each position's index among the row's real
    tokens, -1 at padding. strokes: (kind, query, key, last query, last key), in those indices.
    labels: a token for each position.
    """

    blockers: dict[str, np.ndarray]
    openers: dict[str, np.ndarray]
    token_indices: np.ndarray
    strokes: Sequence[tuple[str, int, int, int, int]]
    labels: Sequence[str]


def head_name(layer: int, head: int | None = None) -> str:
    """Return the name of a head, or of its layer: "L3 H2", "L3". layer: its number in the network, from 0."""
    name = f"L{layer}"
    return name if head is None else f"{name} H{head}"


def head_view(trace: "Trace", row: int, masks: "MaskSpec", layer: int, head: int) -> HeadView:
    """Return the view of a head under the run's masks, or (same queries and keys) under others."""
    return view_of(trace, row, layer, *trace.stages_and_masks(layer, head, row, masks))


def mask_changes_cells(trace: "Trace", row: int, masks: "MaskSpec", layer: int, head: int, name: str) -> bool:
    """Whether toggling a mask by its name, or "drawn", changes a cell of the head. It is turned off if it is on in
    masks, else on if it has no parameter. Only real queries count, with real keys, or with padding where no mask blocks
    that."""
    switched = masks.replace(**{name: getattr(OFF, name) if getattr(masks, name) else True})
    one, other = (trace.allowed(layer, row, some, head=head) for some in (masks, switched))
    seen = trace.keys.keep[row] | (not masks.padding)
    return bool((one != other)[trace.queries.keep[row]][:, seen].any())


def view_of(trace: "Trace", row: int, layer: int, stages: "AttentionStages", blocked: dict[str, "Tensor"]) -> HeadView:
    record = trace.layers[layer]
    return HeadView(
        stages.weights.numpy(),
        stages.scaled.numpy(),
        {name: mask.numpy() for name, mask in blocked.items()},
        list(trace.queries.pieces[row]),
        list(trace.keys.pieces[row]),
        available=record.context.available,
        group=record.q.shape[1] // record.k.shape[1],
    )


def head_part(
    trace: "Trace",
    row: int,
    masks: "MaskSpec",
    layer: int,
    head: int,
    rows: Span,
    columns: Span,
    most: int = MAX_CELLS,
) -> HeadView:
    """Return a part of a head: rows and columns, each (first, end), with at most `most` of each: the largest weight of
    each patch of step × step cells if there are more. For a long text nothing takes Q × K numbers."""
    step = -(-max(rows[1] - rows[0], columns[1] - columns[0]) // most)
    block = max(BLOCK_ROWS // step, 1) * step
    size = tuple(-(-(end - begin) // step) for begin, end in (rows, columns))
    weights, scaled = np.empty(size, np.float32), np.empty(size, np.float32)
    blocked: dict[str, np.ndarray] = {}
    queries: list[str] = []
    for begin in range(*rows, block):
        some = slice(begin, min(begin + block, rows[1]))
        view = view_of(trace, row, layer, *trace.stages_and_masks(layer, head, row, masks, some))
        view = replace(view, queries=view.queries[some])
        part = coarser(cropped(view, (0, len(view.queries)), columns), step=step)
        here = slice(len(queries), len(queries) + len(part.queries))
        weights[here], scaled[here] = part.weights, part.scaled  # copied: keeping the block would keep all in memory
        for name, cells in part.blocked.items():
            blocked.setdefault(name, np.empty(size, bool))[here] = cells
        queries += part.queries
    return replace(
        part, weights=weights, scaled=scaled, blocked=blocked, queries=queries, first=rows[0], first_key=columns[0],
        step=step, size=(rows[1] - rows[0], columns[1] - columns[0]), whole=None,
    )  # fmt: skip


def mask_view(trace: "Trace", row: int, masks: "MaskSpec", layer: int, head: int) -> MaskView:
    """Return the masks to draw strokes on; for self-attention only."""
    context = trace.layers[layer].context
    blockers, openers = (context.in_row(some, row) for some in context.masks_without_strokes(masks, head))
    keep = context.keep[row].cpu().numpy()
    return MaskView(
        {name: ~allowed.numpy() for name, allowed in blockers.items()},
        {name: opened.numpy() for name, opened in openers.items()},
        np.where(keep, keep.cumsum() - 1, -1),
        tuple(astuple(stroke) for stroke in masks.at(context.layer, head, context.standard).drawn),
        trace.keys.pieces[row],
    )


def cropped(view: HeadView, rows: Span, columns: Span) -> HeadView:
    """Return a part of a whole view: rows and columns, each (first, end). The weights are unchanged."""
    if (rows, columns) == tuple((0, size) for size in view.weights.shape):
        return view
    part = slice(*rows), slice(*columns)
    return replace(
        view,
        weights=view.weights[part],
        scaled=view.scaled[part],
        blocked={name: mask[part] for name, mask in view.blocked.items()},
        queries=view.queries[part[0]],
        keys=view.keys[part[1]],
        first=rows[0],
        first_key=columns[0],
        whole=view,
    )


def coarser(view: HeadView, most: int = MAX_CELLS, *, step: int = 0) -> HeadView:
    """Reduce the view to at most `most` rows and columns: to the largest weight of each patch of step × step cells, and
    the largest score of its allowed ones. A patch is blocked only if all of its cells are: by every mask that blocks
    some of them."""
    step = step or step_of(view, most)
    if step == 1:
        return view
    closed = view.any_blocked()
    whole = reduced(closed, step, np.logical_and, True)
    scaled = reduced(np.where(closed, -np.inf, view.scaled), step, np.maximum, -np.inf)
    return replace(
        view,
        weights=reduced(view.weights, step, np.maximum, 0.0),
        scaled=np.where(whole, reduced(view.scaled, step, np.maximum, -np.inf), scaled),
        blocked={name: whole & reduced(mask, step, np.logical_or, False) for name, mask in view.blocked.items()},
        queries=_joined(view.queries, step),
        keys=_joined(view.keys, step),
        step=step,
        size=view.weights.shape,
        whole=view,
    )


def coarser_words(view: HeadView) -> str:
    """Return a sentence on how many positions a row and column of `coarser` stands for; "" for one."""
    step, count = step_of(view), max(view.weights.shape)
    if step == 1:
        return ""
    words = N_("{count:,} positions are too many for a screen: each cell is the largest of {step}\u00a0×\u00a0{step}.")
    return msg(words, count=count, step=step)


def step_of(view: HeadView, most: int = MAX_CELLS) -> int:
    """Return how many positions a row and column of `coarser` stands for."""
    return int(-(-max(view.weights.shape) // most))


def reduced(values: np.ndarray, step: int, reduce: np.ufunc, beyond: float) -> np.ndarray:
    """Reduce each patch with the ufunc: [Q,K] -> [Q/step,K/step], the last ones filled up with `beyond`."""
    by_rows = reduce.reduce(patches(values, step, beyond), axis=1)  # rows first: they are contiguous in memory
    return np.asarray(reduce.reduce(by_rows, axis=2))


def patches(values: np.ndarray, step: int, beyond: float) -> np.ndarray:
    """Cut into patches: [Q,K] -> [Q/step, step, K/step, step], the last ones filled up with `beyond`."""
    rows, columns = (-size % step for size in values.shape)
    full = np.pad(values, ((0, rows), (0, columns)), constant_values=beyond) if rows or columns else values
    return full.reshape(full.shape[0] // step, step, full.shape[1] // step, step)


def _joined(labels: list[str], step: int) -> list[str]:
    groups = [labels[begin : begin + step] for begin in range(0, len(labels), step)]
    return ["".join(group[:4]) + ("…" if len(group) > 4 else "") for group in groups]


@dataclass(frozen=True, eq=False)
class Arithmetic:
    """The arithmetic of one head of width d on q·k. softcap None, bias and sink False if the architecture has none."""

    scale: float
    width: int
    softcap: float | None = None
    bias: bool = False
    sink: bool = False

    def formula(self) -> str:
        """Return the formula of a score, "q·k / √64" or "q·k × 0.5", with a cap and a bias if the head has them."""
        usual = np.isclose(self.scale, self.width**-0.5)
        scaled = f"q·k / √{self.width}" if usual else f"q·k × {self.scale:.6g}"
        if self.softcap is not None:
            scaled = f"{self.softcap:g}·tanh({scaled} / {self.softcap:g})"
        return scaled + (" + bias" if self.bias else "")

    def softmax(self) -> str:
        """Return the formula, in HTML, that turns scores into weights."""
        power = "e<sup>score</sup>"
        return f"{power} / (Σ {power} + e<sup>sink</sup>)" if self.sink else f"{power} / Σ {power}"


@dataclass(eq=False)
class RowSteps:
    """One query's row over K keys, recomputed from q·k on in double precision.

    raw [K]: q·k. bias [K], or None. sink: a score that only the denominator has, or None. blocked: for each mask, bool
    [K]. values [K,D]. query, keys: labels; position: the query's.

    Computed from them, [K] each: scaled, raw times the scale; capped, within the soft-cap; score, before any mask;
    free, where neither a mask nor a bias of -inf blocks; exp, e^(score - top), 0 where blocked; weights, which sum to
    1, to less with a sink.
    top: the largest unblocked score, or the sink if that is larger, -inf without either; total: the denominator,
    sink_exp the sink's part of it.
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
        self.free = ~blocked_by_any(self.blocked, self.raw.shape) & ~np.isneginf(self.score)
        self.top = float(max(self.score[self.free].max(initial=-np.inf), sink))
        left = np.subtract(self.score, self.top, out=np.zeros_like(self.score), where=self.free)
        self.exp = np.where(self.free, np.exp(left), 0.0)
        self.sink_exp = 0.0 if self.sink is None else float(np.exp(self.sink - self.top))
        self.total = float(self.exp.sum()) + self.sink_exp
        self.weights = self.exp / self.total if self.total else np.zeros_like(self.exp)
        self.output = self.weights @ self.values.astype(np.float64)

    def heaviest(self, most: int) -> np.ndarray:
        """Return the positions of up to `most` keys with the largest weights, in the order of the text; blocked ones
        only if there are not enough others."""
        order = np.lexsort((np.arange(len(self.raw)), -self.weights, ~self.free))
        return np.sort(order[:most])


@dataclass(frozen=True, eq=False)
class HeadSteps:
    """One head's steps. raw: float32 [Q,K], q·k. values: [K,D], its key-value head's. output: [Q,D]. row: one
    query's."""

    head: HeadView
    raw: np.ndarray
    values: np.ndarray
    output: np.ndarray
    row: RowSteps


def head_steps(trace: "Trace", row: int, masks: "MaskSpec", layer: int, head: int, query: int) -> HeadSteps:
    """Return a head under the run's masks or others, and all steps of its row `query`."""
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
