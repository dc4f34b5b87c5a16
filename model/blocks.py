"""The layers of our own Transformers, with normalization before each sub-layer and GELU in its tanh form.

Sizes: B rows, T tokens (S of a source), W width, H heads, D head width.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.attention import MultiHeadAttention
from model.spec import MaskSpec
from model.text import TokenBatch

FIRST_POSITIONS = (0, 1, 2)  # position ids that a first token may have; 2 in RoBERTa, where 1 is padding
LONGEST_WAVE = 10_000.0


def numbers_positions_by_padding(module: nn.Module) -> bool:
    """Whether a module numbers tokens by which ids are padding, as RoBERTa and M2M-100 do."""
    table = getattr(module, "position_embeddings", None)
    numbered_from_padding = isinstance(table, nn.Embedding) and table.padding_idx is not None
    return hasattr(module, "create_position_ids_from_input_ids") or numbered_from_padding


def positions_of(keep: Tensor) -> Tensor:
    """Return positions [B,T] counted over real tokens, keep bool [B,T], so that left padding shifts no position."""
    return (keep.long().cumsum(-1) - 1).clamp(min=0)


def positions_under(spec: MaskSpec, batch: TokenBatch) -> Tensor:
    """Return the positions [B,T] under a spec: the batch's own if it has any, else counted over real tokens; over all
    positions ("cells"); or from 0 in each part of the text."""
    if spec.positions == "counted" and batch.positions is not None:
        return batch.positions
    counted = positions_of(batch.keep)
    if spec.positions == "cells":
        return torch.arange(batch.ids.shape[1]).expand_as(counted)
    separator = getattr(spec, spec.positions, "")
    if separator:
        number = batch.split(separator)
        none = torch.full((len(counted), int(number.max()) + 1), batch.ids.shape[1])
        first = none.scatter_reduce(-1, number, counted, "amin")
        return counted - first.gather(-1, number)
    return counted


def sinusoids(positions: int, width: int) -> Tensor:
    """Return position encodings [positions, width]: sines in the even columns, cosines in the odd ones (Vaswani et al.
    2017, section 3.5), of wavelengths from 2π to 10,000·2π. Raises ValueError for an odd width."""
    if width % 2:
        raise ValueError(f"expected an even width for sines and cosines, got {width}")
    frequencies = LONGEST_WAVE ** -(torch.arange(0, width, 2) / width)
    angles = torch.arange(positions)[:, None] * frequencies  # [positions, width/2]
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


Heads = tuple[Tensor, Tensor, Tensor]  # q [B,H,Q,D], k and v [B,H,K,D] of one attention
KeysValues = tuple[Tensor, Tensor]  # k and v [B,H,P,D] of P earlier positions: one layer's cache
Edit = Callable[[Heads, Tensor], Tensor]  # maps the heads' outputs [B,H,Q,D] to those that are projected instead


class Block(nn.Module):
    """A layer of a decoder-only model or an encoder: x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, *, width: int, heads: int, mlp_width: int, epsilon: float) -> None:
        super().__init__()
        self.mlp_norm = nn.LayerNorm(width, epsilon)
        self.mlp_in = nn.Linear(width, mlp_width)
        self.mlp_out = nn.Linear(mlp_width, width)
        self.attention_norm = nn.LayerNorm(width, epsilon)
        self.attention = MultiHeadAttention(width, heads)

    def forward(
        self, x: Tensor, allowed: Tensor | None, past: KeysValues | None = None, edit: Edit | None = None
    ) -> tuple[Tensor, Heads]:
        """Return the layer's output [B,T,W]; q of its positions, k and v of the past's followed by its own."""
        attended, qkv = self.attention(self.attention_norm(x), allowed, past=past, edit=edit)
        return self.feed_forward(x + attended), qkv

    def feed_forward(self, x: Tensor) -> Tensor:
        """Return x + mlp(norm(x)): [B,T,W] -> [B,T,W]."""
        hidden = F.gelu(self.mlp_in(self.mlp_norm(x)), approximate="tanh")  # [B,T,4W]
        added: Tensor = self.mlp_out(hidden)
        return x + added


class CrossBlock(Block):
    """A decoder layer with cross-attention: self-attention, cross-attention, then the mlp, each with a residual."""

    def __init__(self, *, width: int, heads: int, mlp_width: int, epsilon: float) -> None:
        super().__init__(width=width, heads=heads, mlp_width=mlp_width, epsilon=epsilon)
        self.context_norm = nn.LayerNorm(width, epsilon)
        self.context_attention = MultiHeadAttention(width, heads)

    def forward(  # type: ignore[override]  # differs from the base: it takes a source
        self, x: Tensor, source: Tensor, allowed: Tensor | None, context_allowed: Tensor | None
    ) -> tuple[Tensor, Heads, Heads]:
        """Attend from x [B,T,W] to itself, then to source [B,S,W]; also return (q, k, v) of both attentions."""
        attended, qkv = self.attention(self.attention_norm(x), allowed)
        x = x + attended
        attended, context_qkv = self.context_attention(self.context_norm(x), context_allowed, source)
        return self.feed_forward(x + attended), qkv, context_qkv


