"""Tests of text to tokens and back to readable labels: labels, padding, special tokens and limits.

Some tests use GPT-2's own tokenizer, from the recorded data; they are skipped where that is absent.
"""

import json
import random
import re
import unicodedata
from pathlib import Path

import pytest
import torch
from tokenizers import Encoding, Tokenizer
from tokenizers.implementations import ByteLevelBPETokenizer

from model import catalog
from model.base import Model
from model.text import (
    BYTE_OF,
    CHARACTERS_TRIED,
    PAD_PIECE,
    BatchTokenizer,
    first_line,
    readable,
    rows_of,
    shortened,
    token_labels,
)
from model.training.story import train_tokenizer

END_OF_TEXT = 50256  # GPT-2's only special id

STRANGE = {
    "emoji": "a 😀 b 👨‍👩‍👧 c",
    "Chinese": "注意力机制",
    "right to left": "שלום עולם مرحبا",
    "turned around": "ab\u202edc\u202c\u2066x\u2069",
    "control characters": "a\x00b\x07c\x1b[31md\x7fe\x85f",
    "white space": "a\tb\r\nc\n\nd  e\u00a0f\u3000g",
    "nothing to draw": "a\u200bb\ufeffc\u00add\u2060e",
    "accents apart": "e\u0301o\u0308",
    "markup": "<script>alert('1')</script> <s> &amp; </s>",
    "special tokens": "<|endoftext|> <pad> <start>",
    "a lone surrogate": "a\ud800b",
    "not a character": "a\uffffb\U0010ffff",
    "the replacement character": "a\ufffdb",
}


@pytest.fixture(scope="module")
def gpt2_tokenizer(data: Path) -> Tokenizer:
    folder = data / "gpt2-tokenizer"
    pair = ByteLevelBPETokenizer(str(folder / "encoder.json"), str(folder / "vocab.bpe"))
    pair.add_special_tokens(["<|endoftext|>"])  # as in GPT-2's tokenizer.json
    return Tokenizer.from_str(pair.to_str())


@pytest.fixture(scope="module")
def gpt2(gpt2_tokenizer: Tokenizer) -> BatchTokenizer:
    return BatchTokenizer(gpt2_tokenizer, 1024, pad=END_OF_TEXT)


class TestReadable:
    @pytest.mark.parametrize(
        ("token", "label"),
        [
            (b" the", "·the"),
            (b"\n\n", "⏎⏎"),
            (b"\t", "⇥"),
            (b"\r", "␍"),
            (b"\x00", "␀"),
            (b"\x1b[0m", "␛[0m"),
            (b"\x7f", "␡"),
            ("é中אم".encode(), "é中אم"),
            ("😀".encode(), "😀"),
            ("😀".encode()[:3], "⟨F0 9F 98⟩"),
            ("😀".encode()[3:], "⟨80⟩"),
            (b" " + "中".encode()[:2], "·⟨E4 B8⟩"),
            (b"\xad" + b"ab" + b"\xe4\xb8", "⟨AD⟩ab⟨E4 B8⟩"),
            ("\u202e".encode(), "⟨U+202E⟩"),
            ("\u200d".encode(), "⟨U+200D⟩"),
            ("\u00a0".encode(), "⟨U+00A0⟩"),
            ("\u2028".encode(), "⟨U+2028⟩"),
            ("\u0085".encode(), "⟨U+0085⟩"),
            ("\ue000".encode(), "⟨U+E000⟩"),
            ("\u0301".encode(), "◌\u0301"),
            (b"<script>", "<script>"),
            (b"", ""),
        ],
    )
    def test_a_label_for_every_kind_of_byte(self, token: bytes, label: str) -> None:
        assert readable(token) == label

    def test_every_single_byte_and_every_character_of_the_plane_can_be_seen(self) -> None:
        for byte in range(256):
            assert_visible(readable(bytes([byte])))
        for code in range(0x10000):
            if not 0xD800 <= code < 0xE000:
                assert_visible(readable(chr(code).encode()))


