"""Tests of how the models that ship were made: books, training rows, tokenizer, and the numbers on a model card."""

import math
import sys
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from model import masks
from model.base import Model
from model.heads import measures
from model.text import FIRST_ID, PAD_ID, START_ID
from model.training import story
from model.training.story import (
    HELD_OUT,
    PAD,
    START,
    Books,
    Rows,
    head_scores,
    held_out_bits,
    read_books,
    train_tokenizer,
)
from model.transformer import config_of
from model.why_causal import live_training
from model.why_causal.live_training import new_optimizers, new_transformer, rate_at, rotations, update
from tests.tensors import assert_near

LENGTH = 61
TEXT = torch.arange(1000, 3003)  # "text" counts up from 1000, noise is below: the two can be told apart


def new_rows(repeated: float, seed: int = 0) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    return Rows(TEXT, torch.tensor([0, 500, 1990]), range(FIRST_ID, 1000), LENGTH, generator, repeated)


def drawn(repeated: float, rows: int = 200) -> list[tuple[Tensor, Tensor]]:
    return list(zip(*new_rows(repeated).batch(rows), strict=True))


class TestRows:
    @pytest.mark.parametrize("repeated", [0.0, 0.25, 1.0])
    def test_every_row_is_full_and_begins_with_the_start_token(self, repeated: float) -> None:
        inputs, targets = new_rows(repeated).batch(37)
        assert inputs.shape == targets.shape == (37, LENGTH)
        assert inputs.dtype == targets.dtype == torch.int64
        assert (inputs[:, 0] == START_ID).all()
        assert (inputs[:, 1:] >= FIRST_ID).all()

    @pytest.mark.parametrize("repeated", [0.0, 1.0])
    def test_targets_are_the_next_tokens_or_carry_no_loss(self, repeated: float) -> None:
        for inputs, targets in drawn(repeated):
            loss = targets[:-1] != -100
            assert torch.equal(targets[:-1][loss], inputs[1:][loss])

    def test_rows_of_text_are_one_piece_of_it_and_all_of_it_counts(self) -> None:
        begins = set()
        for inputs, targets in drawn(0.0):
            assert torch.equal(inputs[1:], torch.arange(int(inputs[1]), int(inputs[1]) + LENGTH - 1))
            assert torch.equal(targets, torch.arange(int(inputs[1]), int(inputs[1]) + LENGTH))
            begins.add(int(inputs[1]) - 1000)
        assert {0, 500} < begins  # half of them begin with a paragraph
        assert 1990 not in begins  # too near the end to fill a row
        assert max(begins) <= len(TEXT) - LENGTH

    def test_repeated_rows_are_half_text_half_noise(self) -> None:
        kinds = [bool((inputs[1:] < 1000).any()) for inputs, _ in drawn(1.0)]
        for inputs, _ in drawn(1.0):
            assert (inputs[1:] < 1000).all() or (inputs[1:] >= 1000).all()
        assert 60 < sum(kinds) < 140

    def test_noise_carries_loss_where_it_was_seen_before_and_nowhere_else(self) -> None:
        """A target with loss continues a repeat: it followed the same token before, and is predictable from that."""
        carried = 0
        for inputs, targets in drawn(1.0):
            if inputs[1] >= 1000:
                assert (targets != -100).all()
                continue
            for position in (targets != -100).nonzero()[:, 0].tolist():
                pair = (int(inputs[position]), int(targets[position]))
                before = list(zip(inputs[:position].tolist(), inputs[1 : position + 1].tolist(), strict=True))
                assert pair in before
                carried += 1
        assert carried > 500

    def test_a_seed_draws_the_same_rows_again_and_another_does_not(self) -> None:
        first, again, other = (new_rows(0.25, seed).batch(11)[0] for seed in (3, 3, 4))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


