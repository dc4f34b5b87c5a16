"""Tokenization: ids, padded batches, and the pieces to show for them. Sizes: B rows, T tokens."""

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Self

import numpy as np
import torch
from tokenizers import Encoding, Regex, Tokenizer
from tokenizers.models import Unigram, WordLevel
from tokenizers.pre_tokenizers import Sequence as Both
from tokenizers.pre_tokenizers import Split
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from i18n import N_, msg, msg_count
from model.errors import CheckpointError, panics_caught

PAD_PIECE = "<pad>"
PAD_ID, START_ID, FIRST_ID = 0, 1, 2  # in tokenizers made by training/: padding, start, first ordinary token
CHARACTERS_TRIED = 64  # most characters that encode reads for each position of the context
MAX_LABELS = 20_000  # labels that each tokenizer caches
TOKENS_SPARE = 16  # read beyond the context: a text cut within a word ends in other tokens than that word has


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """Several texts as one padded batch.

    ids: int64 [B,T]. keep: bool [B,T], True = a real token, False = padding.
    pieces: [B][T] the label of each token. cut: [B] the end of each text that did not fit ("" = all of it did).
    source: for an encoder-decoder's target texts, the texts that they are targets of; None otherwise.
    texts: [B] what the tokens were read from, or decode to, and ends: [B][T] where each token ends in it, in
    characters; both empty if there is no text. rendered: whether a chat template rendered them.
    positions: int64 [B,T], positions to use instead of those counted over real tokens.
    patches: float32 [B,T,N], for a model that reads images: what each image token is made from.
    would_continue: [B] whether the model that generated a text would continue it; empty if no model generated them.
    """

    ids: Tensor
    keep: Tensor
    pieces: tuple[tuple[str, ...], ...]
    pad_side: str = "right"
    cut: tuple[str, ...] = ()
    source: "TokenBatch | None" = None
    texts: tuple[str, ...] = ()
    ends: tuple[tuple[int, ...], ...] = ()
    rendered: bool = False
    positions: Tensor | None = None
    patches: Tensor | None = None
    would_continue: tuple[bool, ...] = ()

    @cached_property
    def kept(self) -> np.ndarray:
        """keep as a NumPy array, bool [B,T]: a thread's first call of torch takes a fifth of a millisecond, and each
        run of a page is a thread."""
        return self.keep.numpy()

    def real(self, row: int) -> slice:
        """Return the slice of the row's real tokens, among its T positions."""
        where = np.flatnonzero(self.kept[row])
        return slice(int(where[0]), int(where[-1]) + 1)

    def distinct_ids(self, row: int) -> Tensor:
        """Return ids that are equal for equal tokens: int64 [T] on the CPU; negative for tokens of no text: padding,
        and image tokens, which share an id but differ in content."""
        ids = self.ids[row].where(self.keep[row], -1).cpu()
        return ids if self.patches is None else ids.where(~self.patches[row].any(-1), -1 - torch.arange(len(ids)))

    def read(self, row: int) -> str:
        """Return the row's text as far as it fitted; its pieces if no text was read."""
        if not self.texts:
            return "".join(self.pieces[row])
        text = self.texts[row]
        return text[: len(text) - len(self.cut[row])]

    def rows(self, rows: Sequence[int]) -> Self:
        """Return a batch of these rows alone, as long as here; a row may be repeated."""
        some = list(rows)
        each = {name: getattr(self, name) for name in ("pieces", "cut", "texts", "ends", "would_continue")}
        picked: dict[str, Any] = {name: tuple(values[row] for row in some) for name, values in each.items() if values}
        source = None if self.source is None else self.source.rows(some)
        return replace(self, **self._tensors(some), **picked, source=source)

    def without_padding(self, row: int) -> "TokenBatch":
        """Return one row alone, with its real tokens only."""
        return self.rows([row]).columns(self.real(row))

    def columns(self, some: slice) -> "TokenBatch":
        """Return some positions of every row; the texts stay whole."""
        texts = {"pieces": tuple(row[some] for row in self.pieces), "ends": tuple(row[some] for row in self.ends)}
        return replace(self, **self._tensors((slice(None), some)) | texts)

    def _tensors(self, where: Any) -> dict[str, Any]:
        each = {name: getattr(self, name) for name in ("ids", "keep", "positions", "patches")}
        return {name: tensor[where] for name, tensor in each.items() if tensor is not None}

    def split(self, separator: str) -> Tensor:
        """Return the number of separators before each token: int64 [B,T]. Searched in the texts; a token that extends
        beyond a separator's end is after it. All 0 if there is none, or if no text was read."""
        numbers = torch.zeros_like(self.ids, device="cpu")
        for row, (text, ends) in enumerate(zip(self.texts, self.ends, strict=True)):
            after = [found.end() for found in re.finditer(re.escape(separator), text)] if separator else []
            numbers[row] = torch.searchsorted(torch.tensor(after, dtype=torch.long), torch.tensor(ends))
        return numbers


