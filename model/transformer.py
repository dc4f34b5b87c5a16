"""Our own Transformers. Here the decoder-only one, compatible with GPT-2 (Radford et al. 2019): learned positions,
normalisation before each sub-layer, GELU in its tanh form, tied or untied output. seq2seq.py has the encoder and the
decoder with cross-attention (Vaswani et al. 2017), blocks.py their layers."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from model.blocks import Block, Edit, Heads, KeysValues, check_ids, embedding, positions_of, positions_under
from model.seq2seq import Decoder, Encoder, EncoderDecoder, EncoderDecoderConfig, padding_mask, sequence_mask

__all__ = [
    "Block",
    "Decoder",
    "Encoder",
    "EncoderDecoder",
    "EncoderDecoderConfig",
    "Transformer",
    "TransformerConfig",
    "padding_mask",
    "positions_of",
    "positions_under",
    "sequence_mask",
]


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


class Transformer(nn.Module):
    """ids in; the last layer's states and every layer's (q, k, v) out."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = embedding(config.vocabulary, config.width)
        self.position_embedding = embedding(config.context, config.width)
        mlp_width = config.mlp_width or 4 * config.width
        self.blocks = nn.ModuleList(
            Block(width=config.width, heads=config.heads, mlp_width=mlp_width, epsilon=config.epsilon)
            for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.width, config.epsilon)
        self.unembedding = nn.Linear(config.width, config.vocabulary, bias=False)
        if config.tied:
            self.unembedding.weight = self.token_embedding.weight

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        allowed: Tensor | Sequence[Tensor | None] | None,
        past: Sequence[KeysValues] | None = None,
        edits: Sequence[Edit] | None = None,
    ) -> tuple[Tensor, list[Heads]]:
        """ids and positions [B,T] or positions [T]; allowed bool, broadcastable to [B,H,T,T], or one for each layer.

        past: every layer's keys and values of P positions read before, so that only those of ids are computed: a cached
        step, whose masks are [B,H,T,P+T]. edits: for each layer, what becomes of its heads' outputs.
        Returns the states [B,T,W] that `logits` reads, and for each layer q [B,H,T,D], and k, v [B,H,P+T,D].
        Raises ValueError for more positions than the context or ids outside the vocabulary.
        """
        x = self.embed(ids, positions, past[0][0].shape[2] if past else 0)
        masks = [allowed] * len(self.blocks) if allowed is None or isinstance(allowed, Tensor) else allowed
        qkvs = []
        every: Sequence[KeysValues | None] = past or [None] * len(self.blocks)
        edited: Sequence[Edit | None] = edits or [None] * len(self.blocks)
        for block, mask, kept, edit in zip(self.blocks, masks, every, edited, strict=True):
            x, qkv = block(x, mask, kept, edit)
            qkvs.append(qkv)
        return self.norm(x), qkvs

    def embed(self, ids: Tensor, positions: Tensor, before: int = 0) -> Tensor:
        """What enters the first layer, [B,T,W]. before: how many positions were read before. Raises as forward does."""
        check_ids(ids, self.config.vocabulary, self.config.context, before)
        states: Tensor = self.token_embedding(ids) + self.position_embedding(positions)
        return states

    def logits(self, states: Tensor) -> Tensor:
        """[.., W] -> [.., V]."""
        logits: Tensor = self.unembedding(states)
        return logits