def assert_visible(label: str) -> None:
    """Assert that a label has visible characters, and none that are invisible or change the text's direction."""
    assert label
    literal = re.sub(r"⟨[0-9A-F ]+⟩|⟨U\+[0-9A-F]+⟩", "", label)
    invisible = [c for c in literal if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp")]
    assert not invisible, f"{label!r} holds {invisible}"


class TestLabels:
    @pytest.mark.parametrize("text", STRANGE.values(), ids=STRANGE.keys())
    def test_any_text_is_shown_as_text_token_by_token(self, tiny: Model, text: str) -> None:
        batch = tiny.encode([text])
        assert len(batch.pieces[0]) == batch.ids.shape[1]
        for piece in batch.pieces[0]:
            assert_visible(piece)

    @pytest.mark.parametrize("text", STRANGE.values(), ids=STRANGE.keys())
    def test_gpt2s_tokens_hold_every_byte(self, gpt2: BatchTokenizer, gpt2_tokenizer: Tokenizer, text: str) -> None:
        ids = gpt2.encode([text]).ids[0].tolist()
        assert END_OF_TEXT not in ids
        alphabet = "".join(gpt2_tokenizer.id_to_token(token) or "" for token in ids)
        whole = bytes(BYTE_OF[character] for character in alphabet)
        assert whole == text.encode("utf-8", "replace")
        assert [gpt2.label(token) for token in ids] == list(gpt2.encode([text]).pieces[0])
        for token in ids:
            assert_visible(gpt2.label(token))

    def test_gpt2s_labels(self, gpt2: BatchTokenizer) -> None:
        assert gpt2.encode(["hi 😀 中文"]).pieces == (("hi", "·⟨F0 9F 98⟩", "⟨80⟩", "·", "中", "⟨E6 96⟩", "⟨87⟩"),)
        assert gpt2.encode(["tab\tx\n"]).pieces == (("tab", "⇥", "x", "⏎"),)
        assert gpt2.label(END_OF_TEXT) == "<|endoftext|>"
        assert gpt2.label(50257) == "⟨id 50257⟩"

    def test_gpt2s_ids_are_those_recorded_for_three_prompts(self, gpt2: BatchTokenizer, data: Path) -> None:
        for name in ("ex0", "ex1", "ex2"):
            recorded = json.loads((data / "gpt2-attention" / f"{name}.json").read_text())
            batch = gpt2.encode([recorded["prompt"]])
            assert batch.ids[0].tolist() == recorded["tokenIds"]
            assert list(batch.pieces[0]) == [token.replace(" ", "·") for token in recorded["tokens"]]

    def test_other_alphabets(self) -> None:
        tokenizer = Tokenizer.from_str(
            json.dumps(
                {
                    "version": "1.0",
                    "added_tokens": [],
                    "model": {
                        "type": "BPE",
                        "vocab": {"▁the": 0, "<0x0A>": 1, "<0xF0>": 2, "▁": 3, "<s>": 4, "##ing": 5},
                        "merges": [],
                    },
                }
            )
        )
        label = token_labels(tokenizer)
        labels = ["·the", "⏎", "⟨F0⟩", "·", "<s>", "##ing", "⟨id 6⟩"]
        assert [label(token) for token in range(7)] == labels
        tokenizer.add_special_tokens(["<s>", "<0xF0>"])  # a byte token stays one if it is special
        label = token_labels(tokenizer)
        assert [label(token) for token in range(7)] == labels


def test_a_browser_is_not_given_a_tokenizer_with_added_tokens(gpt2_tokenizer: Tokenizer) -> None:
    """Added tokens are matched before words are; special ones are text in the browser and here."""
    with_one = Tokenizer.from_str(gpt2_tokenizer.to_str())
    with_one.add_tokens(["<user>"])
    one, other = (BatchTokenizer(some, 1024, pad=END_OF_TEXT) for some in (gpt2_tokenizer, with_one))
    assert one.byte_level_tables()
    assert other.byte_level_tables() is None


class TestBatches:
    TEXTS = ("the cat", "a", "the cat sat on the mat")

    @pytest.mark.parametrize("pad_side", ["left", "right"])
    def test_rows_are_padded_to_the_longest_on_the_side_asked_for(self, tiny: Model, pad_side: str) -> None:
        batch = tiny.encode(list(self.TEXTS), pad_side)
        alone = [tiny.encode([text]) for text in self.TEXTS]
        longest = max(one.ids.shape[1] for one in alone)
        assert batch.pad_side == pad_side
        assert batch.ids.shape == batch.keep.shape == (3, longest)
        assert batch.ids.dtype == torch.int64
        assert batch.cut == ("", "", "")
        for row, one in enumerate(alone):
            length = one.ids.shape[1]
            here = slice(longest - length, longest) if pad_side == "left" else slice(0, length)
            assert batch.real(row) == here
            assert torch.equal(batch.ids[row, here], one.ids[0])
            assert batch.pieces[row][here] == one.pieces[0]
            assert batch.keep[row].sum() == batch.keep[row, here].sum() == length
            padding = ~batch.keep[row]
            assert (batch.ids[row, padding] == 0).all()
            assert [piece for piece, pad in zip(batch.pieces[row], padding, strict=True) if pad] == [PAD_PIECE] * (
                longest - length
            )

    def test_a_start_token_is_added_and_shown(self, tiny: Model, gpt2: BatchTokenizer) -> None:
        assert tiny.encode(["the"]).ids[0, 0] == 1
        assert tiny.encode(["the"]).pieces[0][0] == "<start>"
        assert gpt2.encode(["the"]).ids.tolist() == [[1169]]

    def test_typed_special_tokens_are_text(self, tiny: Model) -> None:
        batch = tiny.encode(["<start><pad>"])
        assert (batch.ids[0, 1:] > 1).all()
        assert "".join(batch.pieces[0][1:]) == "<start><pad>"
        assert batch.keep.all()

    @pytest.mark.parametrize(
        ("texts", "message"), [([], "at least one text"), ([""], "none in row 0"), (["a", "", ""], "none in row 1")]
    )
    def test_no_text_is_refused(self, tiny: Model, texts: list[str], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            tiny.encode(texts)

    def test_a_pad_side_that_is_none_is_refused(self, tiny: Model) -> None:
        with pytest.raises(ValueError, match="got 'middle'"):
            tiny.encode(["a"], "middle")

    def test_rows_of_a_text_are_its_lines_that_are_not_blank(self) -> None:
        assert rows_of("a\r\n\r\n b \rc\n  \n\td", 9) == (["a", " b ", "c", "\td"], 0)
        assert rows_of("a\nb\n\nc\nd\n", 2) == (["a", "b"], 2)
        assert rows_of("", 2) == rows_of(" \n\t\n", 2) == ([], 0)
        assert (first_line("\n  \n b \nc"), first_line(" \n"), first_line("a\x0bb")) == (" b ", "", "a\x0bb")
        assert rows_of("one\u2028line\x0b\x0cstill", 2) == (["one\u2028line\x0b\x0cstill"], 0)


class Counting:
    """A tokenizer that records how many characters it is given."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.given: list[int] = []

    def encode_batch(self, texts: list[str], **options: bool) -> list[Encoding]:
        self.given += map(len, texts)
        return self._tokenizer.encode_batch(texts, **options)


class TestLimits:
    TEXT = "the cat sat on the mat and the cat sat still "

    @pytest.fixture
    def tokenizer(self) -> Tokenizer:
        return train_tokenizer([self.TEXT * 3], 277)

    @pytest.mark.parametrize("start", [[], [1]])
    def test_what_does_not_fit_is_cut_and_said(self, tokenizer: Tokenizer, start: list[int]) -> None:
        encoder = BatchTokenizer(tokenizer, 7, pad=0, start=start)
        text = self.TEXT * 2
        batch = encoder.encode([text, "the"])
        whole = encoder.encode([text[: -len(batch.cut[0])]])
        assert batch.ids.shape == (2, 7)
        assert torch.equal(batch.ids[0], whole.ids[0])
        assert whole.cut == ("",)
        assert batch.cut[1] == ""
        assert text.endswith(batch.cut[0])
        text_read = "".join(batch.pieces[0][len(start) :]).replace("·", " ")
        assert text_read + batch.cut[0] == text

    def test_a_text_that_just_fits_is_not_cut(self, tokenizer: Tokenizer) -> None:
        length = len(tokenizer.encode(self.TEXT).ids)
        exact = BatchTokenizer(tokenizer, length, pad=0).encode([self.TEXT])
        assert (exact.ids.shape[1], exact.cut) == (length, ("",))
        short = BatchTokenizer(tokenizer, length - 1, pad=0).encode([self.TEXT])
        assert (short.ids.shape[1], short.cut) == (length - 1, (" ",))

    def test_a_character_that_does_not_fit_whole_is_among_what_was_cut(self, tokenizer: Tokenizer) -> None:
        batch = BatchTokenizer(tokenizer, 3, pad=0).encode(["a😀b"])
        assert batch.pieces == (("a", "⟨F0⟩", "⟨9F⟩"),)
        assert batch.cut == ("😀b",)

    @pytest.mark.parametrize(
        ("text", "most_given"),
        [
            ("the cat sat. " * 7_693, 8 * 1024),
            ("😀" * 100_000, 8 * 1024),
            ("注意力机制" * 20_000, 8 * 1024),
            ("internationalization responsibilities " * 2_632, 16 * 1024),
            ("-" * 100_000, CHARACTERS_TRIED * 1024),  # GPT-2 has tokens of 64 dashes
        ],
        ids=["English", "emoji", "Chinese", "long words", "dashes"],
    )
    def test_a_huge_text_is_not_read_in_full(self, gpt2_tokenizer: Tokenizer, text: str, most_given: int) -> None:
        assert len(text) >= 100_000
        encoder = BatchTokenizer(gpt2_tokenizer, 1024, pad=END_OF_TEXT)
        counting = Counting(gpt2_tokenizer)
        encoder._tokenizer = counting  # type: ignore[assignment]
        batch = encoder.encode([text])
        assert max(counting.given) <= most_given < len(text)
        assert sum(counting.given) <= 2 * most_given
        assert batch.ids.shape == (1, 1024)
        assert text.endswith(batch.cut[0])
        assert batch.cut[0]

    @pytest.mark.parametrize("context", [5, 31])
    def test_what_is_kept_is_what_the_whole_text_begins_with(self, gpt2_tokenizer: Tokenizer, context: int) -> None:
        encoder = BatchTokenizer(gpt2_tokenizer, context, pad=END_OF_TEXT)
        chance = random.Random(context)
        long_words = ["understanding", "communications", "responsibilities", "internationalization"]
        for words in (long_words, list("ab cdé中😀\n"), ["the", "it's", "  ", "\n", "2024,"], ["--------"]):
            for _ in range(50):
                text = " ".join(chance.choice(words) for _ in range(20 * context))
                expected = gpt2_tokenizer.encode(text, add_special_tokens=False).ids[:context]
                assert encoder.encode([text]).ids[0].tolist() == expected


class TestShortened:
    @pytest.mark.parametrize("text", ["word " * 300, "🦊" * 100, "é 漢字 " * 90, "a" * 3000], ids=len)
    @pytest.mark.parametrize("max_tokens", [7, 17, 300])
    def test_it_is_a_beginning_of_at_most_so_many_tokens(self, text: str, max_tokens: int) -> None:
        story = catalog.load("story")
        cut = shortened(text, max_tokens, story.encode)
        assert text.startswith(cut)
        assert 1 < story.encode([cut]).ids.shape[1] <= max_tokens
        assert story.encode([cut]).cut == ("",), "nothing is left for the model's own limit"

    def test_a_short_text_stays_as_it_is(self) -> None:
        assert shortened("Once upon a time ", 17, catalog.load("story").encode) == "Once upon a time "
