"""A run with its norms frozen: each divides by the deviation that it had in the run, whatever it is given.

Then all that lies between the residual stream and what a head reads, between what a head gives and the stream, and
between the last stream and the logits is linear, and what is there is a sum over what wrote it (Elhage et al. 2021, "A
Mathematical Framework for Transformer Circuits").
Sizes: N parts, S sources, P positions, W width, H heads, Hkv key-value heads, D head width, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from i18n import N_
from model.trace import LayerRecord, Trace

TOKEN, POSITION, EMBEDDING, BIASES = N_("token"), N_("position"), N_("embedding"), N_("biases")  # said where shown


@dataclass(frozen=True, eq=False)
class Stream:
    """What wrote into the residual stream.

    names: "token", "position" (or "embedding", where both are one), "L2 H5", "L2 MLP" … and "biases", those of the
    output projections, together. parts: float64 [S,P,W], which sum to the stream.
    """

    names: tuple[str, ...]
    parts: Tensor

    @property
    def total(self) -> Tensor:
        """The stream itself, [P,W]."""
        return self.parts.sum(0)


@dataclass(frozen=True, eq=False)
class QKContributions:
    """What the heads of a layer make of parts of the stream that enters it: q [N,H,D] and k [N,Hkv,D]. q_bias [H,D] and
    k_bias [Hkv,D]: what they have besides, whatever the stream is. All float64.
    """

    q: Tensor
    k: Tensor
    q_bias: Tensor
    k_bias: Tensor


class LinearizedRun(ABC):
    """One row of a run. Layers are counted as the run's trace counts them, positions as the row's cells.

    All raise NotSupported, saying why, where the network does something else than this.
    """

    @abstractmethod
    def stream(self, positions: Sequence[int], layer: int | None) -> Stream:
        """What enters a layer; None: what leaves the last."""

    @abstractmethod
    def read(self, layer: int, position: int, parts: Tensor) -> QKContributions:
        """Of parts [N,W] of the stream that enters a layer at a position."""

    @abstractmethod
    def write(self, layer: int, position: int, outputs: Tensor) -> Tensor:
        """What heads' outputs [N,H,D] add to the stream at a position, float64 [N,W], without biases."""

    @abstractmethod
    def logits(self, position: int, parts: Tensor) -> Tensor:
        """What parts [N,W] of the stream that leaves the last layer add to the logits at a position: float64 [N,V].

        Before the cap of a network that caps its logits (`caps_logits`).
        """

    caps_logits = False


def head_outputs(record: LayerRecord, trace: Trace, row: int, positions: Sequence[int]) -> Tensor:
    """What every head gives at some positions, before the output projection, under the run's masks: [P,H,D]."""
    each = [record.stages(trace.spec, row, slice(None), slice(place, place + 1)).output[:, 0] for place in positions]
    return torch.stack(each).double()
