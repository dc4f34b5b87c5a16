"""The weights of a decoder's attention as circuits are made of them: what each head reads of the residual stream and
what it writes, with the norms' gains and centring folded in (Elhage et al. 2021, "A Mathematical Framework for
Transformer Circuits"), and the tokens that it reads. Heads of the first layer read a token's embedding, those of later
layers the embedding with what the first layer's MLP makes of it, as most models use both together (Wang et al. 2022,
section 3.1; McDougall et al. 2023, "effective embedding").
Sizes: H heads, Hkv key-value heads, D head width, W width, V vocabulary, P positions, N vectors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from i18n import N_, msg
from model.base import Model
from model.decoder import DecoderModel
from model.errors import NotSupported

GPT2, LLAMA = ("gpt2",), ("llama", "mistral", "mixtral", "qwen2")  # model types of transformers
ROWS = 4096  # of a vocabulary in one product
MOST_KEPT = 256 * 2**20  # bytes, of one model's tokens
_READ = WeakKeyDictionary[nn.Module, dict[bool, tuple[Tensor, Tensor]]]()
# what the heads of the first layer read, and of later ones: seconds of work, forgotten with the network
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
    """layer: a layer's weights, made when they are asked for. first_mlp: what the first layer's MLP adds to a stream
    [N,W]. table, unembedding [V,W]; positions [P,W], None where they are not learned; turned: of rotary positions,
    vectors [N,D] at positions 0 to N-1. norm: the last one."""

    network: nn.Module
    layers: int
    heads: int
    layer: Callable[[int], LayerWeights]
    first_mlp: Callable[[Tensor], Tensor]
    table: Tensor
    unembedding: Tensor
    norm: Any
    positions: Tensor | None = None
    turned: Callable[[Tensor], Tensor] | None = None

    def tokens(self, weight: Tensor, layer: int) -> Tensor:
        """What a weight [D,W] of a layer makes of every token, its norm's deviation that of the token with a position
        of the usual size: [V,D]."""
        table, variance = self._read_in(layer)
        beside = 0.0 if self.positions is None else float(self._variance(self.positions).mean())
        made = torch.cat([some.float() @ weight.T for some in table.split(ROWS)])
        return made / (variance + beside + _epsilon(self.norm)).sqrt()[:, None]

    def at_positions(self, weight: Tensor, layer: int, count: int) -> Tensor:
        """The same of the first learned positions, beside a token of the usual size: [count,D]."""
        assert self.positions is not None
        some = self.positions[:count]
        variance = self._variance(some) + self._read_in(layer)[1].mean()
        return (some.float() @ weight.T) / (variance + _epsilon(self.norm)).sqrt()[:, None]

    def to_logits(self, weight: Tensor) -> Tensor:
        """What each column of a weight [W,D] that writes into the stream adds to each token's logit, before the last
        norm divides it, less the mean over the vocabulary, which changes no probability: [V,D]."""
        weight = weight - weight.mean(0) if isinstance(self.norm, nn.LayerNorm) else weight
        weight = weight * self.norm.weight.float()[:, None]
        made = torch.cat([some.float() @ weight for some in self.unembedding.split(ROWS)])
        return made - made.mean(0)

    def _read_in(self, layer: int) -> tuple[Tensor, Tensor]:
        """What the heads of a layer read of each token, [V,W], and its variance, [V]."""
        kept, later = _READ.setdefault(self.network, {}), layer > 0
        if later in kept:
            return kept[later]
        place = 0.0 if self.positions is None else self.positions.mean(0)
        parts = [some + self.first_mlp(some + place) if later else some for some in self.table.split(ROWS)]
        table = torch.cat(parts) if later else self.table
        found = table, self._variance(table)
        if not later or table.nbytes <= MOST_KEPT:
            kept[later] = found
        return found

    def _variance(self, x: Tensor) -> Tensor:
        """[N,W] -> [N]: what norms divide by the root of."""
        parts, centred = (some.float() for some in x.split(ROWS)), isinstance(self.norm, nn.LayerNorm)
        return torch.cat([part.var(-1, unbiased=False) if centred else part.square().mean(-1) for part in parts])


@torch.no_grad()
def weights_of(model: Model) -> CircuitWeights:
    """Raises NotSupported for other architectures than GPT-2's and Llama's, and for quantized weights."""
    network: Any = model.network
    kind = getattr(getattr(network, "config", None), "model_type", "")
    if isinstance(model, DecoderModel) and model.vocabulary and not network.more:
        return _of_our_decoder(model, network)
    if model.kind != "decoder" or not model.predicts or kind not in (*GPT2, *LLAMA):
        raise NotSupported(msg(REFUSED, model=model.name, architecture=model.describe().architecture))
    packed = [weight for weight in network.parameters() if not weight.is_floating_point()]
    if packed:
        raise NotSupported(msg(PACKED, model=model.name, kind=str(packed[0].dtype)))
    return _of_gpt2(model, network) if kind in GPT2 else _of_llama(model, network)


def _of_our_decoder(model: Model, network: Any) -> CircuitWeights:
    first, heads, some = network.blocks[0], model.num_heads, slice(model.vocabulary)  # ids that texts have

    def layer(number: int) -> LayerWeights:
        block = network.blocks[number]
        reads = [block.attention.query, block.attention.key, block.attention.value]
        pairs = [(part.weight, part.bias) for part in reads]
        return _layer(pairs, block.attention.output.weight, heads, heads, block.attention_norm)

    return CircuitWeights(
        network,
        model.num_layers,
        heads,
        layer,
        lambda x: first.feed_forward(x) - x,
        network.token_embedding.weight.detach()[some],
        network.unembedding.weight.detach()[some],
        network.norm,
        positions=network.position_embedding.weight.detach(),
    )


def _of_gpt2(model: Model, network: Any) -> CircuitWeights:
    stack, head, heads = network.transformer, network.get_output_embeddings(), model.num_heads
    first, some = stack.h[0], slice(model.vocabulary)

    def layer(number: int) -> LayerWeights:
        block = stack.h[number]
        weights, biases = (part.chunk(3) for part in (block.attn.c_attn.weight.T, block.attn.c_attn.bias))
        return _layer(list(zip(weights, biases, strict=True)), block.attn.c_proj.weight.T, heads, heads, block.ln_1)

    return CircuitWeights(
        network,
        model.num_layers,
        heads,
        layer,
        lambda x: first.mlp(first.ln_2(x)),
        stack.wte.weight.detach()[some],
        head.weight.detach()[some],
        stack.ln_f,
        positions=stack.wpe.weight.detach(),
    )


def _of_llama(model: Model, network: Any) -> CircuitWeights:
    stack, head, shared = network.model, network.get_output_embeddings(), len(set(model.key_value_heads))
    some = slice(model.vocabulary)

    def layer(number: int) -> LayerWeights:
        block = stack.layers[number]
        attention = block.self_attn
        pairs = [(part.weight, part.bias) for part in (attention.q_proj, attention.k_proj, attention.v_proj)]
        return _layer(pairs, attention.o_proj.weight, model.num_heads, shared, block.input_layernorm)

    def first(x: Tensor) -> Tensor:
        added = stack.layers[0].mlp(stack.layers[0].post_attention_layernorm(x[None]))
        found: Tensor = added[0] if isinstance(added, tuple) else added  # a mixture of experts gives router logits too
        return found[0]

    def turned(x: Tensor) -> Tensor:
        cos, sin = stack.rotary_emb(x[None], torch.arange(len(x), device=x.device)[None])
        one, other = x.chunk(2, -1)
        found: Tensor = x * cos[0] + torch.cat([-other, one], -1) * sin[0]
        return found

    return CircuitWeights(
        network,
        model.num_layers,
        model.num_heads,
        layer,
        first,
        stack.embed_tokens.weight.detach()[some],
        head.weight.detach()[some],
        stack.norm,
        turned=turned,
    )


def _epsilon(norm: Any) -> float:
    return float(norm.eps if isinstance(norm, nn.LayerNorm) else norm.variance_epsilon)


def _layer(
    reads: list[tuple[Tensor, Tensor | None]], written: Tensor, heads: int, shared: int, norm: Any
) -> LayerWeights:
    """reads: the weights of q, k and v [heads·D,W] with their biases; written [W,H·D]."""
    found, biases, beside = [], [], getattr(norm, "bias", None)
    for count, (weight, bias) in zip((heads, shared, shared), reads, strict=True):
        weight = weight.detach().float()
        added = weight.new_zeros(len(weight)) if bias is None else bias.detach().float()
        biases.append((added if beside is None else added + weight @ beside.detach().float()).unflatten(0, (count, -1)))
        weight = weight * norm.weight.detach().float()
        weight = weight - weight.mean(-1, keepdim=True) if isinstance(norm, nn.LayerNorm) else weight
        found.append(weight.unflatten(0, (count, -1)))
    o = written.detach().float().unflatten(1, (heads, -1)).transpose(0, 1)
    q, k, v = found
    return LayerWeights(q, k, v, o, biases[0], biases[1], q.shape[1] ** -0.5)
