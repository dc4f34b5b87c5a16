"""What lessons show of one head, as plain arrays: the vectors of a text in it, from embedding to output, and one
query's row over four keys, small enough for paper: in the precision that programs use, with what they add to blocked
scores and what they do afterwards.

Sizes: T positions, W width, D head width.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from i18n import msg
from model.base import Model
from model.heads import measures
from model.heads.survey import survey
from model.trace import Trace


def embeddings(model: Model, trace: Trace, row: int) -> np.ndarray:
    """Return the first layer's input, float32 [T,W]: token plus position. Raises NotSupported if not available."""
    return _plain(model.residuals(trace.batch, trace.spec).streams[0][row])


@dataclass(frozen=True, eq=False)
class HeadVectors:
    """Vectors of one head. q, k, v, output: float32 [T,D]. weights: float32 [T,T], blocked cells 0. blocked: bool
    [T,T]."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    weights: np.ndarray
    output: np.ndarray
    blocked: np.ndarray

    @property
    def norms(self) -> np.ndarray:
        """The norm of each value, [T]."""
        return np.asarray(np.linalg.norm(self.v, axis=1))


def head_vectors(trace: Trace, row: int, layer: int, head: int) -> HeadVectors:
    record, stages = trace.layers[layer], trace.stages(layer, head, row)
    shared = record.key_value_head(head)
    q, k, v = (_plain(one) for one in (record.q[row, head], record.k[row, shared], record.v[row, shared]))
    blocked = stages.masked.isneginf().numpy()
    return HeadVectors(q, k, v, _plain(stages.weights), _plain(stages.output), blocked)


@dataclass(frozen=True)
class RunScores:
    """Scores of a run on a text with a repetition. loss: the mean nats of the tokens that it predicts. previous,
    induction: the highest share of any head, 0 to 1, on the previous token, and on what followed the same token."""

    loss: float
    previous: float
    induction: float


def run_scores(trace: Trace, row: int) -> RunScores:
    """Compute the scores of a run. Raises ValueError for a text in which no token follows an earlier copy of the one
    before it, three or more tokens later. See measures.followers."""
    ids = trace.batch.distinct_ids(row)
    after = measures.followers(ids)[:-1]  # for each token but the last, what followed its earlier copy
    foretold = (after >= 0) & (ids[after.clamp(min=0)] == ids[1:])
    if not foretold.any():
        raise ValueError(msg("expected a text in which a part occurs again three or more tokens later, as in abcabc"))
    shares, losses = survey(trace, row).shares, trace.losses(row)[1:]
    best = (float(np.nanmax(shares[name])) for name in ("previous", "induction"))
    return RunScores(float(losses[foretold].mean()), *best)


def _plain(tensor: Tensor) -> np.ndarray:
    return tensor.detach().to(torch.float32).cpu().numpy()


FOUR_TOKENS = ("the", "cat", "sat", "down")
FOUR_TOKENS_WIDTH = 2  # numbers of a query, of each key and of each value
MAX_NUMBER = 99.0  # the largest absolute value of a number
ADDED = {"-inf": -torch.inf, "-1e4": -1e4, "-10": -10.0}
DTYPES = {"float32": torch.float32, "float16": torch.float16}
Added = Literal["-inf", "-1e4", "-10"]
Precision = Literal["float32", "float16"]
Then = Literal["", "multiply", "zero"]


@dataclass(frozen=True)
class FourTokens:
    """One query over FOUR_TOKENS. query [FOUR_TOKENS_WIDTH]; keys and values, one each for FOUR_TOKENS. blocked: which
    of them the mask blocks. add: what the mask adds to a blocked score, "" for nothing. then: what follows the softmax:
    "multiply" by the mask, or "zero" for a row without an allowed key. sink: a learned score that only the denominator
    has, as in gpt_oss; None for none."""

    query: tuple[float, ...]
    keys: tuple[tuple[float, ...], ...]
    values: tuple[tuple[float, ...], ...]
    blocked: tuple[int, ...] = ()
    add: Added | Literal[""] = "-inf"
    precision: Precision = "float32"
    then: Then = ""
    sink: float | None = None


@dataclass(frozen=True, eq=False)
class FourTokensSteps:
    """The steps of a FourTokens row, float64 [4] each, from numbers in the requested precision: raw q·k, scaled, added,
    masked, weights; output [FOUR_TOKENS_WIDTH]. allowed: bool [4]."""

    raw: np.ndarray
    scaled: np.ndarray
    added: np.ndarray
    masked: np.ndarray
    weights: np.ndarray
    output: np.ndarray
    allowed: np.ndarray

    @property
    def total(self) -> float:
        """The sum of the weights; NaN if one of them is."""
        return float(self.weights.sum())


def four_token_steps(given: FourTokens) -> FourTokensSteps:
    """Compute the steps. Raises ValueError for other shapes and for numbers beyond MAX_NUMBER."""
    dtype, size = DTYPES[given.precision], len(FOUR_TOKENS)
    shapes = {"query": (FOUR_TOKENS_WIDTH,), "keys": (size, FOUR_TOKENS_WIDTH), "values": (size, FOUR_TOKENS_WIDTH)}
    for name, shape in shapes.items():
        numbers = np.array(getattr(given, name), np.float64)
        if numbers.shape != shape or not (np.abs(numbers) <= MAX_NUMBER).all():  # rejects NaN too
            raise ValueError(
                f"expected {name} {list(shape)} from −{MAX_NUMBER:g} to {MAX_NUMBER:g}, got another"  # not shown
            )
    query, keys, values = (torch.tensor(getattr(given, name), dtype=dtype) for name in shapes)
    allowed = torch.tensor([key not in given.blocked for key in range(size)])
    raw = keys @ query
    scaled = raw / torch.tensor(FOUR_TOKENS_WIDTH, dtype=dtype).sqrt()
    added = torch.zeros(size, dtype=dtype)
    if given.add:
        added = added.masked_fill(~allowed, ADDED[given.add])
    masked = scaled + added
    column = masked if given.sink is None else torch.cat([masked, torch.tensor([given.sink], dtype=dtype)])
    weights = column.softmax(-1)[:size]
    if given.then == "multiply":
        weights = weights * allowed
    if given.then == "zero" and not allowed.any():
        weights = torch.zeros_like(weights)
    found = (raw, scaled, added, masked, weights, weights @ values)
    arrays = [one.double().numpy() for one in found] + [allowed.numpy()]
    return FourTokensSteps(*arrays)
