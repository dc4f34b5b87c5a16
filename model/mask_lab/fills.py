"""The values written into blocked cells, in each precision, and their effect on a head's weights. Code in the field
writes -inf, the smallest finite number or a large negative one, in 16 bits as often as in 32, or multiplies the weights
by the mask after the softmax. All of them are run here, as written, on one head's scores [Q,K] and its mask."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from i18n import N_, msg
from model.attention import attention_stages
from model.masks import MaskSpec, causal
from model.trace import Trace

TOKENS = ("the", "cat", "sat", "down")
QUERIES = ((1.0, 0.0), (0.0, 2.0), (1.0, 1.0), (2.0, 0.0))
KEYS = ((1.0, 0.0), (1.0, 2.0), (0.0, 1.0), (2.0, 1.0))
VALUES = ((1.0, 0.0), (0.0, 1.0), (2.0, 2.0), (-1.0, 1.0))
MAX_ENTRY = 9.0  # the largest absolute value of a number


@dataclass(frozen=True, eq=False)
class WorkedExample:
    """The steps of one small attention. raw, scaled, exp, weights: float64 [T,T], exp being e^score, 0 in blocked
    cells. sums: [T], of exp along a row. output: [T,D]. allowed: bool [T,T]."""

    raw: np.ndarray
    scaled: np.ndarray
    exp: np.ndarray
    sums: np.ndarray
    weights: np.ndarray
    output: np.ndarray
    allowed: np.ndarray


def by_hand(queries: np.ndarray, keys: np.ndarray, values: np.ndarray, *, masked: bool) -> WorkedExample:
    """Compute the steps, from [T,D] each; masked: with the causal mask. Raises ValueError for other shapes and entries
    beyond ±MAX_ENTRY."""
    given = {"queries": queries, "keys": keys, "values": values}
    expected = (len(TOKENS), len(QUERIES[0]))
    for name, numbers in given.items():
        if numbers.shape != expected or not (np.abs(numbers) <= MAX_ENTRY).all():  # rejects NaN too
            table = f"{expected[0]} × {expected[1]} {name}"
            raise ValueError(f"expected {table} within ±{MAX_ENTRY:g}, got another")  # not shown: bounded
    q, k, v = (torch.tensor(np.asarray(numbers, np.float64)) for numbers in given.values())
    size = len(TOKENS)
    allowed = causal(size, size) if masked else torch.ones(size, size, dtype=torch.bool)
    stages = attention_stages(q[None], k[None], v[None], allowed)
    exp = stages.masked[0].exp()
    found = (stages.raw[0], stages.scaled[0], exp, exp.sum(-1), stages.weights[0], stages.output[0], allowed)
    return WorkedExample(*(tensor.numpy() for tensor in found))


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
FILLS = {"−∞": float("-inf"), "finfo.min": None, "−1e20": -1e20, "−1e9": -1e9, "−1e4": -1e4, "−10": -10.0}
OURS, MULTIPLIED, RENORMALISED = N_("−∞, and empty rows set to 0"), N_("multiply"), N_("multiply, then renormalize")

Kind = Literal["NaN", "zero", "uniform", "other"]


@dataclass(frozen=True)
class EmptyRowResult:
    """The result for a fully blocked row of K weights: all NaN, all 0, all equal, or something else. total: their sum.
    largest: the largest of them. Both NaN if the weights are."""

    kind: Kind
    total: float
    largest: float


@dataclass(frozen=True)
class WeightDeviation:
    """How far a way of masking is from the exact weights, over the rows that have an allowed key; NaN if there is no
    such row or no blocked cell. blocked_largest: the largest weight on a blocked cell. blocked_total: the largest sum
    of a row's weights on blocked cells. difference: the largest |weight - exact weight|. least_total, most_total: of
    the rows' sums. nans: how many of these rows hold a NaN; the other numbers leave them out."""

    blocked_largest: float
    blocked_total: float
    difference: float
    least_total: float
    most_total: float
    nans: int


@dataclass(frozen=True)
class Result:
    """The result of one way of masking in one precision. name: the fill, or the order of mask and softmax. value: what
    is in the blocked cells, None if nothing is written. overflow: why a number does not fit, or None; with it, empty
    and damage are None."""

    name: str
    dtype: str
    value: float | None
    overflow: str | None
    empty: EmptyRowResult | None
    damage: WeightDeviation | None


@dataclass(frozen=True)
class FillComparison:
    """The results of all ways of masking on one head. rows: how many have an allowed key. blocked: how many of their
    cells are blocked. empty_row: the first query whose row the user's masks block as a whole, or None: then a copy of
    the last row is blocked for the demonstration. keys: how many there are in it. has_sink: whether every row's
    denominator has one more score. ours: the result of this program's own core."""

    rows: int
    blocked: int
    empty_row: int | None
    keys: int
    has_sink: bool
    ours: Result
    fills: tuple[Result, ...]
    after: tuple[Result, ...]


