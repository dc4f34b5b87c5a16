"""Traces: q, k, v and final states of a run; weights are recomputed on demand. A trace stores each layer's q, k, v and
the data its masks are computed from, never the L·H·Q·K weights: memory grows with T. Traces are immutable."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from model.attention import NO_TERMS, AttentionStages, ScoreTerms, attention_scores, attention_stages, attention_weights
from model.blocks import Heads
from model.errors import index
from model.masks import AllowedCache, MaskContext, MaskSpec
from model.text import TokenBatch

NEVER = -1e30  # the score of a cell that a network itself never attends to: its weight is 0
MIN_ROWS = 64  # of a block: with fewer, the keys of a long text would be copied too often
BLOCK_BYTES = 8 * 2**20  # of a block of weights while a layer is reduced; a few are in memory at once


@dataclass(frozen=True, eq=False)
class LayerRecord:
    """One attention of one run: H query heads over Hkv key-value heads. q [B,H,Q,D]; k and v [B,Hkv,K,D]; context: the
    data its masks are computed from; scale None means 1/sqrt(D)."""

    q: Tensor
    k: Tensor
    v: Tensor
    context: MaskContext
    scale: float | None = None
    terms: ScoreTerms = NO_TERMS

    def weights(self, spec: MaskSpec, row: int, queries: slice, made: AllowedCache | None = None) -> Tensor:
        """Return the weights [H, queries, K] of every head, float32. made: as in MaskContext.allowed."""
        q, allowed = self._queries(spec, row, slice(None), queries, made)
        terms, keys = self.terms_in(row, slice(None), queries), self.k.shape[-2]
        seen = keys
        if allowed is not None:  # up to the last key that any query may attend to
            some = allowed.any(0).any(0).nonzero()
            seen = int(some[-1]) + 1 if len(some) else 1
        k = self._of_heads(self.k, row, slice(None), seen)
        if seen == keys:
            return attention_weights(q, k, allowed, scale=self.scale, terms=terms)
        # under a causal mask the first queries see few keys: those that none of them sees are not computed
        if terms.bias is not None:
            terms = replace(terms, bias=terms.bias[..., :seen])
        allowed = None if allowed is None else allowed[..., :seen]
        return F.pad(attention_weights(q, k, allowed, scale=self.scale, terms=terms), (0, keys - seen))

    def batch_scores(self, queries: slice, seen: int, *, times: float) -> tuple[Tensor, Tensor | None]:
        """Return the scores [B, H, queries, seen] of every row on the first keys, before any mask, and the sinks, [H]
        or [B, H, queries, 1]; both multiplied by `times`, float32. The scores may be modified in place."""
        terms = self.terms_in(slice(None), slice(None), queries)
        scale = self.factor * times  # applied to q, which is small
        capped = ScoreTerms(
            None if terms.softcap is None else terms.softcap * times,
            None if terms.bias is None else terms.bias[..., :seen].clamp(min=NEVER) * times,
        )
        q = self.q[:, :, queries].float() * scale
        k = self.k[:, :, :seen].float().contiguous()  # otherwise the product would slowly copy the transposed keys
        sinks = None if terms.sinks is None else terms.sinks * times
        return attention_scores(q, k, scale=1.0, terms=capped), sinks

    @property
    def factor(self) -> float:
        """The factor that q·k is multiplied by."""
        return self.q.shape[-1] ** -0.5 if self.scale is None else self.scale

    def key_value_head(self, head: int) -> int:
        """Return the key-value head that a query head uses."""
        return head * self.k.shape[1] // self.q.shape[1]

    def stages(self, spec: MaskSpec, row: int, heads: slice, queries: slice) -> AttentionStages:
        """Compute part of this attention step by step: [heads, queries, K], in float32."""
        return self.stages_under(self._queries(spec, row, heads, queries)[1], row, heads, queries)

    def stages_under(self, allowed: Tensor | None, row: int, heads: slice, queries: slice) -> AttentionStages:
        """Compute `stages` under a given mask, bool, broadcastable to [heads, queries, K]."""
        k, v = (self._of_heads(some, row, heads, self.k.shape[-2]) for some in (self.k, self.v))
        terms, q = self.terms_in(row, heads, queries), self.q[row, heads, queries].float()
        return attention_stages(q, k, v, allowed, scale=self.scale, terms=terms)

    def _of_heads(self, some: Tensor, row: int, heads: slice, seen: int) -> Tensor:
        """Return the k or v that these query heads use, up to a key: float32 [heads, seen, D]."""
        shared = torch.arange(self.q.shape[1])[heads] // (self.q.shape[1] // self.k.shape[1])
        return some[row, :, :seen][shared].float()

    def _queries(
        self, spec: MaskSpec, row: int, heads: slice, queries: slice, made: AllowedCache | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return q [heads, queries, D], float32, and the allowed cells, bool [1 or heads, queries, K]."""
        long, context = self.context.is_long, self.context.of(queries) if self.context.is_long else self.context
        allowed = context.allowed(spec, None if long else made)
        if allowed is not None:
            allowed = allowed.expand(self.q.shape[0], -1, context.queries, self.k.shape[2])[row]  # [1 or H,Q,K]
            allowed = allowed[heads if len(allowed) > 1 else slice(None), slice(None) if long else queries]
        return self.q[row, heads, queries].float(), allowed

    def terms_in(self, row: int | slice, heads: slice, queries: slice) -> ScoreTerms:
        """Return the terms of part of this attention, float32; a bias is [heads, queries, K]."""
        bias, sinks = self.terms.bias, self.terms.sinks
        if bias is not None:
            full = (self.q.shape[0], self.q.shape[1], self.q.shape[2], self.k.shape[2])
            bias = bias.expand(full)[row, heads, queries].float()
        if sinks is not None:
            sinks = (sinks[heads] if sinks.ndim == 1 else sinks[row, heads, queries]).float()
        return ScoreTerms(self.terms.softcap, bias, sinks)


