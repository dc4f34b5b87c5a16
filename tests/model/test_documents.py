"""Tests of a text's documents, split at a separator of typed characters, whatever the tokens are."""

import random

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from model.base import CHECKPOINTS, Model
from model.text import PAD_PIECE, BatchTokenizer, TokenBatch
from tests.model.huggingface import families


def documents(batch: TokenBatch, separator: str, row: int = 0) -> dict[int, str]:
    """Return the tokens of each document, joined, by its number."""
    numbers = batch.split(separator)
    assert numbers.shape == batch.ids.shape
    assert numbers.dtype == torch.int64
    found: dict[int, str] = {}
    for number, piece in zip(numbers[row].tolist(), batch.pieces[row], strict=True):
        found[number] = found.get(number, "") + piece
    return found


def word_pieces() -> BatchTokenizer:
    """Return a lower-casing WordPiece tokenizer, like BERT's."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "##s", "sat", ".", "e"]
    tokenizer = Tokenizer(models.WordPiece({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return BatchTokenizer(tokenizer, 29, pad=0, start=[2], end=[3])


def unigrams() -> BatchTokenizer:
    """Return a tokenizer whose pieces contain the space before them, like T5's."""
    pieces = ["<pad>", "</s>", "<unk>", "▁", "a", ".", "▁a", "b", "c", ".b"]
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return BatchTokenizer(tokenizer, 29, pad=0, end=[1])


