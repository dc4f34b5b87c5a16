"""The vectors that a text goes through in one head, from embedding to output, and how its scores stand: plain arrays.

Sizes: T positions, W width, D head width.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.base import Model
from model.heads import measures
from model.heads.survey import survey
from model.trace import Trace


def embeddings(model: Model, trace: Trace, row: int) -> np.ndarray:
    """What enters the first layer, float32 [T,W]: token plus position. Raises NotSupported where it is not known."""
    return _plain(model.residuals(trace.batch, trace.spec).streams[0][row])


@dataclass(frozen=True, eq=False)
class HeadVectors:
    """q, k, v and output: float32 [T,D]. weights: float32 [T,T], blocked cells 0."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    weights: np.ndarray
    output: np.ndarray

    @property
    def norms(self) -> np.ndarray:
        """The length of each value, [T]."""
        norms: np.ndarray = np.linalg.norm(self.v, axis=1)
        return norms


def head_vectors(trace: Trace, row: int, layer: int, head: int) -> HeadVectors:
    record, stages = trace.layers[layer], trace.stages(layer, head, row)
    shared = record.key_value_head(head)
    vectors = (record.q[row, head], record.k[row, shared], record.v[row, shared], stages.weights, stages.output)
    return HeadVectors(*map(_plain, vectors))


@dataclass(frozen=True)
class RunScores:
    """loss: the mean nats of the tokens that a repetition foretells. previous, induction: of the head that has the
    highest share of attention, 0 to 1, on the previous token, and on what followed the same token."""

    loss: float
    previous: float
    induction: float


def run_scores(trace: Trace, row: int) -> RunScores:
    """Raises ValueError for a text in which nothing comes again. See measures.followers."""
    ids = trace.batch.ids[row].cpu()
    after = measures.followers(ids)[:-1]  # of each token but the last, what followed its earlier copy
    foretold = (after >= 0) & (ids[after.clamp(min=0)] == ids[1:])
    if not foretold.any():
        raise ValueError("expected a text in which some tokens repeat")  # not shown: a lesson's own text
    shares, losses = survey(trace, row).shares, trace.losses(row)[1:]
    best = (float(np.nanmax(shares[name])) for name in ("previous", "induction"))
    return RunScores(float(losses[foretold].mean()), *best)


def _plain(tensor: Tensor) -> np.ndarray:
    found: np.ndarray = tensor.detach().to(torch.float32).cpu().numpy()
    return found
