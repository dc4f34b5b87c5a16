"""A two-layer decoder whose weights are set to the induction circuit of Elhage et al. 2021.

L0 H0 attends to the previous token and writes which token that is; L1 H0 attends to the position whose previous token
is the query's own token, and copies the token there. The other two heads have small random weights, the MLPs zeros.
"""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from model.decoder import DecoderModel
from model.text import BatchTokenizer
from model.transformer import Transformer, TransformerConfig

WORDS = ["<pad>", "<start>", "p", "q", "r", "t", "u", "w", "x", "y", "z"]
VOCABULARY, CONTEXT, HEADS = len(WORDS), 23, 2
TOKEN, BEFORE, OUT, POSITION = 0, VOCABULARY, 2 * VOCABULARY, 3 * VOCABULARY  # where each part of the stream begins
WIDTH = POSITION + CONTEXT
PREVIOUS, INDUCTION = (0, 0), (1, 0)
CLEAN, CORRUPT = "p q r t p", "r q p t p"  # the last p predicts q in CLEAN, t in CORRUPT
SHARP, NOISE = 4.0, 0.02


@torch.no_grad()
def by_hand() -> DecoderModel:
    torch.manual_seed(3)
    config = TransformerConfig(
        vocabulary=VOCABULARY, context=CONTEXT, layers=2, heads=HEADS, width=WIDTH, mlp_width=5, tied=False
    )
    network = Transformer(config)
    for name, weight in network.named_parameters():
        norm = name.endswith("norm.weight")
        weight.copy_(torch.ones_like(weight) if norm else torch.zeros_like(weight))
    tokens, positions = torch.arange(VOCABULARY), torch.arange(CONTEXT)
    network.token_embedding.weight[tokens, TOKEN + tokens] = 1
    network.position_embedding.weight[positions, POSITION + positions] = 1
    network.unembedding.weight[tokens, OUT + tokens] = 1
    first, second = (block.attention for block in network.blocks)
    for attention in (first, second):
        for part in (attention.query, attention.key, attention.value, attention.output):
            part.weight.normal_(std=NOISE)
            part.weight[: WIDTH // HEADS] = 0
        attention.output.weight.normal_(std=NOISE)
        attention.output.weight[:, : WIDTH // HEADS] = 0
    first.query.weight[positions[:-1], POSITION + positions[1:]] = SHARP
    first.key.weight[positions, POSITION + positions] = SHARP
    first.value.weight[tokens, TOKEN + tokens] = 1
    first.output.weight[BEFORE + tokens, tokens] = 0.2
    second.query.weight[tokens, TOKEN + tokens] = SHARP
    second.key.weight[tokens, BEFORE + tokens] = SHARP
    second.value.weight[tokens, TOKEN + tokens] = 1
    second.output.weight[OUT + tokens, tokens] = 1
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return DecoderModel("by hand", network.eval(), BatchTokenizer(made, CONTEXT, pad=0, start=[1]))
