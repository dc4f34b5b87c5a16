"""Our own Transformers. Here the decoder-only one, compatible with GPT-2 (Radford et al. 2019): learned positions,
normalisation before each sub-layer, GELU in its tanh form, tied or untied output. seq2seq.py has the encoder and the
decoder with cross-attention (Vaswani et al. 2017), blocks.py their layers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from torch import Tensor, nn

from model.blocks import Block, Edit, Heads, KeysValues, LayerMasks, Stack, positions_of, positions_under
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


class Transformer(Stack):
    """ids in; the last layer's states and every layer's (q, k, v) out."""

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
        """`states`; allowed may also be one mask, or None, for all layers."""
        masks = [allowed] * len(self.blocks) if allowed is None or isinstance(allowed, Tensor) else allowed
        return self.states(ids, positions, masks, past, edits)

    def logits(self, states: Tensor) -> Tensor:
        """[.., W] -> [.., V]."""
        logits: Tensor = self.unembedding(states)
        return logits