@dataclass(frozen=True, eq=False)
class _Case:
    """Rows of scores, the last of which is blocked as a whole. allowed bool [R,K]; sink: None, or one more score of
    each row's denominator, [R,1]. exact: the weights of all but the last row, float64 [R-1,K]. cast: for each precision
    the scores [R,K] in it, and an error message if they do not fit."""

    allowed: Tensor
    sink: Tensor | None
    exact: Tensor
    cast: dict[str, tuple[Tensor, str | None]]


def compare_on_head(trace: Trace, row: int, masks: MaskSpec, layer: int, head: int) -> FillComparison:
    """Run `compare` on one head of a run, under its masks or others."""
    stages, allowed = trace.stages(layer, head, row, masks), trace.allowed(layer, row, masks, head=head)
    sinks = trace.layers[layer].terms_in(row, slice(head, head + 1), slice(None)).sinks
    return compare(stages.scaled, allowed, None if sinks is None else sinks.reshape(-1, 1).cpu())


def compare(scores: Tensor, allowed: Tensor, sink: Tensor | float | None = None) -> FillComparison:
    """Compare all ways of masking. scores: one head's before masking, [Q,K], -inf in a cell that the network itself
    blocks, all others finite; allowed: bool [Q,K], True = may attend. sink: a score of the head's that only every row's
    denominator has, one or each query's own [Q,1]. Raises ValueError for anything else."""
    if scores.ndim != 2 or not scores.numel() or scores.shape != allowed.shape or allowed.dtype != torch.bool:
        raise ValueError(
            f"expected scores [Q,K] and a boolean mask [Q,K], got {list(scores.shape)} and "  # not shown
            f"{allowed.dtype} {list(allowed.shape)}"
        )
    closed = scores == float("-inf")
    if not scores[~closed].isfinite().all():
        raise ValueError(msg("expected finite scores, got some that are infinite or NaN"))
    open_cells = allowed & ~closed
    empty = ~open_cells.any(-1)
    whole = empty.nonzero().flatten().tolist()
    chosen = torch.tensor([*(~empty).nonzero().flatten().tolist(), whole[0] if whole else -1])
    rows = scores[chosen].float()
    sinks = None if sink is None else torch.as_tensor(sink).expand(len(scores), 1)[chosen]
    ordinary = open_cells[~empty]
    exact = _softmax(rows[:-1].double().masked_fill(~ordinary, float("-inf")), None if sinks is None else sinks[:-1])
    finite = rows[rows.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    cast: dict[str, tuple[Tensor, str | None]] = {}
    for name, dtype in DTYPES.items():
        limit, why = torch.finfo(dtype).max, None
        if torch.tensor(largest).to(dtype).isinf():
            template = N_("a score of ±{largest:.3g} is more than the largest number, {most:.3g}")
            why = msg(template, largest=largest, most=limit)
        cast[name] = rows.to(dtype), why
    case = _Case(torch.cat([ordinary, torch.zeros_like(allowed[:1])]), sinks, exact, cast)
    return FillComparison(
        rows=len(ordinary),
        blocked=int((~ordinary).sum()),
        empty_row=whole[0] if whole else None,
        keys=scores.shape[1],
        has_sink=sink is not None,
        ours=_try_mask(case, OURS, "float32", float("-inf")),
        fills=tuple(
            _try_mask(case, name, dtype, torch.finfo(DTYPES[dtype]).min if fill is None else fill)
            for name, fill in FILLS.items()
            for dtype in DTYPES
        ),
        after=tuple(_try_mask(case, name, dtype, None) for name in (MULTIPLIED, RENORMALISED) for dtype in DTYPES),
    )


def _try_mask(case: _Case, name: str, dtype: str, value: float | None) -> Result:
    """Try one way of masking: write a value before the softmax, or, without a value, multiply after it."""
    scores, trouble = case.cast[dtype]
    if trouble is None and value is not None:
        try:
            scores = scores.masked_fill(~case.allowed, value)
        except RuntimeError:  # the value does not fit
            limit = torch.finfo(DTYPES[dtype]).max
            trouble = msg("the lowest number of {dtype} is −{most:.0f}", dtype=dtype, most=limit)
    if trouble is not None:
        return Result(name, dtype, value, trouble, None, None)
    weights = _softmax(scores, case.sink)
    if value is None:
        weights = weights * case.allowed
    if name == RENORMALISED:
        weights = weights / weights.sum(-1, keepdim=True)
    if name == OURS:
        weights = weights.masked_fill(~case.allowed.any(-1, keepdim=True), 0.0)
    written = None if value is None else float(torch.tensor(value, dtype=DTYPES[dtype]))
    return Result(
        name,
        dtype,
        written,
        None,
        classify_empty_row(weights[-1].double()),
        _weight_deviation(weights[:-1].double(), case),
    )


def _softmax(scores: Tensor, sink: Tensor | None) -> Tensor:
    if sink is None:
        return scores.softmax(-1)
    return torch.cat([scores, sink.to(scores.dtype)], dim=-1).softmax(-1)[:, :-1]


def classify_empty_row(row: Tensor) -> EmptyRowResult:
    """Classify the weights [K] of a fully blocked row."""
    kind: Kind = "uniform" if float(row.min()) == float(row.max()) else "other"
    if not row.any():
        kind = "zero"
    if row.isnan().any():
        kind = "NaN"
    return EmptyRowResult(kind, float(row.sum()), float(row.max()))


def _weight_deviation(weights: Tensor, case: _Case) -> WeightDeviation:
    """Compare weights, float64 [R-1,K], with the exact ones."""
    blocked, exact, totals = ~case.allowed[:-1], case.exact, weights.sum(-1)
    broken = totals.isnan()
    if broken.any():
        weights, blocked, exact, totals = (rows[~broken] for rows in (weights, blocked, exact, totals))
    leaked, some = weights * blocked, bool(blocked.any())
    return WeightDeviation(
        blocked_largest=_largest(leaked) if some else float("nan"),
        blocked_total=_largest(leaked.sum(-1)) if some else float("nan"),
        difference=_largest((weights - exact).abs_()),
        least_total=-_largest(-totals),
        most_total=_largest(totals),
        nans=int(broken.sum()),
    )


def _largest(numbers: Tensor) -> float:
    return float(numbers.max()) if numbers.numel() else float("nan")


SIZES = (3, 5, 8)  # queries, keys and a head's width
EMPTY = 1  # the query without an allowed key
# by name: the backend of scaled_dot_product_attention, None for plain PyTorch, and the form of its mask
KERNELS: dict[str, tuple[SDPBackend | None, Literal["boolean", "-inf", "minimum"]]] = {
    N_("SDPA math, boolean mask"): (SDPBackend.MATH, "boolean"),
    N_("SDPA math, −∞ added"): (SDPBackend.MATH, "-inf"),
    N_("SDPA flash on CPU, boolean mask"): (SDPBackend.FLASH_ATTENTION, "boolean"),
    N_("SDPA flash on CPU, −∞ added"): (SDPBackend.FLASH_ATTENTION, "-inf"),
    N_("eager softmax, −∞"): (None, "-inf"),
    N_("eager softmax, dtype minimum"): (None, "minimum"),
}


def _attended(name: str, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    backend, mask = KERNELS[name]
    fill = torch.finfo(q.dtype).min if mask == "minimum" else -torch.inf
    added = torch.zeros(allowed.shape, dtype=q.dtype).masked_fill(~allowed, fill)
    if backend is None:
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~allowed, fill)
        return torch.matmul(scores.softmax(-1), v)
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed if mask == "boolean" else added)