class TestBooks:
    def test_the_end_of_every_childrens_book_is_held_out(self, tmp_path: Path) -> None:
        paragraphs = [f"Paragraph number {number}." for number in range(100)]
        for name in ("grimm_tales.txt", "carroll_alice.txt", "austen_emma.txt"):
            (tmp_path / name).write_text(name + "\n\n" + "\n\n".join(paragraphs), encoding="utf-8")
        books = read_books(tmp_path)
        assert [text.split("_")[0] for text in books.train] == ["carroll", "grimm"]
        for train, held_out in zip(books.train, books.held_out, strict=True):
            assert (train + held_out).endswith("\n\n".join(paragraphs))
            assert train.endswith("\n\n")
            assert held_out.startswith("Paragraph number")
            assert HELD_OUT <= len(held_out) / len(train + held_out) < HELD_OUT + 0.02

    def test_no_books_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "austen_emma.txt").write_text("text")
        with pytest.raises(ValueError, match="found none"):
            read_books(tmp_path)

    def test_the_shelf_has_every_author(self, data: Path) -> None:
        books = read_books(data / "text")
        assert len(books.train) == len(books.held_out) >= 13
        assert sum(map(len, books.train)) > 7_000_000
        assert all(len(text) > 1000 for text in books.held_out)

    def test_tokens_of_the_books_in_order_and_where_their_paragraphs_begin(self) -> None:
        paragraphs = ["One two.", "Three four five.", "Six.", "Seven eight"]
        books = Books(["\n\n".join(paragraphs[:2]) + "\n\n", "\n\n".join(paragraphs[2:]) + "\n\n"], [])
        tokenizer = train_tokenizer(books.train, 263)
        rows = story.training_rows(books, tokenizer, story.StoryRecipe(context=17, vocabulary=263))
        assert tokenizer.decode(rows.tokens.tolist()) == "".join(books.train)
        ends = [*rows.paragraphs.tolist()[1:], len(rows.tokens)]
        pieces = [rows.tokens[begin:end] for begin, end in zip(rows.paragraphs.tolist(), ends, strict=True)]
        assert [tokenizer.decode(piece.tolist()) for piece in pieces] == [text + "\n\n" for text in paragraphs]
        assert (rows.length, rows.vocabulary) == (17, range(FIRST_ID, 263))
        with pytest.raises(ValueError, match="more tokens than the context, 300, got "):
            story.training_rows(books, tokenizer, story.StoryRecipe(context=300, vocabulary=263))


class TestTokenizer:
    @pytest.fixture
    def tokenizer(self) -> Tokenizer:
        return train_tokenizer(["the cat sat on the mat and the cat sat still"] * 3, 277)

    def test_the_special_ids_come_first(self, tokenizer: Tokenizer) -> None:
        assert (tokenizer.token_to_id(PAD), tokenizer.token_to_id(START)) == (PAD_ID, START_ID) == (0, 1)
        assert FIRST_ID == 2
        assert sorted(tokenizer.get_added_tokens_decoder()) == [PAD_ID, START_ID]
        assert min(tokenizer.encode("the cat").ids) >= FIRST_ID

    def test_it_has_the_entries_asked_for_and_writes_any_text(self, tokenizer: Tokenizer) -> None:
        assert tokenizer.get_vocab_size() == 277
        for text in ("the cat", " leading space", "é 中 😀 ש\x00\n\t", "".join(map(chr, range(0x20, 0x2FF)))):
            assert tokenizer.decode(tokenizer.encode(text).ids) == text
        assert len(tokenizer.encode("the cat sat").ids) < len("the cat sat") / 2


