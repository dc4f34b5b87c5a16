"""A tiny random model with its tokenizer."""

from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from model.gpt2 import save_transformer
from model.training.story import train_tokenizer
from model.transformer import Transformer, TransformerConfig

TINY = TransformerConfig(  # all sizes differ, so that a swapped axis cannot pass
    vocabulary=283, context=151, layers=2, heads=3, width=21, mlp_width=37
)
TINY_ENTRIES = 277  # entries of the tokenizer: fewer than the model's vocabulary, as in many published models


def save_tiny(folder: Path) -> None:
    """Save a checkpoint in GPT-2's layout: random weights, and a byte-level tokenizer with a pad and a start token."""
    torch.manual_seed(1)
    save_transformer(Transformer(TINY), folder)
    words = ["the cat sat on the mat and the cat sat still"] * 3
    train_tokenizer(words, TINY_ENTRIES).save(str(folder / "tokenizer.json"))


def put_marks_around_texts(folder: Path) -> tuple[int, int]:
    """Make a checkpoint's tokenizer put [CLS] before and [SEP] after every text, as those of the Chinese GPT-2s with
    BERT's tokenizer do. Returns the ids of the two.
    """
    path = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_str(path.read_text().replace("<start>", "[CLS]").replace("<pad>", "[SEP]"))
    first, last = map(tokenizer.token_to_id, ("[CLS]", "[SEP]"))
    marks = [("[CLS]", first), ("[SEP]", last)]
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=marks)
    tokenizer.save(str(path))
    return first, last