def beginning(text: str) -> str:
    """Return a text in one line of at most 40 characters."""
    line = " ".join(text.split())
    return line if len(line) <= 40 else line[:40] + "…"


def truncation_message(cut: str, max_tokens: int) -> str:
    """Return a sentence on what part of a text did not fit into `max_tokens`; "" if nothing was cut. It says "here",
    since the limit may be `Settings.tokens` or what a run may keep, and not the model's own."""
    if not cut:
        return ""
    return msg_count(
        "The model reads at most {most:,} tokens here: the last character of the text is cut: “{beginning}”.",
        "The model reads at most {most:,} tokens here: the last {count} characters of the text are cut, from "
        "“{beginning}” on.",
        len(cut), most=max_tokens, beginning=beginning(cut),
    )  # fmt: skip


def padded(rows: Sequence[Sequence[int]], pad: int, pad_side: str = "right") -> tuple[Tensor, Tensor]:
    """Pad rows of ids to the longest on one side: ids int64 and keep bool [B,T], as in TokenBatch."""
    ids = [torch.tensor(row) for row in rows]
    keep = pad_sequence([torch.ones(len(row), dtype=torch.bool) for row in rows], True, False, pad_side)
    return pad_sequence(ids, True, pad, pad_side), keep


def labelled_batch(
    rows: Sequence[Sequence[int]], label: Callable[[int], str], pad: int, pad_side: str, cut: tuple[str, ...] = ()
) -> TokenBatch:
    """Make a batch of rows of ids, padded on one side to the longest, with each one's label."""
    ids, keep = padded(rows, pad, pad_side)
    pieces = [
        tuple(label(token) if real else PAD_PIECE for token, real in zip(*row, strict=True))
        for row in zip(ids.tolist(), keep.tolist(), strict=True)
    ]
    return TokenBatch(ids, keep, tuple(pieces), pad_side, cut or ("",) * len(rows))