class TestNumbers:
    @staticmethod
    def bits_directly(model: Model, ids: list[int]) -> float:
        """Return bits of one prediction at a time: from all tokens in the first context, then in windows half a context
        apart."""
        context, bits = model.context, 0.0
        half = context // 2
        for position, token in enumerate(ids):
            begin = 0 if position < context else half * math.ceil((position - context + 1) / half)
            row = torch.tensor([[START_ID, *ids[begin:position]]])
            allowed = masks.causal(row.shape[1], row.shape[1])
            states, _ = model.network(row, torch.arange(row.shape[1]), allowed)
            bits -= float(model.network.logits(states[0, -1]).double().log_softmax(-1)[token]) / math.log(2)
        return bits

    @pytest.mark.parametrize("repeats", [1, 18, 19, 40])
    def test_held_out_bits_are_those_of_every_token_once(
        self, tiny: Model, tiny_folder: Path, repeats: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tokenizer = Tokenizer.from_file(str(tiny_folder / "tokenizer.json"))
        texts = ["A cat sat on the mat; " * repeats, "the end."]
        ids = [tokenizer.encode(text).ids for text in texts]
        assert (len(ids[0]) > tiny.context) == (repeats > 18)
        expected = sum(self.bits_directly(tiny, some) for some in ids) / sum(map(len, texts))
        for batch in (1, 16):
            monkeypatch.setattr(story, "BATCH", batch)
            found = held_out_bits(tiny.network, tokenizer, texts)
            assert found == pytest.approx(expected, rel=1e-5), f"off by {abs(found - expected):.3g}"

    def test_head_scores_are_those_of_the_weights(self, tiny: Model, monkeypatch: pytest.MonkeyPatch) -> None:
        rows, span = 3, 11
        monkeypatch.setattr(story, "RANDOM_ROWS", rows)
        monkeypatch.setattr(story, "RANDOM_SPAN", span)
        induction, previous = head_scores(tiny.network)
        assert induction.shape == previous.shape == (2, 3)
        ids = measures.repeated_tokens(rows, span, range(FIRST_ID, 283), START_ID, torch.Generator().manual_seed(0))
        length = 2 * span + 1
        allowed = masks.causal(length, length)
        _, qkvs = tiny.network(ids, torch.arange(length), allowed)
        for layer, (q, k, _) in enumerate(qkvs):
            scores = (q @ k.transpose(-2, -1) / 7**0.5).masked_fill(~allowed, -torch.inf).softmax(-1)
            for head in range(3):
                again = [  # key after the token's last occurrence, by chance in the second half too
                    float(scores[row, head, query, max(p for p in range(query) if ids[row, p] == ids[row, query]) + 1])
                    for row in range(rows)
                    for query in range(span + 1, length)
                ]
                before = [float(scores[:, head, query, query - 1].mean()) for query in range(1, length)]
                assert float(induction[layer, head]) == pytest.approx(sum(again) / len(again), rel=1e-4)
                assert float(previous[layer, head]) == pytest.approx(sum(before) / len(before), rel=1e-4)


class TestLearning:
    RECIPE = story.StoryRecipe(vocabulary=283, context=31, layers=2, heads=3, width=24, rows=7)

    def test_positions_begin_as_rotations(self) -> None:
        """The dot product of two positions depends on their distance alone."""
        waves = rotations(31, 24)
        products = waves @ waves.T
        for back in (1, 2, 7):
            diagonal = products.diagonal(-back)
            assert_near(diagonal, diagonal[:1].expand_as(diagonal), 1e-3, f"positions {back} apart")
        assert (products.diagonal(-1) < products.diagonal()[:-1]).all()

    def learn(self, steps: int) -> tuple[list[float], Tensor]:
        """Train on one batch from the start; return the loss before each step, and all weights at the end."""
        torch.manual_seed(0)
        model = new_transformer(config_of(self.RECIPE))
        optimizers = new_optimizers(model, self.RECIPE)
        ids = torch.randint(2, 283, (7, 31))
        targets = ids.roll(-1, 1).masked_fill(torch.arange(31) == 30, -100)
        losses = []
        for _ in range(steps):
            loss = story.mean_loss(model, ids, targets)
            losses.append(float(loss.detach()))
            loss.backward()
            update(model, optimizers, 1.0)
        return losses, nn.utils.parameters_to_vector(model.parameters()).detach()

    def test_a_few_steps_learn_a_batch(self) -> None:
        losses, _ = self.learn(30)
        assert losses[-1] < 0.7 * losses[0]

    def test_torchs_own_optimizers_to_the_bit_without_its_compiler(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "torch._dynamo", None)  # importing it now fails
            losses, weights = self.learn(3)
        monkeypatch.setattr(live_training, "_Muon", torch.optim.Muon)
        monkeypatch.setattr(live_training, "_AdamW", torch.optim.AdamW)
        expected, expected_weights = self.learn(3)
        assert losses == expected
        assert torch.equal(weights, expected_weights)

    def test_targets_without_loss_do_not_count(self) -> None:
        torch.manual_seed(0)
        model = new_transformer(config_of(self.RECIPE))
        ids = torch.randint(2, 283, (3, 31))
        targets = ids.roll(-1, 1)
        first_half = targets.masked_fill(torch.arange(31) >= 15, -100)
        expected = story.mean_loss(model, ids[:, :15], targets[:, :15])
        found = story.mean_loss(model, ids, first_half)
        assert_near(found, expected, 0.02, "loss of the first half")

    def test_every_parameter_is_learned_by_one_optimizer(self) -> None:
        model = new_transformer(config_of(self.RECIPE))
        groups = [group for optimizer in new_optimizers(model, self.RECIPE) for group in optimizer.param_groups]
        learned = [id(parameter) for group in groups for parameter in group["params"]]
        assert sorted(learned) == sorted(id(parameter) for parameter in model.parameters())

    def test_the_rate_rises_and_falls(self) -> None:
        rates = [rate_at(done / 1000, 0.02) for done in range(1001)]
        assert max(rates) == pytest.approx(1, abs=1e-3)
        assert rates.index(max(rates)) == 20
        assert rates[0] < 0.1
        assert rates[-1] == pytest.approx(0.02)
        assert rates[:21] == sorted(rates[:21])
        assert rates[20:] == sorted(rates[20:], reverse=True)
