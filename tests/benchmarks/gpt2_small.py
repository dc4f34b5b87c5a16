"""A model of GPT-2 small's shape with random weights, on which neither its time nor its memory depends."""

import torch
from tokenizers import Tokenizer, models

from model.decoder import DecoderModel
from model.text import BatchTokenizer, TokenBatch
from model.transformer import Transformer, TransformerConfig

CONFIG = TransformerConfig(vocabulary=50257, context=1024, layers=12, heads=12, width=768)


def random_model() -> DecoderModel:
    network = Transformer(CONFIG).eval().requires_grad_(False)
    return DecoderModel("random", network, BatchTokenizer(Tokenizer(models.BPE()), CONFIG.context, pad=0))


def random_batch(tokens: int, seed: int = 0, vocabulary: int = CONFIG.vocabulary) -> TokenBatch:
    ids = torch.randint(vocabulary, (1, tokens), generator=torch.Generator().manual_seed(seed))
    return TokenBatch(ids, torch.ones(1, tokens, dtype=torch.bool), (("",) * tokens,))
