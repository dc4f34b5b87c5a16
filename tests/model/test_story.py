"""Tests of the story model that ships: its size, its loss on unseen text, and the heads it must have."""

from pathlib import Path

import torch
from tokenizers import Tokenizer

from model.base import CHECKPOINTS, Model
from model.heads import measures
from model.text import FIRST_ID, START_ID, TokenBatch
from model.training.story import held_out_bits, read_books

FOLDER = CHECKPOINTS / "story"
SPAN = 50


def test_it_is_small_enough_to_ship() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) <= 12_000_000


def test_its_tokenizer_has_a_pad_and_a_start_token_and_two_thousand_entries(story: Model) -> None:
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    assert tokenizer.get_vocab_size() >= 2000
    batch = story.encode(["Once upon a time", "Once"])
    assert batch.pieces[0][0] == batch.pieces[1][0] == "<start>"
    assert batch.ids[1, -1] == tokenizer.token_to_id("<pad>")


def test_it_predicts_text_it_never_saw(story: Model, data: Path) -> None:
    """Measured on the first pages of every book's held-out end; the model card has the number for all of it."""
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    texts = [text[:1000] for text in read_books(data / "text").held_out]
    assert held_out_bits(story.network, tokenizer, texts) <= 1.50


def test_it_has_an_induction_head_and_a_previous_token_head(story: Model) -> None:
    """On random tokens repeated once, only the repetition helps to predict; the weights are those of the trace."""
    entries = range(FIRST_ID, story.network.config.vocabulary)
    ids = measures.repeated_tokens(8, SPAN, entries, START_ID, torch.Generator().manual_seed(5))
    trace = story.run(TokenBatch(ids, torch.ones_like(ids) > 0, ()))
    positions = torch.arange(2 * SPAN + 1)
    induction, previous = torch.zeros(2, 8, story.num_layers, story.num_heads)
    for row in range(8):
        for layer in range(story.num_layers):
            weights = torch.stack([trace.weights(layer, head, row) for head in range(story.num_heads)])
            induction[row, layer] = measures.induction(weights, ids[row], positions > SPAN)
            previous[row, layer] = measures.previous_token(weights, positions > 0)
    assert float(induction.mean(0).max()) >= 0.5
    assert float(previous.mean(0).max()) >= 0.3