class BatchTokenizer:
    """A tokenizer with a model's limits. Stores nothing of any text; safe to share between threads."""

    def __init__(
        self, tokenizer: Tokenizer, context: int, *, pad: int, start: Sequence[int] = (), end: Sequence[int] = ()
    ) -> None:
        """pad: the id that fills short rows. start, end: the ids that the model was trained to see around every text.
        Raises CheckpointError for a context without room for any other token."""
        if context <= len(start) + len(end):
            no_room = N_(
                "No text fits into the model's context of {context}: what its tokenizer puts around every text takes "
                "{count}. Choose another model."
            )
            raise CheckpointError(msg(no_room, context=context, count=len(start) + len(end)))
        self._tokenizer = tokenizer
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = True  # a typed <|endoftext|> is text
        # special tokens that the vocabulary itself has as words (T5's </s>) are split in two
        specials = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]
        words = [re.escape(special[0]) + f"(?={re.escape(special[1:])})" for special in specials if len(special) > 1]
        if words and isinstance(tokenizer.model, Unigram | WordLevel):
            own = [] if tokenizer.pre_tokenizer is None else [tokenizer.pre_tokenizer]
            tokenizer.pre_tokenizer = Both([Split(Regex("|".join(words)), "isolated"), *own])
        self.label = lru_cache(MAX_LABELS)(token_labels(tokenizer))
        self.context, self.pad = context, pad
        self.start, self.end = list(start), list(end)

    def encode(self, texts: list[str], pad_side: str = "right") -> TokenBatch:
        """Tokenize texts, one row each, padded to the longest, at most the context. Raises ValueError for no text, a
        text without a token, or a pad side that is neither "left" nor "right"."""
        if pad_side not in ("left", "right"):
            raise ValueError(f'expected pad_side "left" or "right", got {pad_side!r}')
        if not texts:
            raise ValueError(msg("expected at least one text, got none"))
        encoded = [self._ids(text) for text in texts]
        empty = [number for number, text in enumerate(texts) if not text or not encoded[number][0]]
        if empty:
            raise ValueError(msg("expected text in every row, got none in row {row}", row=empty[0]))
        rows = [[*self.start, *ids, *self.end] for ids, _, _ in encoded]
        batch = labelled_batch(rows, self.label, self.pad, pad_side, tuple(cut for _, _, cut in encoded))
        return self._with_texts(batch, texts, [ends for _, ends, _ in encoded])

    def written(self, rows: list[list[int]], pad_side: str) -> TokenBatch:
        """Make a batch of texts that a model generated after the start tokens: rows of ids, and what they decode to."""
        decode: Callable[[list[int]], str] = partial(self._tokenizer.decode, skip_special_tokens=True)
        lengths = [[len(decode(row[:last])) for last in range(1, len(row) + 1)] for row in rows]
        # within a multi-token character, or before a full stop, a prefix may decode to more than its continuation
        ends = [np.minimum.accumulate(some[::-1])[::-1].tolist() for some in lengths]
        batch = labelled_batch([[*self.start, *row] for row in rows], self.label, self.pad, pad_side)
        return self._with_texts(batch, [decode(row) for row in rows], ends)

    def _with_texts(self, batch: TokenBatch, texts: list[str], ends: list[list[int]]) -> TokenBatch:
        """Add texts to a batch. ends: of each text's own tokens; 0 before them, its end after them."""
        every = []
        for row, own in enumerate(ends):
            before = [0] * (batch.real(row).start + len(self.start))
            last = own[-1] if own else 0  # a model may write nothing
            every.append((*before, *own, *[last] * (batch.ids.shape[1] - len(before) - len(own))))
        return replace(batch, texts=tuple(texts), ends=tuple(every))

    def byte_level_tables(self) -> dict[str, Any] | None:
        """Return the tables for components/bpe.js: the vocabulary, "" for an id without a token; the merges, "a b", in
        order of priority; the ids before every text, and that of padding. None for anything but GPT-2's byte-level BPE,
        and for a tokenizer with added tokens."""
        found = json.loads(self._tokenizer.to_str())
        bpe, before = found["model"], found["pre_tokenizer"] or {}
        plain = before.get("type") == "ByteLevel" and before.get("use_regex") and not before.get("add_prefix_space")
        added = (not one["special"] for one in found["added_tokens"])
        own = (found["normalizer"], *map(bpe.get, ("dropout", "byte_fallback", "ignore_merges")), *self.end, *added)
        if bpe["type"] != "BPE" or not plain or any(own) or not BYTE_OF.keys() <= bpe["vocab"].keys():
            return None
        merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in bpe["merges"]]
        tokens = [""] * (max(bpe["vocab"].values()) + 1)
        for token, number in bpe["vocab"].items():
            tokens[number] = token
        return {"vocabulary": tokens, "merges": merges, "start": self.start, "pad": self.pad}

    @cached_property
    def special(self) -> frozenset[int]:
        """The ids of special tokens."""
        added = self._tokenizer.get_added_tokens_decoder()
        return frozenset(token for token, about in added.items() if about.special)

    @cached_property
    def for_rendered_text(self) -> "BatchTokenizer":
        """The tokenizer for text rendered by a chat template: special tokens in it are tokens, and none is added."""
        tokenizer = Tokenizer.from_str(self._tokenizer.to_str())
        made = BatchTokenizer(tokenizer, self.context, pad=self.pad)
        tokenizer.encode_special_tokens = False
        return made

    def encode_rendered(self, text: str) -> tuple[TokenBatch, frozenset[int]]:
        """Tokenize a text rendered by a chat template, as one row; also return the ids of special tokens."""
        return replace(self.for_rendered_text.encode([text]), rendered=True), self.special

    @property
    def vocabulary(self) -> int:
        """The number of ids, from 0."""
        return self._tokenizer.get_vocab_size()

    def _ids(self, text: str) -> tuple[list[int], list[int], str]:
        """Return the ids that fit into the context besides start and end, where each ends, and the text after them.
        Reads no more of a long text than is needed to fill the context."""
        room = self.context - len(self.start) - len(self.end)
        size = 8 * room
        encoding = self._encoding(text[:size])
        while len(encoding.ids) <= room + TOKENS_SPARE and size < len(text) and size < CHARACTERS_TRIED * room:
            size *= 2
            encoding = self._encoding(text[:size])
        ids = encoding.ids[:room]
        read = len(text[:size]) if len(encoding.ids) <= room else encoding.offsets[room][0]
        return ids, [end for _, end in encoding.offsets[:room]], text[read:]

    def _encoding(self, text: str) -> Encoding:
        """Tokenize a text. Raises ValueError for one that the tokenizer cannot encode."""
        # a lone surrogate cannot be encoded; it cannot be typed, but a URL can contain one
        clean = text.encode("utf-8", "replace").decode("utf-8")
        try:
            with panics_caught():  # a regular expression may fail
                return self._tokenizer.encode_batch([clean], add_special_tokens=False)[0]  # encode holds Python's lock
        except Exception as error:  # noqa: BLE001 - the library raises plain Exception
            template = N_("expected a text of tokens that the tokenizer knows, got one that it refuses ({error})")
            raise ValueError(msg(template, error=error)) from None