class TestDocuments:
    """A separator belongs to the document that it ends."""

    @pytest.mark.parametrize(
        ("text", "separator", "expected"),
        [
            ("One day. A cat", ".", {0: "<start>One·day.", 1: "·A·cat"}),
            ("One day. A cat.", ".", {0: "<start>One·day.", 1: "·A·cat."}),
            (". A cat", ".", {0: "<start>.", 1: "·A·cat"}),
            ("One day", ".", {0: "<start>One·day"}),
            ("One day. A cat", "", {0: "<start>One·day.·A·cat"}),
            ("a. . b", ".", {0: "<start>a.", 1: "·.", 2: "·b"}),
            ("cats and dogs and me", " and ", {0: "<start>cats·and", 1: "·dogs·and", 2: "·me"}),
            ("One\n\nday\nA", "\n\n", {0: "<start>One⏎⏎", 1: "day⏎A"}),
            ("One day A", " ", {0: "<start>One", 1: "·day", 2: "·A"}),
            ("a<|endoftext|>b", "<|endoftext|>", {0: "<start>a<|endoftext|>", 1: "b"}),
            ("x😀y 😀w", "😀", {0: "<start>x⟨F0⟩⟨9F⟩⟨98⟩⟨80⟩", 1: "y·⟨F0⟩⟨9F⟩⟨98⟩⟨80⟩", 2: "w"}),
            ("😀x😃y", "😃", {0: "<start>⟨F0⟩⟨9F⟩⟨98⟩⟨80⟩x⟨F0⟩⟨9F⟩⟨98⟩⟨83⟩", 1: "y"}),
            ("a中b", "中", {0: "<start>a⟨E4⟩⟨B8⟩⟨AD⟩", 1: "b"}),
            ("a\ud800.b", ".", {0: "<start>a?.", 1: "b"}),
            ("aXaxa", "x", {0: "<start>aXax", 1: "a"}),
        ],
    )
    def test_a_text_is_split(self, story: Model, text: str, separator: str, expected: dict[int, str]) -> None:
        assert documents(story.encode([text]), separator) == expected

    @pytest.mark.parametrize("separator", [*".|()[]{}*+?^$\\", "\\d", ".*", "a|b", "[a"])
    def test_a_separator_is_no_pattern(self, story: Model, separator: str) -> None:
        assert set(documents(story.encode(["one day 7 ab"]), separator)) == {0}
        with_two = story.encode([f"7{separator} 7{separator} 7"])
        found = with_two.split(separator)[0]
        assert (int(found[0]), int(found[1]), int(found[-1])) == (0, 0, 2)

    def test_a_token_that_reaches_beyond_a_separator_is_behind_it(self, story: Model) -> None:
        """A token of three dots thus counts as after two of them, and the next token as after all three."""
        assert documents(story.encode(["A cat... It"]), ".") == {0: "<start>A·cat", 2: "...", 3: "·It"}
        assert documents(story.encode(["the the"]), "h") == {0: "<start>", 1: "the", 2: "·the"}

    def test_separators_do_not_overlap(self, story: Model) -> None:
        batch = story.encode(["xaaab"])
        assert int(batch.split("aa")[0, -1]) == 1

    @pytest.mark.parametrize("pad_side", ["left", "right"])
    def test_padding_moves_no_token_into_another_document(self, story: Model, pad_side: str) -> None:
        texts = ["a. b", "Hi. You. Me. All of us", "you"]
        batch = story.encode(texts, pad_side)
        for row, text in enumerate(texts):
            assert torch.equal(batch.split(".")[row, batch.real(row)], story.encode([text]).split(".")[0])
        padding = batch.split(".")[~batch.keep]
        assert (padding == 0).all() if pad_side == "left" else padding.max() == 1  # as its neighbour

    def test_a_text_that_was_cut_is_split_as_its_beginning_was(self) -> None:
        tokenizer = Tokenizer.from_file(str(CHECKPOINTS / "story" / "tokenizer.json"))
        text = "One day. A cat sat. It was red. " * 9
        short, long = (BatchTokenizer(tokenizer, context, pad=0, start=[1]).encode([text]) for context in (11, 101))
        assert short.cut[0] == text[len("One day. A cat sat. It was red") :]
        assert torch.equal(short.split("."), long.split(".")[:, :11])
        assert short.split("red").max() == 0
        assert documents(short, ".") == {0: "<start>One·day.", 1: "·A·cat·sat.", 2: "·It·was·red"}

    def test_word_pieces_and_what_stands_around_the_text(self) -> None:
        batch = word_pieces().encode(["The cats. É zebra. SAT", "cat"])
        assert documents(batch, ".") == {0: "[CLS]thecat##s.", 1: "e[UNK].", 2: "sat[SEP]"}
        assert documents(batch, ".", row=1) == {0: "[CLS]cat[SEP]" + PAD_PIECE * 7}
        assert documents(batch, "s") == {0: "[CLS]thecat##s", 1: ".e[UNK].sat[SEP]"}  # SAT has a capital S

    def test_unigrams_that_carry_a_space(self) -> None:
        batch = unigrams().encode(["a. ba  .c", "a.b"], "left")
        assert documents(batch, ".") == {0: "·a.", 1: "·ba··.", 2: "c</s>"}
        assert documents(batch, ".", row=1) == {0: PAD_PIECE * 7 + "·a", 1: ".b</s>"}

    def test_whole_words_and_what_is_unknown(self) -> None:
        encoder = BatchTokenizer(
            families.word_tokenizer(), 29, pad=families.PAD, start=[families.START], end=[families.END]
        )
        batch = encoder.encode(["the cat on the mat"])
        assert documents(batch, "the") == {0: "<s>the", 1: "catonthe", 2: "mat</s>"}
        batch = encoder.encode(["the banana cat"])
        assert documents(batch, "na c") == {0: "<s>the<unk>", 1: "cat</s>"}
        assert documents(batch, "a") == {0: "<s>the", 2: "<unk>", 4: "cat</s>"}

    @pytest.mark.parametrize("seed", range(3))
    def test_random_texts_are_split_where_python_splits_them(self, story: Model, seed: int) -> None:
        """The parts are the same for a separator that shares no token with other text."""
        chance = random.Random(seed)
        for _ in range(50):
            text = "".join(chance.choice(["the cat", " ", ".", "a", "é", "中", "😀", "\n"]) for _ in range(31))
            for separator in ("😀", "中"):
                batch = story.encode([text + "x"])
                assert batch.cut == ("",)
                parts = documents(batch, separator)
                expected = [part + separator for part in (text + "x").split(separator)]
                shown = ["".join(story.encode([part]).pieces[0][1:]) for part in expected]
                mark = "".join(story.encode([separator]).pieces[0][1:])
                found = [parts[number].removeprefix("<start>") for number in range(len(parts))]
                assert found == [*shown[:-1], shown[-1].removesuffix(mark)]

    def test_a_batch_that_was_read_from_no_text_is_one_document(self) -> None:
        batch = TokenBatch(torch.tensor([[5, 6, 7]]), torch.ones(1, 3, dtype=torch.bool), (("a", ".", "b"),))
        assert batch.split(".").tolist() == [[0, 0, 0]]
