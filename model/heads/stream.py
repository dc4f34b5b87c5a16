"""What wrote into the residual stream of a decoder at a few positions: the stream as a sum of its sources.

x = token embedding + position embedding + every head through the output projection + every MLP + biases. Each term is
computed anew from a run's q, k and v, at the asked positions alone, in double precision; nothing is recorded for it.
Sizes: H heads, K keys, D head width, W width, P positions, S sources.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.attention import MultiHeadAttention
from model.base import Model
from model.blocks import Block
from model.decoder import DecoderModel
from model.errors import NotSupported
from model.positions import positions_under
from model.trace import LayerRecord, Trace
from model.transformer import Transformer

TOKEN, POSITION, BIASES = "token", "position", "biases"


@dataclass(frozen=True, eq=False)
class Stream:
    """names: "token", "position", "L2 H5", "L2 MLP" … and "biases", those of the output projections, together.

    parts: float64 [S,P,W], which sum to the stream.
    """

    names: tuple[str, ...]
    parts: Tensor

    @property
    def total(self) -> Tensor:
        """The stream itself, [P,W]."""
        return self.parts.sum(0)


def network_of(model: Model) -> Transformer:
    """The network of a decoder of ours. Raises NotSupported, saying why not, for any other."""
    if isinstance(model, DecoderModel):
        return model.network
    raise NotSupported(
        "This works for models that run on our own Transformer (the built-in ones and GPT-2): of other networks the "
        "queries, keys and values are known, and not what each of their parts writes into the residual stream"
    )


def blocks_of(network: Transformer) -> list[Block]:
    """Its layers."""
    return [cast(Block, block) for block in network.blocks]


@torch.inference_mode()
def stream(model: Model, trace: Trace, row: int, positions: Sequence[int], layers: int) -> Stream:
    """What enters layer number `layers`; of all layers, what enters the final norm. The run's own masks hold.

    Raises NotSupported for a model that is no decoder of ours.
    """
    network, places = network_of(model), list(positions)
    numbers = positions_under(trace.spec, trace.batch)[row, places]
    parts = [network.token_embedding(trace.batch.ids[row, places]), network.position_embedding(numbers)]
    names = [TOKEN, POSITION]
    total = sum(part.double() for part in parts)
    biases = torch.zeros_like(total)
    for layer, (block, record) in enumerate(zip(blocks_of(network), trace.layers[:layers], strict=False)):
        heads = heads_through(block.attention, head_outputs(record, trace, row, places))  # [H,P,W]
        biases += block.attention.output.bias.double()
        total = total + heads.sum(0) + block.attention.output.bias.double()
        mlp = feed_forward(block, total)
        total = total + mlp
        parts += [*heads, mlp]
        names += [*(f"L{layer} H{head}" for head in range(len(heads))), f"L{layer} MLP"]
    return Stream((*names, BIASES), torch.stack([part.double() for part in (*parts, biases)]))


def head_outputs(record: LayerRecord, trace: Trace, row: int, positions: Sequence[int]) -> Tensor:
    """What every head gives at some positions, before the output projection, under the run's masks: [H,P,D]."""
    each = [record.stages(trace.spec, row, slice(None), slice(place, place + 1)).output for place in positions]
    return torch.cat(each, dim=1).double()


def heads_through(attention: MultiHeadAttention, outputs: Tensor) -> Tensor:
    """Each head's output through its own columns of the output projection, without its bias: [H,P,D] -> [H,P,W]."""
    weight = attention.output.weight.double().unflatten(1, (attention.heads, -1))  # [W,H,D]
    return torch.einsum("hpd,whd->hpw", outputs, weight)


def feed_forward(block: Block, x: Tensor) -> Tensor:
    """What a block's MLP adds to x [P,W], in double precision."""
    hidden = linear(block.mlp_in, normed(block.mlp_norm, x))
    return linear(block.mlp_out, F.gelu(hidden, approximate="tanh"))


def linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """The layer in double precision."""
    return F.linear(x, layer.weight.double(), None if layer.bias is None else layer.bias.double())


def normed(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    """The norm in double precision."""
    return F.layer_norm(x, x.shape[-1:], norm.weight.double(), norm.bias.double(), norm.eps)


def through_frozen(norm: nn.LayerNorm, parts: Tensor, total: Tensor) -> Tensor:
    """Parts of a stream [S,P,W] through the norm whose deviation is that of the whole stream [P,W]: linear in the part.

    With the norm's bias they sum to what it makes of the whole.
    """
    deviation = (total.var(-1, keepdim=True, unbiased=False) + norm.eps).sqrt()  # [P,1]
    return (parts - parts.mean(-1, keepdim=True)) / deviation * norm.weight.double()
