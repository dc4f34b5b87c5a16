"""A run with frozen norms: each norm divides by the deviation that it had in the run, whatever its input.

Then everything between the residual stream and the inputs of a head, between a head's output and the stream, and
between the final stream and the logits is linear, so each value is a sum over what wrote to the stream (Elhage et al.
2021, "A Mathematical Framework for Transformer Circuits").
Sizes: N parts, S sources, P positions, W width, H heads, Hkv key-value heads, D head width, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from i18n import N_
from model.blocks import Block, positions_under
from model.heads.view import head_name
from model.trace import LayerRecord, Trace
from model.transformer import Transformer

TOKEN, POSITION, EMBEDDING, BIASES = N_("token"), N_("position"), N_("embedding"), N_("biases")  # translated on display


@dataclass(frozen=True, eq=False)
class Stream:
    """The residual stream, split by what wrote to it. names: "token", "position" (or "embedding", if both are one), "L2
    H5", "L2 MLP" … and "biases", those of the output projections, together. parts: float64 [S,P,W], which sum to the
    stream."""

    names: tuple[str, ...]
    parts: Tensor

    @property
    def total(self) -> Tensor:
        """The stream itself, the sum of the parts: [P,W]."""
        return self.parts.sum(0)


@dataclass(frozen=True, eq=False)
class QKContributions:
    """The contributions of parts of a layer's input stream to the heads' q [N,H,D] and k [N,Hkv,D]. q_bias [H,D] and
    k_bias [Hkv,D]: constant terms, whatever the stream is. All float64."""

    q: Tensor
    k: Tensor
    q_bias: Tensor
    k_bias: Tensor


class LinearizedRun(ABC):
    """One row of a run with frozen norms. Layers are counted as in the run's trace, positions as in the row. All
    methods raise NotSupported, with the reason, if the network computes something else."""

    @abstractmethod
    def stream(self, positions: Sequence[int], layer: int | None) -> Stream:
        """Return the stream that enters a layer; None: the stream that leaves the last."""

    @abstractmethod
    def q_and_k(self, layer: int, position: int, parts: Tensor) -> QKContributions:
        """Return what parts [N,W] of the stream that enters a layer contribute to its heads' q and k at a position."""

    @abstractmethod
    def write(self, layer: int, position: int, outputs: Tensor) -> Tensor:
        """Return what heads' outputs [N,H,D] add to the stream at a position, float64 [N,W], without biases."""

    @abstractmethod
    def logits(self, position: int, parts: Tensor) -> Tensor:
        """Return what parts [N,W] of the last layer's output stream add to the logits at a position: float64 [N,V].

        Before the cap of a network that caps its logits (`caps_logits`).
        """

    caps_logits = False


def head_outputs(record: LayerRecord, trace: Trace, row: int, positions: Sequence[int]) -> Tensor:
    """Return every head's output at some positions, before the output projection, under the run's masks: [P,H,D]."""
    each = [record.stages(trace.spec, row, slice(None), slice(query, query + 1)).output[:, 0] for query in positions]
    return torch.stack(each).double()


class FrozenDecoder(LinearizedRun):
    """One row of a trace of our own Transformer with frozen norms, under the trace's masks."""

    def __init__(self, network: Transformer, trace: Trace, row: int) -> None:
        self._network, self._trace, self._row = network, trace, row
        self._blocks = [cast(Block, block) for block in network.blocks]

    @torch.inference_mode()
    def stream(self, positions: Sequence[int], layer: int | None) -> Stream:
        network, trace, positions = self._network, self._trace, list(positions)
        numbers = self._here(positions_under(trace.spec, trace.batch)[self._row, positions])
        ids = self._here(trace.batch.ids[self._row, positions])
        parts = [network.token_embedding(ids), network.position_embedding(numbers)]
        names = [TOKEN, POSITION]
        total = sum(part.double() for part in parts)
        biases = torch.zeros_like(total)
        for number, (block, record) in enumerate(zip(self._blocks[:layer], trace.layers, strict=False)):
            output, norm = block.attention.output, block.mlp_norm
            weight, bias = output.weight.double().unflatten(1, (block.attention.heads, -1)), output.bias.double()
            heads = torch.einsum("nhd,whd->nhw", head_outputs(record, trace, self._row, positions), weight)  # [P,H,W]
            biases += bias
            total = total + heads.sum(1) + bias
            x = F.layer_norm(total, total.shape[-1:], norm.weight.double(), norm.bias.double(), norm.eps)
            mlp = _linear(block.mlp_out, F.gelu(_linear(block.mlp_in, x), approximate="tanh"))
            total = total + mlp
            parts += [*heads.unbind(1), mlp]
            names += [*(head_name(number, head) for head in range(heads.shape[1])), f"{head_name(number)} MLP"]
        return Stream((*names, BIASES), torch.stack([part.double() for part in (*parts, biases)]).cpu())

    def _here(self, some: Tensor) -> Tensor:
        """Move a tensor to the network's device."""
        return some.to(self._trace.states.device)

    @torch.inference_mode()
    def q_and_k(self, layer: int, position: int, parts: Tensor) -> QKContributions:
        block = self._blocks[layer]
        through = _frozen(block.attention_norm, *map(self._here, (parts, self.stream([position], layer).total[0])))
        q, q_bias = self._projected(block, block.attention.query, through)
        k, k_bias = self._projected(block, block.attention.key, through)
        return QKContributions(q.cpu(), k.cpu(), q_bias.cpu(), k_bias.cpu())

    @torch.inference_mode()
    def write(self, layer: int, position: int, outputs: Tensor) -> Tensor:
        weight = self._blocks[layer].attention.output.weight.double()
        return (self._here(outputs).double().flatten(1) @ weight.T).cpu()

    @torch.inference_mode()
    def logits(self, position: int, parts: Tensor) -> Tensor:
        through = _frozen(self._network.norm, *map(self._here, (parts, self.stream([position], None).total[0])))
        # in the network's own precision: the vocabulary is large
        return self._network.logits(through.to(self._trace.states.dtype)).double().cpu()

    def _projected(self, block: Block, projection: nn.Linear, parts: Tensor) -> tuple[Tensor, Tensor]:
        """Project [N,W] -> [N,H,D]; also return the bias [H,D], including the norm's own through the projection."""
        heads = (block.attention.heads, -1)
        bias = _linear(projection, block.attention_norm.bias.double())
        return (parts @ projection.weight.double().T).unflatten(-1, heads), bias.unflatten(-1, heads)


def _linear(layer: nn.Linear, x: Tensor) -> Tensor:
    return F.linear(x, layer.weight.double(), None if layer.bias is None else layer.bias.double())


def _frozen(norm: nn.LayerNorm, parts: Tensor, total: Tensor) -> Tensor:
    """Apply a norm to parts [N,W] with the deviation of the whole stream [W], without the norm's bias."""
    deviation = (total.var(-1, unbiased=False) + norm.eps).sqrt()
    return (parts - parts.mean(-1, keepdim=True)) / deviation * norm.weight.double()
