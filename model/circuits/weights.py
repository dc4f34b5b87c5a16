"""The weights of a decoder's attention as circuits are made of them: what each head reads of the residual stream and
what it writes, with the norms' gains and centring folded in (Elhage et al. 2021, "A Mathematical Framework for
Transformer Circuits").
Sizes: H heads, Hkv key-value heads, D head width, W width, V vocabulary, P positions, N vectors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from i18n import N_, msg
from model.base import Model
from model.decoder import DecoderModel
from model.errors import NotSupported

GPT2, LLAMA = ("gpt2",), ("llama", "mistral", "mixtral", "qwen2")  # model types of transformers
ROWS = 16_384  # of a vocabulary in one product
REFUSED = N_(
    "{model}: circuits are computed from the weights of GPT-2 and of decoders built like Llama (Llama, Mistral, "
    "Mixtral, Qwen2), and this is {architecture}"
)
PACKED = N_("{model}: circuits need weights that are plain numbers, and these are packed ({kind})")


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """What a layer's heads make of a stream divided by its norm's deviation: q [H,D,W] with q_bias [H,D]; k [Hkv,D,W]
    with k_bias [Hkv,D]; v [Hkv,D,W]; and what they write: o [H,W,D]. scale: of the scores. All float32."""

    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    q_bias: Tensor
    k_bias: Tensor
    scale: float

    def shared(self, head: int) -> int:
        """The key-value head that a head reads."""
        return head * len(self.k) // len(self.q)

    def of_heads(self, some: Tensor) -> Tensor:
        """[Hkv,..] -> [H,..], each head's own."""
        return some.repeat_interleave(len(self.q) // len(some), 0)


@dataclass(frozen=True, eq=False)
class CircuitWeights:
    """layer: a layer's weights, made when they are asked for. embedding and unembedding [V,W]; positions [P,W], None
    where they are not learned; turned: of rotary positions, vectors [N,D] at positions 0 to N-1. gain [W]: of the last
    norm; centred: whether norms take the mean away."""

    layers: int
    heads: int
    layer: Callable[[int], LayerWeights]
    embedding: Tensor
    unembedding: Tensor
    gain: Tensor
    centred: bool
    epsilon: float
    positions: Tensor | None = None
    turned: Callable[[Tensor], Tensor] | None = None

    def tokens(self, weight: Tensor) -> Tensor:
        """What a weight [D,W] makes of every token's embedding, its norm's deviation that of the token with a position
        of the usual size: [V,D]."""
        table = self.embedding
        beside = 0.0 if self.positions is None else float(self._variance(self.positions.float()).mean())
        parts = [
            (some.float() @ weight.T) / (self._variance(some.float()) + beside + self.epsilon).sqrt()[:, None]
            for some in table.split(ROWS)
        ]
        return torch.cat(parts)

    def at_positions(self, weight: Tensor, count: int) -> Tensor:
        """The same of the first learned positions, beside a token of the usual size: [count,D]."""
        assert self.positions is not None
        sizes = [self._variance(some.float()) for some in self.embedding.split(ROWS)]
        some = self.positions[:count].float()
        deviation = (self._variance(some) + torch.cat(sizes).mean() + self.epsilon).sqrt()
        return (some @ weight.T) / deviation[:, None]

    def to_logits(self, weight: Tensor) -> Tensor:
        """What each column of a weight [W,D] that writes into the stream adds to each token's logit, before the last
        norm divides it, less the mean over the vocabulary, which changes no probability: [V,D]."""
        weight = (weight - weight.mean(0) if self.centred else weight) * self.gain[:, None]
        made = torch.cat([some.float() @ weight for some in self.unembedding.split(ROWS)])
        return made - made.mean(0)

    def _variance(self, x: Tensor) -> Tensor:
        """[N,W] -> [N]: what norms divide by the root of."""
        return x.var(-1, unbiased=False) if self.centred else x.square().mean(-1)


def weights_of(model: Model) -> CircuitWeights:
    """Raises NotSupported for other architectures than GPT-2's and Llama's, and for quantized weights."""
    network: Any = model.network
    kind = getattr(getattr(network, "config", None), "model_type", "")
    if isinstance(model, DecoderModel) and model.vocabulary and not network.more:
        return _of_our_decoder(model)
    if model.kind != "decoder" or not model.predicts or kind not in (*GPT2, *LLAMA):
        raise NotSupported(msg(REFUSED, model=model.name, architecture=model.describe().architecture))
    packed = [weight for weight in network.parameters() if not weight.is_floating_point()]
    if packed:
        raise NotSupported(msg(PACKED, model=model.name, kind=str(packed[0].dtype)))
    return _of_gpt2(model) if kind in GPT2 else _of_llama(model)


def _of_our_decoder(model: DecoderModel) -> CircuitWeights:
    network = model.network

    def layer(number: int) -> LayerWeights:
        block: Any = network.blocks[number]
        attention = block.attention
        reads = [(part.weight, part.bias) for part in (attention.query, attention.key, attention.value)]
        return _layer(reads, attention.output.weight, model.num_heads, model.num_heads, block.attention_norm, None)

    return _weights(
        model, layer, network.token_embedding.weight, network.unembedding.weight, network.norm,
        positions=network.position_embedding.weight,
    )  # fmt: skip


def _of_gpt2(model: Model) -> CircuitWeights:
    network: Any = model.network
    stack = network.transformer

    def layer(number: int) -> LayerWeights:
        block = stack.h[number]
        weights, biases = (some.chunk(3) for some in (block.attn.c_attn.weight.T, block.attn.c_attn.bias))
        reads, written = list(zip(weights, biases, strict=True)), block.attn.c_proj.weight.T
        return _layer(reads, written, model.num_heads, model.num_heads, block.ln_1, block.attn.scaling)

    head = network.get_output_embeddings().weight
    return _weights(model, layer, stack.wte.weight, head, stack.ln_f, positions=stack.wpe.weight)


def _of_llama(model: Model) -> CircuitWeights:
    network: Any = model.network
    stack, shared = network.model, len(set(model.key_value_heads))

    def layer(number: int) -> LayerWeights:
        block = stack.layers[number]
        attention = block.self_attn
        reads = [(part.weight, part.bias) for part in (attention.q_proj, attention.k_proj, attention.v_proj)]
        written = attention.o_proj.weight
        return _layer(reads, written, model.num_heads, shared, block.input_layernorm, attention.scaling)

    def turned(x: Tensor) -> Tensor:
        cos, sin = stack.rotary_emb(x[None], torch.arange(len(x), device=x.device)[None])
        first, second = x.chunk(2, -1)
        turned: Tensor = x * cos[0] + torch.cat([-second, first], -1) * sin[0]
        return turned

    head = network.get_output_embeddings().weight
    return _weights(model, layer, stack.embed_tokens.weight, head, stack.norm, turned=turned)


def _weights(
    model: Model,
    layer: Callable[[int], LayerWeights],
    embedding: Tensor,
    unembedding: Tensor,
    norm: Any,
    positions: Tensor | None = None,
    turned: Callable[[Tensor], Tensor] | None = None,
) -> CircuitWeights:
    """norm: the last one. Ids that no text has are left out."""
    return CircuitWeights(
        model.num_layers,
        model.num_heads,
        layer,
        embedding.detach()[: model.vocabulary],
        unembedding.detach()[: model.vocabulary],
        norm.weight.detach().float(),
        isinstance(norm, nn.LayerNorm),
        _epsilon(norm),
        None if positions is None else positions.detach(),
        turned,
    )


def _epsilon(norm: Any) -> float:
    return float(norm.eps if isinstance(norm, nn.LayerNorm) else norm.variance_epsilon)


def _layer(
    reads: list[tuple[Tensor, Tensor | None]], written: Tensor, heads: int, shared: int, norm: Any, scale: float | None
) -> LayerWeights:
    """reads: the weights of q, k and v [heads·D,W] with their biases; written [W,H·D]."""
    found, biases = [], []
    beside = getattr(norm, "bias", None)
    for count, (weight, bias) in zip((heads, shared, shared), reads, strict=True):
        weight = weight.detach().float()
        added = weight.new_zeros(len(weight)) if bias is None else bias.detach().float()
        added = added if beside is None else added + weight @ beside.detach().float()
        weight = weight * norm.weight.detach().float()
        weight = weight - weight.mean(-1, keepdim=True) if isinstance(norm, nn.LayerNorm) else weight
        found.append(weight.unflatten(0, (count, -1)))
        biases.append(added.unflatten(0, (count, -1)))
    o = written.detach().float().unflatten(1, (heads, -1)).transpose(0, 1)
    return LayerWeights(*found, o, *biases[:2], found[0].shape[1] ** -0.5 if scale is None else scale)