def records_of(qkvs: list[Heads], contexts: list[MaskContext]) -> tuple[LayerRecord, ...]:
    return tuple(LayerRecord(*qkv, context) for qkv, context in zip(qkvs, contexts, strict=True))


def target_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Return −ln of each target's probability, in nats; as in F.cross_entropy, V is the logits' second dimension."""
    return F.cross_entropy(logits, targets, reduction="none") + 0.0  # −0.0, of probability 1, becomes 0.0


@dataclass(frozen=True, eq=False)
class Attention:
    """One of a run's attentions, for a model that has several: queries attend to keys."""

    layers: tuple[LayerRecord, ...]
    queries: TokenBatch
    keys: TokenBatch


@dataclass(frozen=True, eq=False)
class Trace:
    """One run of a model on a batch under `spec`, showing one of its attentions: `name`.

    states [B,T,..] are converted to logits by readout on demand; for a model that returns logits at once, readout
    passes them through. Logits and losses are about batch, whichever attention is shown.
    parts: all attentions by name; empty for a model whose only attention is self-attention on batch.
    """

    batch: TokenBatch
    spec: MaskSpec
    layers: tuple[LayerRecord, ...]
    states: Tensor
    readout: Callable[[Tensor], Tensor] = field(repr=False)
    name: str = "self"
    parts: Mapping[str, Attention] = field(default_factory=dict)

    @property
    def attentions(self) -> tuple[str, ...]:
        """The names that `select` takes: ("self",), or an encoder-decoder's ("encoder", "decoder", "cross")."""
        return tuple(self.parts) or (self.name,)

    def select(self, name: str) -> "Trace":
        """Return the same run, showing another of its attentions. Raises ValueError for one that it does not have."""
        if name not in self.attentions:
            raise ValueError(f"expected an attention out of {', '.join(self.attentions)}, got {name!r}")
        return replace(self, name=name, layers=self.parts[name].layers) if self.parts else self

    @property
    def queries(self) -> TokenBatch:
        """The tokens that attend: a heatmap's rows."""
        return self.parts[self.name].queries if self.parts else self.batch

    @property
    def keys(self) -> TokenBatch:
        """The tokens attended to: a heatmap's columns."""
        return self.parts[self.name].keys if self.parts else self.batch

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def num_heads(self) -> int:
        return self.layers[0].q.shape[1]

    @property
    def logits(self) -> Tensor:
        """The logits [B,T,V], float32, recomputed at each access: V is large."""
        with torch.inference_mode():
            return self.readout(self.states).float()

    @torch.inference_mode()
    def next_token(self, row: int = 0, query: int | None = None) -> Tensor:
        """Return the probabilities [V] of the token after position `query` (default: the row's last real one)."""
        here = self.batch.real(row).stop - 1 if query is None else query
        return self.readout(self.states[row, here]).float().softmax(-1)

    @torch.inference_mode()
    def losses(self, row: int = 0) -> Tensor:
        """Return -log p(token | what the model saw), in nats, [T]; NaN at padding, at the row's first token, at image
        tokens, which nothing predicts, and for our own captioners up to the prompt after the image."""
        here = self.batch.real(row)
        ids = self.batch.ids[row, here].to(self.states.device)
        result = torch.full((self.batch.ids.shape[1],), float("nan"))
        states = self.states[row, here][:-1]
        parts = [  # a block of positions at a time: [T,V] for all at once is more than the model itself
            target_losses(self.readout(some).float(), wanted)
            for some, wanted in zip(states.split(128), ids[1:].split(128), strict=True)
        ]
        if parts:
            result[here.start + 1 : here.stop] = torch.cat(parts).cpu()
        result[self.batch.distinct_ids(row) < 0] = float("nan")
        if self.batch.patches is not None:
            result[: int(self.batch.patches[row].any(-1).nonzero().max()) + 2] = float("nan")
        return result

    def allowed(self, layer: int, row: int = 0, masks: MaskSpec | None = None, *, head: int = 0) -> Tensor:
        """Return bool [Q,K], True = may attend; under the run's masks unless others are given. head matters only under
        a spec whose masks apply to some heads."""
        self._check(layer, head, row)
        return self.layers[layer].context.allowed_in_row(masks or self.spec, row, head)

    def blocked_by(
        self, layer: int, row: int = 0, masks: MaskSpec | None = None, *, head: int = 0
    ) -> dict[str, Tensor]:
        """Return for each mask that is on: bool [Q,K], True = this mask blocks the cell. Several may block one cell."""
        self._check(layer, head, row)
        context = self.layers[layer].context
        return {name: ~mask for name, mask in context.in_row(context.masks(masks or self.spec, head), row).items()}

    def weights(self, layer: int, head: int, row: int = 0, masks: MaskSpec | None = None) -> Tensor:
        """Return [Q,K] float32, blocked cells exactly 0, under the run's masks or (this layer alone) others."""
        return self.stages(layer, head, row, masks).weights

    def stages(self, layer: int, head: int, row: int = 0, masks: MaskSpec | None = None) -> AttentionStages:
        """Compute one head step by step: raw, scaled, masked and weights [Q,K], output [Q,D], float32."""
        return self.stages_and_masks(layer, head, row, masks)[0]

    @torch.inference_mode()
    def stages_and_masks(
        self, layer: int, head: int, row: int = 0, masks: MaskSpec | None = None, queries: slice | None = None
    ) -> tuple[AttentionStages, dict[str, Tensor]]:
        """Return `stages` and `blocked_by`, whose masks are built once. queries: [queries, K] of these alone, for a
        text too long for all of them."""
        self._check(layer, head, row)
        record, some = self.layers[layer], queries or slice(0, self.layers[layer].q.shape[2])
        context = record.context.of(some)
        blocked = {name: ~mask for name, mask in context.in_row(context.masks(masks or self.spec, head), row).items()}
        allowed = ~torch.stack(list(blocked.values())).any(0).to(record.q.device) if blocked else None
        of_one = record.stages_under(allowed, row, slice(head, head + 1), some)
        return AttentionStages(*(getattr(of_one, name)[0].cpu() for name in vars(of_one))), blocked

    @torch.inference_mode()
    def blocks(self, row: int = 0, masks: MaskSpec | None = None) -> Iterator[tuple[int, slice, Tensor]]:
        """Yield every weight of the row, a block of queries at a time: (layer, queries, weights [H, queries, K])."""
        made: AllowedCache = {}  # masks shared between layers
        for layer, record in enumerate(self.layers):
            self._check(layer, 0, row)
            queries, keys = record.q.shape[2], record.k.shape[2]
            step = max(BLOCK_BYTES // (4 * record.q.shape[1] * keys), MIN_ROWS if record.context.is_long else 1)
            for begin in range(0, queries, step):
                some = slice(begin, min(begin + step, queries))
                yield layer, some, record.weights(masks or self.spec, row, some, made)

    @torch.inference_mode()
    def overview(self, row: int = 0, size: int = 64, masks: MaskSpec | None = None) -> Tensor:
        """Return thumbnails [L,H,S,S], S = min(T, size): the largest weight of each patch of about T/S squared. For a
        rectangular attention S is limited by each side: [L,H,min(Q,size),min(K,size)]."""
        thumbnails = Thumbnails(self, size)
        for layer, some, weights in self.blocks(row, masks):
            thumbnails.add(layer, some, weights)
        return thumbnails.result

    def nbytes(self) -> int:
        """Return the memory this trace holds, in bytes: whole storages, even if a view uses little of them."""
        layers = [part.layers for part in self.parts.values()] or [self.layers]
        records = [record for some in layers for record in some]
        tensors = [tensor for record in records for tensor in (record.q, record.k, record.v, record.terms.bias)]
        kept = [tensor.untyped_storage() for tensor in (self.states, *tensors) if tensor is not None]
        return sum({storage.data_ptr(): storage.nbytes() for storage in kept}.values())

    def _check(self, layer: int, head: int, row: int) -> None:
        index("layer", layer, self.num_layers)
        index("head", head, self.num_heads)
        index("row", row, len(self.batch.ids))


class Thumbnails:
    """The largest weight of each patch of every head, collected block by block from `Trace.blocks`. sides: Q and K, if
    they are not the trace's own. result: float32 [L,H,min(Q,size),min(K,size)], complete once every block was added."""

    def __init__(self, trace: Trace, size: int, sides: tuple[int, int] | None = None) -> None:
        self._queries, keys = sides or (trace.layers[0].q.shape[2], trace.layers[0].k.shape[2])
        self._tall, self._wide = min(self._queries, size), min(keys, size)
        self.result = torch.empty(trace.num_layers, trace.num_heads, self._tall, self._wide)
        self._narrow = torch.empty(trace.num_heads, self._queries, self._wide)

    def add(self, layer: int, queries: slice, weights: Tensor) -> None:
        """Add weights [H, queries, K]; a layer's blocks must come in order."""
        if queries.start == queries.stop:
            return
        self._narrow[:, queries] = F.adaptive_max_pool1d(weights, self._wide)  # keys first: [H,Q,K] -> [H,Q,S']
        if queries.stop == self._queries:
            whole = F.adaptive_max_pool1d(self._narrow.transpose(1, 2), self._tall)  # [H,S',S]
            self.result[layer] = whole.transpose(1, 2)
