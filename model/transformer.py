"""Our own Transformers: a decoder-only one, compatible with GPT-2 (Radford et al. 2019), with learned positions and
tied or untied output; an encoder, and a decoder with cross-attention to it (Vaswani et al. 2017). Normalization before
each sub-layer, GELU in its tanh form; blocks.py has their layers.

Sizes: B rows, S source tokens, T tokens (of a target), W width, H heads, D head width, V vocabulary, L layers.
Masks are boolean, True = may attend: [B,Q,K], or with the heads' axis [B,1,Q,K] or [B,H,Q,K].
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from model import masks
from model.attention import attention_stages
from model.blocks import PAD, CrossBlock, Edit, Heads, KeysValues, LayerMasks, Positions, Stack, check_ids


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Sizes of a decoder. context: the maximum number of positions; mlp_width: 4·width unless given."""

    vocabulary: int
    context: int
    layers: int
    heads: int
    width: int
    mlp_width: int | None = None
    epsilon: float = 1e-5
    tied: bool = True


def config_of(recipe: Any, **more: int) -> TransformerConfig:
    """Return a config with the sizes among a recipe's fields, and more fields."""
    names = [field.name for field in fields(TransformerConfig) if hasattr(recipe, field.name)]
    return TransformerConfig(**{name: getattr(recipe, name) for name in names} | more)


Network = TypeVar("Network", bound="Transformer")


class Transformer(Stack):
    """A decoder-only Transformer: maps ids to the last layer's states and every layer's (q, k, v). more: names of the
    parameters that a subclass has beyond GPT-2's."""

    more: tuple[str, ...] = ()

    def __init__(self, config: TransformerConfig) -> None:
        sizes = asdict(config)
        tied = sizes.pop("tied")
        super().__init__(**sizes, positions="learned")
        self.config = config
        self.unembedding = nn.Linear(config.width, config.vocabulary, bias=False)
        if tied:
            self.unembedding.weight = self.token_embedding.weight

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        allowed: Tensor | LayerMasks | None,
        past: Sequence[KeysValues] | None = None,
        edits: Sequence[Edit] | None = None,
    ) -> tuple[Tensor, list[Heads]]:
        """Run as `states`, but allowed may also be one mask, or None, for all layers."""
        masks = [allowed] * len(self.blocks) if allowed is None or isinstance(allowed, Tensor) else allowed
        return self.states(ids, positions, masks, past, edits)

    def logits(self, states: Tensor) -> Tensor:
        """Map states [.., W] to logits [.., V]."""
        logits: Tensor = self.unembedding(states)
        return logits


def sequence_mask(seq: Tensor) -> Tensor:
    """Return the causal mask, bool [B,T,T], for a sequence seq: ids [B,T], or states [B,T,..]."""
    if seq.ndim < 2:
        raise ValueError(f"expected a sequence [B,T] or [B,T,..], got {list(seq.shape)}")
    rows, length = seq.shape[:2]
    return masks.causal(length, length, seq.device).expand(rows, length, length)


def padding_mask(seq_k: Tensor, seq_q: Tensor, *, pad: int = PAD) -> Tensor:
    """Return the mask that blocks keys with the id `pad`: seq_k ids [B,K], seq_q [B,Q] or [B,Q,..] -> bool [B,Q,K]."""
    if seq_k.ndim != 2 or seq_k.is_floating_point() or seq_k.is_complex() or seq_k.dtype == torch.bool:
        raise ValueError(f"expected the keys' ids [B,K], whole numbers, got {list(seq_k.shape)} of {seq_k.dtype}")
    if seq_q.ndim < 2 or len(seq_q) != len(seq_k):
        raise ValueError(f"expected queries of {len(seq_k)} rows, [B,Q] or [B,Q,..], got {list(seq_q.shape)}")
    return (seq_k != pad)[:, None, :].expand(-1, seq_q.shape[1], -1)


