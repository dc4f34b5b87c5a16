"""Sentencepiece's files (.spm, .model) as tokenizers: its library cuts a text, a vocabulary gives the ids."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from sentencepiece import SentencePieceProcessor
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]  # made when it is imported
from tokenizers import PreTokenizedString, Token, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import PreTokenizer
from tokenizers.processors import TemplateProcessing

from i18n import N_, msg
from model.errors import CheckpointError
from model.huggingface.checkpoint_files import MARIAN, TOKENIZER_CONFIG, read_json

END, UNKNOWN, PAD = "</s>", "<unk>", "<pad>"  # as Marian's vocabularies write them
LANGUAGE = re.compile(">>.*?<<", re.DOTALL)  # >>fr<< before a text: what Marian is to translate it into, one token
NO_LANGUAGE = re.compile("(?!)")
STARTS, ENDS = (True, False), (False, True)
ADDED = {  # families whose ids are the file's own: whether a text gets a start and an end
    **dict.fromkeys(("llama", "mistral", "mixtral", "gemma", "gemma2", "gemma3_text"), STARTS),
    **dict.fromkeys(("t5", "mt5", "umt5"), ENDS),
}
TWO_VOCABULARIES = N_(
    "{model} has a vocabulary for its texts and another for its targets (separate_vocabs), and Unmask reads one for "
    "both. Choose a repository whose vocab.json contains both languages."
)
BAD_ID = N_("{model}: {file} gives {piece!r} the id {id!r}. Fetch the file again.")
NO_PIECE = N_("{model}: {file} has no {piece}. Fetch the file again.")
LONE_FILE = N_(
    "{model} ({kind}) has its tokenizer in {file} alone, which is enough for {families}. Save its fast tokenizer "
    "(tokenizer.json) beside its weights, or choose another repository."
)
DAMAGED = N_("{model}: {file} is not a sentencepiece file, or is damaged or truncated. Delete it and fetch it again.")


def read_marian(name: str, folder: Path) -> tuple[Tokenizer, Tokenizer]:
    """Marian's two: source.spm cuts the texts and target.spm the targets, and the ids of both are vocab.json's.

    Raises CheckpointError, naming the file, for one that is damaged or that cannot be used.
    """
    source, target, vocabulary = (folder / part for part in MARIAN)
    if _said(name, folder).get("separate_vocabs"):
        raise CheckpointError(msg(TWO_VOCABULARIES, model=name))
    ids = read_json(name, vocabulary)
    bad = [piece for piece, token in ids.items() if type(token) is not int or token < 0]
    lacks = [piece for piece in (END, UNKNOWN) if piece not in ids]
    if bad:
        raise CheckpointError(msg(BAD_ID, model=name, file=vocabulary.name, piece=bad[0], id=ids[bad[0]]))
    if lacks:
        raise CheckpointError(msg(NO_PIECE, model=name, file=vocabulary.name, piece=lacks[0]))
    # a typed </s> is text, also to a file that knows none of its letters and gives it back as one unknown piece
    words = {piece: token for piece, token in ids.items() if piece not in (END, UNKNOWN, PAD)}
    cutters = [_Cutter(_processor(name, path), words, ids[UNKNOWN], LANGUAGE) for path in (source, target)]
    of_texts, of_targets = (_tokenizer(cutter, ids, [], [END]) for cutter in cutters)
    return of_texts, of_targets


def read_lone(name: str, path: Path, model_type: str) -> Tokenizer:
    """The tokenizer of a family whose ids are those of its one file, tokenizer.model or spiece.model.

    Raises CheckpointError for a damaged file, and for a family that numbers the pieces or prepares its texts otherwise.
    """
    if model_type not in ADDED:
        raise CheckpointError(msg(LONE_FILE, model=name, kind=model_type, file=path.name, families=", ".join(ADDED)))
    processor, said = _processor(name, path), _said(name, path.parent)
    pieces = {processor.id_to_piece(token): token for token in range(processor.get_piece_size())}
    words = {piece: token for piece, token in pieces.items() if not processor.is_control(token)}
    asked = said.get("add_bos_token"), said.get("add_eos_token")
    starts, ends = (usual if one is None else bool(one) for one, usual in zip(asked, ADDED[model_type], strict=True))
    sides = [processor.bos_id()] if starts else [], [processor.eos_id()] if ends else []
    around = ([processor.id_to_piece(token) for token in side if token >= 0] for side in sides)
    cutter = _Cutter(processor, words, processor.unk_id(), NO_LANGUAGE)
    # those that were added behind the file's own: no text holds them, but a model may predict them
    more = {token["content"]: int(number) for number, token in said.get("added_tokens_decoder", {}).items()}
    return _tokenizer(cutter, pieces | {one: token for one, token in more.items() if token >= len(pieces)}, *around)


class _Cutter:
    """A pre-tokenizer that gives every piece its id, and so leaves the model behind it nothing to do.

    The tokenizers library has the same algorithms, but not sentencepiece's every normalisation and tie; and its
    Unigram's ids are the places in its list, where Marian's are of a vocabulary that two lists share.
    """

    def __init__(
        self, processor: SentencePieceProcessor, ids: Mapping[str, int], unknown: int, before: re.Pattern[str]
    ) -> None:
        """before: what is one token when a text begins with it."""
        self._processor, self._ids, self._unknown, self._before = processor, ids, unknown, before

    def pre_tokenize(self, text: PreTokenizedString) -> None:
        text.tokenize(self._tokens)

    def _tokens(self, text: str) -> list[Token]:
        """With their offsets, which the library counts in bytes."""
        found = self._before.match(text)
        first = found[0] if found else ""
        skipped = len(first.encode())
        cut = self._processor.encode(text[len(first) :].encode(), return_type="offset_mapping")
        pieces = [(first, 0, skipped)] if first else []
        for piece, (begin, end) in zip(cut["pieces"], cut["offsets"], strict=True):
            pieces.append((piece.decode(), begin + skipped, end + skipped))
        return [Token(self._ids.get(piece, self._unknown), piece, (begin, end)) for piece, begin, end in pieces]


def _tokenizer(cutter: _Cutter, ids: dict[str, int], start: list[str], end: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(WordLevel(ids))
    tokenizer.pre_tokenizer = PreTokenizer.custom(cutter)
    if special := [(piece, ids[piece]) for piece in (*start, *end)]:
        tokenizer.post_processor = TemplateProcessing(single=[*start, "$A", *end], special_tokens=special)
    return tokenizer


def _processor(name: str, path: Path) -> SentencePieceProcessor:
    """Raises CheckpointError for a file that is not whole, one that ends between two of its fields included."""
    content = path.read_bytes()
    processor = SentencePieceProcessor()
    try:
        if ModelProto.FromString(content).HasField("normalizer_spec"):  # the last that is always written
            processor.LoadFromSerializedProto(content)
            return processor
    except (DecodeError, RuntimeError):
        pass
    raise CheckpointError(msg(DAMAGED, model=name, file=path.name))


def _said(name: str, folder: Path) -> dict[str, Any]:
    path = folder / TOKENIZER_CONFIG
    return read_json(name, path) if path.is_file() else {}