@torch.inference_mode()
def empty_rows() -> dict[str, dict[str, str]]:
    """Measure what a query without an allowed key gets from each attention kernel of the installed torch: by kernel and
    dtype "NaN", "0", "uniform" (the mean of all values) or "other"; "" if the kernel refuses the mask or dtype."""
    (queries, keys, width), generator = SIZES, torch.Generator().manual_seed(11)
    q, k, v = (torch.randn(1, 1, count, width, generator=generator) for count in (queries, keys, keys))
    allowed = torch.ones(1, 1, queries, keys, dtype=torch.bool)
    allowed[..., EMPTY, :] = False
    found: dict[str, dict[str, str]] = {}
    for name in KERNELS:
        found[name] = dict.fromkeys(DTYPES, "")
        for dtype_name, dtype in DTYPES.items():
            with suppress(RuntimeError):  # no such kernel for this mask or dtype
                output = _attended(name, q.to(dtype), k.to(dtype), v.to(dtype), allowed)
                found[name][dtype_name] = _outcome(output[0, 0, EMPTY].float(), v.to(dtype)[0, 0].float())
    return found


def _outcome(output: Tensor, values: Tensor) -> str:
    if output.isnan().any():
        return "NaN"
    if not output.any():
        return "0"
    return N_("uniform") if torch.allclose(output, values.mean(0), atol=0.01) else N_("other")