class Encoder(Stack):
    """An encoder, which reads a whole source: called (inputs) -> (output, self_attentions)."""

    def forward(self, inputs: Tensor, self_mask: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        """Encode ids [B,S] -> output [B,S,W], and each layer's attention [B,H,S,S]. self_mask: bool [B,S,S] or with the
        heads' axis; None: padding keys are blocked. Raises ValueError for shapes and ids that do not fit."""
        check_ids(inputs, self.vocabulary, self.context)
        if self_mask is None:
            self_mask = padding_mask(inputs, inputs, pad=self.pad)
        allowed = _over_heads(self_mask, len(inputs), inputs.shape[1], inputs.shape[1], "self_mask")
        output, qkvs = self.states(inputs, self.positions(inputs), [allowed] * len(self.blocks))
        return output, [_weights(qkv, allowed) for qkv in qkvs]


class Decoder(Stack):
    """A decoder of a target with cross-attention to a source:
    called (inputs, enc_output, context_mask) -> (output, self_attentions, context_attentions)."""

    block = CrossBlock

    def forward(
        self, inputs: Tensor, enc_output: Tensor, context_mask: Tensor | None = None, self_mask: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Decode inputs ids [B,T], enc_output [B,S,W] -> output [B,T,W], and for each layer the target's self-attention
        [B,H,T,T] and its cross-attention [B,H,T,S].

        context_mask: bool [B,T,S] or with the heads' axis: padding_mask(source, inputs). None: all of the source is
        visible, its padding too. self_mask: bool [B,T,T] or with the heads' axis; None: padding_mask(inputs, inputs) &
        sequence_mask(inputs). Raises ValueError, saying what was expected, for shapes, ids and masks that do not fit.
        """
        check_ids(inputs, self.vocabulary, self.context)
        rows, length = inputs.shape
        if enc_output.ndim != 3 or len(enc_output) != rows or enc_output.shape[-1] != self.width:
            raise ValueError(
                f"expected enc_output [B,S,W] with {rows} rows and width {self.width}, got {list(enc_output.shape)}"
            )
        if enc_output.shape[1] == 0:
            raise ValueError("expected enc_output with at least one source token, got none")
        if self_mask is None:
            self_mask = padding_mask(inputs, inputs, pad=self.pad) & sequence_mask(inputs)
        allowed = _over_heads(self_mask, rows, length, length, "self_mask")
        seen = None
        if context_mask is not None:
            seen = _over_heads(context_mask, rows, length, enc_output.shape[1], "context_mask")
        every = [allowed] * len(self.blocks), [seen] * len(self.blocks)
        output, qkvs, context_qkvs = self.states(inputs, self.positions(inputs), enc_output, *every)
        self_attentions = [_weights(qkv, allowed) for qkv in qkvs]
        return output, self_attentions, [_weights(qkv, seen) for qkv in context_qkvs]

    def states(  # type: ignore[override]  # differs from the base: it takes a source
        self, inputs: Tensor, positions: Tensor, enc_output: Tensor, allowed: LayerMasks, context_allowed: LayerMasks
    ) -> tuple[Tensor, list[Heads], list[Heads]]:
        """Run all layers on ids and positions [B,T], enc_output [B,S,W]; for each layer masks that broadcast to
        [B,H,T,T] and [B,H,T,S]. Returns the output [B,T,W] and each layer's (q, k, v) of self- and of
        cross-attention."""
        x, qkvs, context_qkvs = self.embed(inputs, positions), [], []
        for block, mask, context_mask in zip(self.blocks, allowed, context_allowed, strict=True):
            x, qkv, context_qkv = block(x, enc_output, mask, context_mask)
            qkvs.append(qkv)
            context_qkvs.append(context_qkv)
        return self.norm(x), qkvs, context_qkvs


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig:
    """Sizes of both stacks, which share a vocabulary of characters or tokens. context: the maximum tokens of each."""

    vocabulary: int
    context: int
    encoder_layers: int
    decoder_layers: int
    heads: int
    width: int
    mlp_width: int | None = None
    positions: Positions = "sinusoidal"
    pad: int = PAD
    epsilon: float = 1e-5


class EncoderDecoder(nn.Module):
    """An encoder, a decoder, and an untied projection from the decoder's output to logits."""

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.config = config
        sizes = asdict(config)
        encoder_layers, decoder_layers = sizes.pop("encoder_layers"), sizes.pop("decoder_layers")
        self.encoder = Encoder(layers=encoder_layers, **sizes)
        self.decoder = Decoder(layers=decoder_layers, **sizes)
        self.unembedding = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Map source ids [B,S] and target ids [B,T], with a start token, to logits [B,T,V], under the usual masks."""
        pad, encoder, decoder = self.config.pad, self.encoder, self.decoder
        seen = padding_mask(source, source[:, :1], pad=pad)[:, None]  # [B,1,1,S]
        own = (padding_mask(target, target, pad=pad) & sequence_mask(target))[:, None]  # [B,1,T,T]
        memory, _ = encoder.states(source, encoder.positions(source), [seen] * len(encoder.blocks))
        layers = len(decoder.blocks)
        states, _, _ = decoder.states(target, decoder.positions(target), memory, [own] * layers, [seen] * layers)
        return self.logits(states)

    def logits(self, states: Tensor) -> Tensor:
        """Map states [.., W] to logits [.., V]."""
        logits: Tensor = self.unembedding(states)
        return logits


def _over_heads(mask: Tensor, rows: int, queries: int, keys: int, name: str) -> Tensor:
    """Add a heads' axis: [B,Q,K] -> [B,1,Q,K]; [B,H or 1,Q,K] is unchanged. Raises ValueError for another mask."""
    fits = mask.ndim in (3, 4) and mask.shape[0] == rows and mask.shape[-2:] == (queries, keys)
    if mask.dtype != torch.bool or not fits:
        raise ValueError(
            f"expected {name} [B,Q,K] or [B,H,Q,K] with B {rows}, Q {queries} and K {keys}, boolean "
            f"(True = may attend), got {list(mask.shape)} of {mask.dtype}"
        )
    return mask[:, None] if mask.ndim == 3 else mask


def _weights(qkv: Heads, allowed: Tensor | None) -> Tensor:
    """Return the attention weights [B,H,Q,K]; blocked cells are exactly 0."""
    return attention_stages(*qkv, allowed).weights
