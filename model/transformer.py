"""Our own decoder-only Transformer, compatible with GPT-2 (Radford et al. 2019): learned positions, normalisation
before each sub-layer, GELU in its tanh form, tied or untied output."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.attention import MultiHeadAttention
from model.spec import MaskSpec
from model.text import TokenBatch


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Sizes of a decoder. context is the most positions it can read; mlp_width is 4·width unless given."""

    vocabulary: int
    context: int
    layers: int
    heads: int
    width: int
    mlp_width: int | None = None
    epsilon: float = 1e-5
    tied: bool = True


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        mlp_width = config.mlp_width or 4 * config.width
        self.attention_norm = nn.LayerNorm(config.width, config.epsilon)
        self.attention = MultiHeadAttention(config.width, config.heads)
        self.mlp_norm = nn.LayerNorm(config.width, config.epsilon)
        self.mlp_in = nn.Linear(config.width, mlp_width)
        self.mlp_out = nn.Linear(mlp_width, config.width)

    def forward(self, x: Tensor, allowed: Tensor | None) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        attended, qkv = self.attention(self.attention_norm(x), allowed)
        x = x + attended  # [B,T,W]
        hidden = F.gelu(self.mlp_in(self.mlp_norm(x)), approximate="tanh")  # [B,T,4W]
        return x + self.mlp_out(hidden), qkv


class Transformer(nn.Module):
    """ids in; the last layer's states and every layer's (q, k, v) out."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = _embedding(config.vocabulary, config.width)
        self.position_embedding = _embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, config.epsilon)
        self.unembedding = nn.Linear(config.width, config.vocabulary, bias=False)
        if config.tied:
            self.unembedding.weight = self.token_embedding.weight

    def forward(
        self, ids: Tensor, positions: Tensor, allowed: Tensor | Sequence[Tensor | None] | None
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor, Tensor]]]:
        """ids and positions [B,T] or positions [T]; allowed bool, broadcastable to [B,H,T,T], or one for each layer.

        Returns the states [B,T,W] that `logits` reads, and for each layer q, k, v, each [B,H,T,D].
        Raises ValueError for more positions than the context or ids outside the vocabulary.
        """
        self._check(ids)
        x = self.token_embedding(ids) + self.position_embedding(positions)  # [B,T,W]
        masks = [allowed] * len(self.blocks) if allowed is None or isinstance(allowed, Tensor) else allowed
        qkvs = []
        for block, mask in zip(self.blocks, masks, strict=True):
            x, qkv = block(x, mask)
            qkvs.append(qkv)
        return self.norm(x), qkvs

    def logits(self, states: Tensor) -> Tensor:
        """[.., W] -> [.., V]."""
        return self.unembedding(states)

    def _check(self, ids: Tensor) -> None:
        if ids.ndim != 2 or ids.shape[1] == 0:
            raise ValueError(f"expected ids [B,T] with at least one token, got {list(ids.shape)}")
        if ids.shape[1] > self.config.context:
            raise ValueError(f"expected at most {self.config.context} tokens (the context), got {ids.shape[1]}")
        if torch.compiler.is_compiling():  # a compiled graph cannot choose by a tensor's values
            return
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= self.config.vocabulary:
            raise ValueError(f"expected ids from 0 to {self.config.vocabulary - 1}, got {low} to {high}")


def _embedding(entries: int, width: int) -> nn.Embedding:
    """Of unit variance like nn.Embedding's own, but uniform: normal numbers on the meta device import a compiler."""
    return nn.Embedding.from_pretrained(torch.empty(entries, width).uniform_(-(3**0.5), 3**0.5), freeze=False)


def positions_of(keep: Tensor) -> Tensor:
    """keep bool [B,T] -> positions [B,T]: counted over real tokens, so that left padding shifts no position."""
    return (keep.long().cumsum(-1) - 1).clamp(min=0)


def positions_under(spec: MaskSpec, batch: TokenBatch) -> Tensor:
    """The positions [B,T] that a spec asks for: of real tokens, of all cells, or anew in each document."""
    counted = positions_of(batch.keep)
    if spec.positions == "cells":
        return torch.arange(batch.ids.shape[1]).expand_as(counted)
    if spec.positions == "documents" and spec.documents:
        number = batch.documents(spec.documents)
        none = torch.full((len(counted), int(number.max()) + 1), batch.ids.shape[1])
        first = none.scatter_reduce(-1, number, counted, "amin")
        return counted - first.gather(-1, number)
    return counted