def added_around(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the ids that a tokenizer's post-processor adds before and after a text: <s>, or [CLS] and [SEP] …"""
    if not tokenizer.num_special_tokens_to_add(False):
        return [], []
    encoded = tokenizer.encode("a")
    marks, ids = encoded.special_tokens_mask, encoded.ids
    if 0 not in marks:  # this tokenizer drops "a": ids before and after it cannot be told apart
        return ids, []
    first, last = marks.index(0), len(marks) - marks[::-1].index(0)
    return ids[:first], ids[last:]


def rows_of(text: str, max_rows: int) -> tuple[list[str], int]:
    """Return one row for each line that is not blank, at most `max_rows`, and the number of further ones."""
    lines = [line for line in lines_of(text) if line.strip()]
    return lines[:max_rows], max(len(lines) - max_rows, 0)


def lines_of(text: str) -> list[str]:
    """Return the lines of a text. str.splitlines splits at more than text boxes do: a form feed, U+2028 …"""
    return re.split(r"\r\n|\n|\r", text)


def first_line(text: str) -> str:
    """Return the first line that is not blank, "" if there is none."""
    return "".join(rows_of(text, 1)[0])


def check_targets(targets: Sequence[str], texts: Sequence[str]) -> None:
    """Raise ValueError unless there is one target for each text."""
    if len(targets) != len(texts):
        template = N_("expected one target for each text, got {targets} for {texts}: write one for each, or none")
        raise ValueError(msg(template, targets=len(targets), texts=len(texts)))


def shortened(text: str, max_tokens: int, encode: Callable[[list[str]], TokenBatch]) -> str:
    """Cut a text after a token, so that it takes at most `max_tokens`, including the tokens that a model adds. encode:
    a model's. Returns the whole text if it is short enough, if not one character fits, or if the tokenizer does not
    tell where its tokens end. Raises as encode."""

    def fits(batch: TokenBatch) -> bool:
        return batch.ids.shape[1] <= max_tokens and not any(batch.cut)

    batch = encode([text])
    if fits(batch):
        return text
    for last in range(min(max_tokens, batch.ids.shape[1]) - 1, -1, -1):
        part = text[: batch.ends[0][last]]
        if part.strip() and fits(encode([part])):  # a character of several tokens may not fit as a whole
            return part
    return text


def token_labels(tokenizer: Tokenizer) -> Callable[[int], str]:
    """Return a function from id to label, for byte-level, SentencePiece and WordPiece alphabets."""
    added = tokenizer.get_added_tokens_decoder()
    byte_level = "ByteLevel" in repr(tokenizer.decoder)

    def label(token: int) -> str:
        text = tokenizer.id_to_token(token)
        if text is None:
            return f"⟨id {token}⟩"
        one_byte = re.fullmatch(r"<0x([0-9A-F]{2})>", text)  # SentencePiece's notation of bytes without a token
        if token in added and not one_byte:
            return readable(text.encode())
        if byte_level:
            return readable(bytes(BYTE_OF[character] for character in text if character in BYTE_OF))
        return readable(bytes.fromhex(one_byte[1]) if one_byte else text.replace("▁", " ").encode())

    return label


def readable(token: bytes) -> str:
    """Return a label for a token's bytes: every character visible, and incomplete characters as ⟨F0 9F⟩. Spaces become
    ·, line ends ⏎, tabs ⇥; control characters their Unicode pictures (␀); invisible characters and those that change
    the direction of the text, their code points."""
    text = token.decode("utf-8", "surrogateescape")  # an undecodable byte becomes U+DC00 + byte
    shown = []
    for run in re.findall("[\udc80-\udcff]+|[^\udc80-\udcff]", text):
        if "\udc80" <= run[0] <= "\udcff":
            shown.append("⟨" + " ".join(f"{ord(byte) - 0xDC00:02X}" for byte in run) + "⟩")
        elif run in WHITESPACE:
            shown.append(WHITESPACE[run])
        elif ord(run) < 0x20:
            shown.append(chr(0x2400 + ord(run)))
        elif unicodedata.category(run) in ("Cc", "Cf", "Cn", "Co", "Zs", "Zl", "Zp"):
            shown.append(f"⟨U+{ord(run):04X}⟩")
        else:
            shown.append("◌" + run if unicodedata.category(run) in ("Mn", "Me") else run)
    return "".join(shown)


WHITESPACE = {" ": "·", "\n": "⏎", "\t": "⇥", "\x7f": "␡"}


# GPT-2's byte alphabet: printable Latin-1 bytes stand for themselves, the others for U+0100 and up
PLAIN = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
BYTE_OF = {chr(byte): byte for byte in PLAIN}
BYTE_OF |= {chr(256 + index): byte for index, byte in enumerate(byte for byte in range(256) if byte not in PLAIN)}
