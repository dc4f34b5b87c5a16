"""The weights of a decoder's attention for circuits: what each head reads of the residual stream and what it writes,
with the norms' gains and centring folded in (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"),
and the vectors of the tokens that it reads. Heads of the first layer read a token's embedding, those of later layers
the embedding plus the first layer's MLP output, as most models use both together (Wang et al. 2022, section 3.1;
McDougall et al. 2023, "effective embedding").
Sizes: H heads, Hkv key-value heads, D head width, W width, V ids that are compared, P positions, N vectors."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from i18n import N_, msg
from model.base import Model
from model.decoder import DecoderModel
from model.errors import NotSupported
from model.network_state import weights_in

GPT2, LLAMA = ("gpt2",), ("llama", "mistral", "mixtral", "qwen2")  # model types of transformers
ROWS = 4096  # rows of a vocabulary in one product
WORK, MIN_IDS = 3 * 10**10, 4096  # at most V·W², all of GPT-2 small's vocabulary; but at least this many ids
REFUSED = N_(
    "{model}: circuits are computed from the weights of GPT-2 and of decoders built like Llama (Llama, Mistral, "
    "Mixtral, Qwen2) with their language-model heads; choose one of these instead of this {architecture}"
)
PACKED = N_(
    "{model}: circuits need weights that are plain numbers, and these are packed ({kind}): choose its unquantized "
    "weights"
)
ADAPTED = N_(
    "circuits need plain weights, and {kind} also computes with others: merge an adapter first, as merge_and_unload() "
    "does"
)


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """The projections of a layer's heads, of a stream divided by its norm's deviation: q [H,D,W] with q_bias [H,D]; k
    [Hkv,D,W] with k_bias [Hkv,D]; v [Hkv,D,W]; and what writes their outputs: o [H,W,D]. scale: of the scores. All
    float32. reach: how many tokens a query sees, itself among them; None: all before it."""

    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    q_bias: Tensor
    k_bias: Tensor
    scale: float
    reach: int | None = None

    def shared(self, head: int) -> int:
        """Return the key-value head that a head uses."""
        return head * len(self.k) // len(self.q)

    def of_heads(self, some: Tensor) -> Tensor:
        """Repeat for the heads that share it: [Hkv,..] -> [H,..]."""
        return some.repeat_interleave(len(self.q) // len(some), 0)


@dataclass(frozen=True, eq=False)
class Moments:
    """The moments of tokens x, divided by their deviations, and of their unembeddings u, minus the mean, after the
    final norm: the mean of x [W], and over all V the sums of x·x, minus the mean, x·u and u·u, [W,W] each."""

    mean: Tensor
    keys: Tensor
    copied: Tensor
    logits: Tensor


TableAndDeviation = tuple[Tensor, Tensor]  # tokens' vectors [V,W], the deviation [V] that a norm divides by
# cached for heads of the first layer, and of later ones, by the network's weights: seconds of work, freed with the
# network
_READ = WeakKeyDictionary[nn.Module, tuple[Hashable, dict[bool, tuple[TableAndDeviation, Moments]]]]()
Projection = tuple[Tensor, Tensor | None]  # a weight [out,W] and a bias
Projections = tuple[list[Projection], Tensor, Any, float, int | None]


@dataclass(frozen=True, eq=False)
class CircuitWeights:
    """The parts of a decoder from which its weights are read. projections: of a layer, its q, k and v, the output
    projection [W,H·D], the norm before it, the factor of q·k, and its reach. first_mlp: what the first layer's MLP adds
    to a stream [N,W]. embedding, unembedding, positions: modules; positions None if they are not learned. turned:
    applies rotary positions 0 to N-1 to vectors [N,D]. norm: the final one."""

    model: Model
    projections: Callable[[int], Projections]
    first_mlp: Callable[[Tensor], Tensor]
    embedding: Any
    unembedding: Any
    norm: Any
    positions: Any = None
    turned: Callable[[Tensor], Tensor] | None = None

    def layer(self, number: int) -> LayerWeights:
        reads, written, norm, scale, reach = self.projections(number)
        heads, shared = self.model.num_heads, len(set(self.model.key_value_heads))
        (q, q_bias), (k, k_bias), (v, _) = (
            _folded(*pair, norm, count) for pair, count in zip(reads, (heads, shared, shared), strict=True)
        )
        o = _plain(written).float().unflatten(1, (heads, -1)).transpose(0, 1)
        return LayerWeights(q, k, v, o, q_bias, k_bias, scale, reach)

    @property
    def count(self) -> int:
        """The number of ids compared, V: the first ones of a vocabulary that is large for the model's width."""
        width = int(self.embedding.weight.shape[1])
        return min(self.model.vocabulary, max(WORK // width**2, MIN_IDS))

    def read_by(self, weight: Tensor, layer: int) -> Tensor:
        """Project every token with a weight [D,W] of a layer: [V,D]."""
        return self._read(self._cached(layer)[0], weight)

    def moments(self, layer: int) -> Moments:
        return self._cached(layer)[1]

    def at_positions(self, weight: Tensor, layer: int, count: int) -> Tensor:
        """Project the first learned positions as `read_by`, each beside a token of the usual size: [count,D]."""
        some = _plain(self.positions.weight)[:count]
        (_, deviation), _ = self._cached(layer)
        usual = deviation.square().mean() - self._position_variance
        return self._read((some, (self._variance(some) + usual).sqrt()), weight)

    def to_logits(self, weight: Tensor) -> Tensor:
        """Return what each column of a weight [W,D] that writes to the stream adds to each token's logit, before the
        final norm divides it, minus the mean over the tokens, which changes no probability: [V,D]."""
        weight = self._behind_norm(weight)
        made = torch.cat([some.float() @ weight for some in self._unembedded()])
        return made - made.mean(0)

    @staticmethod
    def _read(tokens: TableAndDeviation, weight: Tensor) -> Tensor:
        table, deviation = tokens
        return torch.cat([some.float() @ weight.T for some in table.split(ROWS)]) / deviation[:, None]

    def _cached(self, layer: int) -> tuple[TableAndDeviation, Moments]:
        cache, later = self._cache, layer > 0
        if later not in cache:
            weight = _weight(self.embedding).detach()[: self.count]
            table = weight.cpu()
            if later:
                position = 0.0 if self.positions is None else self.positions.weight.detach().mean(0)
                table = torch.empty_like(table)
                for some, made in zip(weight.split(ROWS), table.split(ROWS), strict=True):
                    made.copy_(some + self.first_mlp(some + position))
            epsilon = float(self.norm.eps if isinstance(self.norm, nn.LayerNorm) else self.norm.variance_epsilon)
            # the deviation of the token plus a position of the usual size
            deviation = (self._variance(table) + self._position_variance + epsilon).sqrt()
            cache[later] = (table, deviation), self._moments(table, deviation)
        return cache[later]

    @cached_property
    def _cache(self) -> dict[bool, tuple[TableAndDeviation, Moments]]:
        """Results computed from the current weights: a network may be trained in place."""
        network = self.model.network
        now = weights_in(network)
        if _READ.get(network, ((), {}))[0] != now:
            _READ[network] = now, {}
        return _READ[network][1]

    def _moments(self, table: Tensor, deviation: Tensor) -> Moments:
        count, sums = len(table), [torch.zeros(())] * 5
        for some, size, unembedded in zip(table.split(ROWS), deviation.split(ROWS), self._unembedded(), strict=True):
            x, u = some.float() / size[:, None], unembedded.float()
            parts = x.sum(0), u.sum(0), x.T @ x, x.T @ u, u.T @ u
            sums = [total + part for total, part in zip(sums, parts, strict=True)]
        x, u, keys, copied, logits = sums
        behind = self._behind_norm(torch.eye(len(x)))
        copied, logits = copied - x.outer(u) / count, logits - u.outer(u) / count
        return Moments(x / count, keys - x.outer(x) / count, copied @ behind, behind.T @ logits @ behind)

    def _behind_norm(self, weight: Tensor) -> Tensor:
        """Apply the final norm, without its deviation, to a weight [W,D] that writes to the stream."""
        weight = weight - weight.mean(0) if isinstance(self.norm, nn.LayerNorm) else weight
        behind: Tensor = weight * _plain(self.norm.weight).float()[:, None]
        return behind

    def _unembedded(self) -> tuple[Tensor, ...]:
        """Return the unembedding [V,W] in blocks of rows."""
        return tuple(_plain(_weight(self.unembedding))[: self.count].split(ROWS))

    @property
    def _position_variance(self) -> float:
        """The variance of a position of the usual size."""
        return 0.0 if self.positions is None else float(self._variance(_plain(self.positions.weight)).mean())

    def _variance(self, x: Tensor) -> Tensor:
        """Return the variance or mean square whose root norms divide by: [N,W] -> [N]."""
        parts, centred = (some.float() for some in x.split(ROWS)), isinstance(self.norm, nn.LayerNorm)
        return torch.cat([part.var(-1, unbiased=False) if centred else part.square().mean(-1) for part in parts])


def _plain(parameter: Tensor) -> Tensor:
    """Copy to the CPU, wherever the network is: layers can be on several devices, and not every device has float64."""
    return parameter.detach().cpu()


def _folded(weight: Tensor, bias: Tensor | None, norm: Any, heads: int) -> tuple[Tensor, Tensor]:
    """Fold the norm before a projection [heads·D,W] into it: its weight [heads,D,W] and bias [heads,D]."""
    weight = _plain(weight).float()
    added = weight.new_zeros(len(weight)) if bias is None else _plain(bias).float()
    if getattr(norm, "bias", None) is not None:
        added = added + weight @ _plain(norm.bias).float()
    weight = weight * _plain(norm.weight).float()
    weight = weight - weight.mean(-1, keepdim=True) if isinstance(norm, nn.LayerNorm) else weight
    return weight.unflatten(0, (heads, -1)), added.unflatten(0, (heads, -1))


def weights_of(model: Model) -> CircuitWeights:
    """Return a model's weights. Raises NotSupported unless it is built like GPT-2 or Llama and not quantized."""
    network: Any = model.network
    kind = getattr(getattr(network, "config", None), "model_type", "")
    if isinstance(model, DecoderModel) and model.vocabulary and not network.more:
        return _of_our_decoder(model, network)
    if model.kind != "decoder" or not model.predicts or kind not in (*GPT2, *LLAMA):
        raise NotSupported(msg(REFUSED, model=model.name, architecture=model.describe().architecture))
    packed = [weight for weight in network.parameters() if not weight.is_floating_point()]
    if packed:
        raise NotSupported(msg(PACKED, model=model.name, kind=str(packed[0].dtype)))
    return _of_gpt2(model, network, network.transformer) if kind in GPT2 else _of_llama(model, network, network.model)


def tokens_compared(model: Model) -> int:
    """Return CircuitWeights.count. Raises as weights_of."""
    return weights_of(model).count


def _of_our_decoder(model: Model, network: Any) -> CircuitWeights:
    def projections(layer: int) -> Projections:
        own, norm = network.blocks[layer].attention, network.blocks[layer].attention_norm
        scale = (network.width // own.heads) ** -0.5
        return _pairs(own.query, own.key, own.value), _weight(own.output), norm, scale, None

    modules = network.token_embedding, network.unembedding, network.norm, network.position_embedding
    return CircuitWeights(model, projections, lambda x: network.blocks[0].feed_forward(x) - x, *modules)


def _of_gpt2(model: Model, network: Any, stack: Any) -> CircuitWeights:
    def projections(layer: int) -> Projections:
        own = stack.h[layer].attn
        weights, biases = _weight(own.c_attn).T.tensor_split(3), own.c_attn.bias.tensor_split(3)
        return list(zip(weights, biases, strict=True)), _weight(own.c_proj).T, stack.h[layer].ln_1, own.scaling, None

    modules = stack.wte, network.get_output_embeddings(), stack.ln_f, stack.wpe
    return CircuitWeights(model, projections, lambda x: stack.h[0].mlp(stack.h[0].ln_2(x)), *modules)


def _of_llama(model: Model, network: Any, stack: Any) -> CircuitWeights:
    config, first = network.config, stack.layers[0]
    longer = stack.rotary_emb.attention_scaling  # YaRN turns q and k, and makes them longer

    def projections(layer: int) -> Projections:
        own, norm = stack.layers[layer].self_attn, stack.layers[layer].input_layernorm
        reach = getattr(own, "sliding_window", None if config.model_type == "llama" else config.sliding_window)
        return _pairs(own.q_proj, own.k_proj, own.v_proj), _weight(own.o_proj), norm, own.scaling * longer**2, reach

    def first_mlp(x: Tensor) -> Tensor:
        added = first.mlp(first.post_attention_layernorm(x[None]))
        found: Tensor = added[0] if isinstance(added, tuple) else added  # mixtures of experts return router logits too
        return found[0]

    def turned(x: Tensor) -> Tensor:
        here = x[None].to(network.device)
        cos, sin = (some.cpu() for some in stack.rotary_emb(here, torch.arange(len(x), device=here.device)[None]))
        one, other = x.tensor_split(2, -1)
        found: Tensor = (x * cos[0] + torch.cat([-other, one], -1) * sin[0]) / longer
        return found

    modules = stack.embed_tokens, network.get_output_embeddings(), stack.norm
    return CircuitWeights(model, projections, first_mlp, *modules, turned=turned)


def _pairs(*projections: Any) -> list[Projection]:
    return [(_weight(one), one.bias) for one in projections]


def _weight(module: Any) -> Tensor:
    """Return a module's weight. Raises NotSupported if it computes with others too, as with a LoRA adapter."""
    if not isinstance(module, nn.Linear | nn.Embedding) and type(module).__name__ != "Conv1D":  # transformers' class
        kind = f"{type(module).__module__}.{type(module).__name__}"  # an adapter's Linear has this name too
        raise NotSupported(msg(ADAPTED, kind=kind))
    weight: Tensor = module.weight
    return weight