PAD = 0  # the padding id, unless another is given
Positions = Literal["sinusoidal", "learned"]
LayerMasks = Sequence[Tensor | None]


class Stack(nn.Module):
    """The base of the encoder and the decoders: token embedding plus positions, layers, and a final norm."""

    block: type[Block] = Block

    def __init__(
        self,
        *,
        vocabulary: int,
        context: int,
        layers: int,
        heads: int,
        width: int,
        mlp_width: int | None = None,
        positions: Positions = "sinusoidal",
        pad: int = PAD,
        epsilon: float = 1e-5,
    ) -> None:
        """context: the maximum number of input tokens. width: a multiple of heads; an even one if positions are
        "sinusoidal". mlp_width: 4·width unless given. pad: the id of padding. epsilon: of the norms."""
        super().__init__()
        if positions not in ("sinusoidal", "learned"):
            raise ValueError(f'expected positions "sinusoidal" or "learned", got {positions!r}')
        sizes = {"vocabulary": vocabulary, "context": context, "width": width, "layers": layers}
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"expected {name} of at least 1, got {size}")
        self.vocabulary, self.context, self.width, self.pad = vocabulary, context, width, pad
        self.token_embedding = embedding(vocabulary, width)
        if positions == "learned":
            self.position_embedding = embedding(context, width)
        else:  # fixed values: no parameters, and not in checkpoints
            self.position_table: Tensor
            self.register_buffer("position_table", sinusoids(context, width), persistent=False)
        self.learned = positions == "learned"
        self.norm = nn.LayerNorm(width, epsilon)
        self.blocks = nn.ModuleList(
            self.block(width=width, heads=heads, mlp_width=mlp_width or 4 * width, epsilon=epsilon)
            for _ in range(layers)
        )

    def embed(self, ids: Tensor, positions: Tensor, before: int = 0) -> Tensor:
        """Return the first layer's input [B,T,W] for ids [B,T] at positions [B,T] or [T]. before: the number of
        positions that were read already. Embeddings [B,T,W] instead of ids are used as they are (transformers'
        inputs_embeds). Raises ValueError for more positions than the context or ids outside the vocabulary."""
        if not ids.is_floating_point():
            check_ids(ids, self.vocabulary, self.context, before)
        encodings: Tensor = self.position_embedding(positions) if self.learned else self.position_table[positions]
        return (ids if ids.is_floating_point() else self.token_embedding(ids)) + encodings

    def positions(self, inputs: Tensor) -> Tensor:
        """Return positions [B,T] counted over non-padding tokens, so that the padding side shifts nothing."""
        return positions_of(inputs != self.pad)

    def states(
        self,
        ids: Tensor,
        positions: Tensor,
        allowed: LayerMasks,
        past: Sequence[KeysValues] | None = None,
        edits: Sequence[Edit] | None = None,
    ) -> tuple[Tensor, list[Heads]]:
        """Run all layers on ids [B,T] at positions [B,T] or [T]. allowed: for each layer a mask that broadcasts to
        [B,H,T,T], or None. past: every layer's keys and values of P earlier positions, so that only those of ids are
        computed: a cached step, whose masks are [B,H,T,P+T]. edits: for each layer, what changes its heads' outputs.
        Returns the output [B,T,W], and for each layer q [B,H,T,D], and k, v [B,H,P+T,D]. Raises as embed."""
        x, qkvs = self.embed(ids, positions, past[0][0].shape[2] if past else 0), []
        every: Sequence[KeysValues | None] = past or [None] * len(self.blocks)
        edited: Sequence[Edit | None] = edits or [None] * len(self.blocks)
        for block, mask, cached, edit in zip(self.blocks, allowed, every, edited, strict=True):
            x, qkv = block(x, mask, cached, edit)
            qkvs.append(qkv)
        return self.norm(x), qkvs


def embedding(entries: int, width: int) -> nn.Embedding:
    """Return an embedding of unit variance, but uniform: normal numbers on the meta device would import a compiler."""
    entry = torch.empty(entries, width).uniform_(-(3**0.5), 3**0.5)
    made: nn.Embedding = nn.Embedding.from_pretrained(entry, freeze=False)
    return made


def check_ids(ids: Tensor, vocabulary: int, context: int, before: int = 0) -> None:
    """Raise ValueError for anything but ids [B,T], each from 0 up to the vocabulary, that fit the context. before: the
    number of positions that were read already."""
    if ids.ndim != 2 or ids.shape[1] == 0:
        raise ValueError(f"expected ids [B,T] with at least one token, got {list(ids.shape)}")
    if before + ids.shape[1] > context:
        raise ValueError(f"expected at most {context} tokens (the context), got {before + ids.shape[1]}")
    if torch.compiler.is_compiling():  # a compiled graph cannot branch on a tensor's values
        return
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocabulary:
        raise ValueError(f"expected ids from 0 to {vocabulary - 1}, got {low} to {high}")
