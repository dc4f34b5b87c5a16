"""Reading of a model's tokenizers from files that checkpoint_files.py has checked, before loading.py reads the network.

Includes sentencepiece files (.spm, .model): sentencepiece splits a text, and a vocabulary gives the ids.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from sentencepiece import SentencePieceProcessor
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]  # created at import
from tokenizers import PreTokenizedString, Token, Tokenizer, decoders
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import PreTokenizer
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, PreTrainedModel

from i18n import N_, msg, msg_all
from model.errors import CheckpointError, first_line, panics_caught
from model.huggingface import checkpoint_files
from model.huggingface.checkpoint_files import MARIAN, SENTENCEPIECE_FILES, TOKENIZER_CONFIG, read_json
from model.huggingface.described import SAFE
from model.huggingface.stacks import vocabulary_of
from model.text import BatchTokenizer, added_around

END, UNKNOWN, PAD = "</s>", "<unk>", "<pad>"  # in Marian's vocabularies
LANGUAGE = re.compile(">>.*?<<", re.DOTALL)  # >>fr<< before a text: Marian's target language, one token
NO_LANGUAGE = re.compile("(?!)")
STARTS, ENDS = (True, False), (False, True)
ADDED = {  # model types that use the file's own ids -> whether they add a start and an end token
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
    "{model} ({kind}) has its tokenizer only in {file}, which is enough only for {families}. Save its fast tokenizer "
    "(tokenizer.json) beside its weights, or choose another repository."
)
DAMAGED = N_("{model}: {file} is not a sentencepiece file, or is damaged or truncated. Delete it and fetch it again.")
UNREADABLE = N_("{model}: its tokenizer cannot be read ({why}). Its {files} must be complete.")
OTHER_VOCABULARY = N_(
    "{model}: its tokenizer has ids up to {highest}, but its weights have {known} entries. They do not belong to the "
    "same model: fetch both again."
)


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of a network. targets: of an encoder-decoder, else None. ends: the ids that end a generated text.
    never_generated: ids that are never generated, padding for example.
    """

    texts: BatchTokenizer
    targets: BatchTokenizer | None
    ends: frozenset[int]
    never_generated: list[int]


def read_tokenizers(name: str, folder: Path, model_type: str) -> tuple[Tokenizer, Tokenizer]:
    """Return the tokenizers of texts and of an encoder-decoder's targets, which differ only for Marian.

    Raises CheckpointError if there is none, or it is damaged or empty.
    """
    folder = checkpoint_files.tokenizer_folder(name, folder)
    files = checkpoint_files.tokenizer_files(name, checkpoint_files.local_files(folder))
    try:
        with panics_caught():
            tokenizers = _read(name, folder, files, model_type)
            for tokenizer in tokenizers:
                tokenizer.encode("a")
    except CheckpointError:
        raise
    except Exception as error:  # noqa: BLE001 - the libraries raise plain Exception
        raise CheckpointError(msg(UNREADABLE, model=name, why=first_line(error), files=msg_all(files))) from None
    if min(tokenizer.get_vocab_size() for tokenizer in tokenizers) < 2:
        template = N_("{model} has no tokenizer that knows any token. Save its tokenizer beside its weights.")
        raise CheckpointError(msg(template, model=name))
    return tokenizers


def check_vocabulary(name: str, network: PreTrainedModel, tokenizer: Tokenizer) -> None:
    """Check that the tokenizer's ids are all in the network's embedding. Raises CheckpointError."""
    highest, known = max(tokenizer.get_vocab().values()), vocabulary_of(network)
    if highest >= known:
        raise CheckpointError(msg(OTHER_VOCABULARY, model=name, highest=highest, known=known))


def tokens_of(network: PreTrainedModel, tokenizers: tuple[Tokenizer, Tokenizer], context: int) -> Tokenizers:
    """Return the tokenizers of a network's texts and targets, with the tokens that they add around each text."""
    config, (tokenizer, of_targets) = network.config, tokenizers
    configs = [getattr(network, "generation_config", None), config]  # the more specific one first
    start, end = added_around(tokenizer)
    ended = [getattr(source, "eos_token_id", None) for source in configs]
    ends = frozenset(chain.from_iterable([ids] if isinstance(ids, int) else ids or () for ids in ended))
    # the padding id: the model's, else the tokenizer's, else an end token
    named = [tokenizer.token_to_id(token) for token in ("<pad>", "[PAD]", "<|pad|>")]
    usable = (getattr(config, "pad_token_id", None), *named, *sorted(ends))
    known = vocabulary_of(network)
    pad = next((token for token in usable if token is not None and 0 <= token < known), 0)
    texts = BatchTokenizer(tokenizer, context, pad=pad, start=start, end=end)
    if not config.is_encoder_decoder:
        return Tokenizers(texts, None, ends, [])
    starts = [getattr(source, "decoder_start_token_id", None) for source in configs]
    first = next((int(token) for token in starts if token is not None), pad)
    targets = BatchTokenizer(of_targets, context, pad=pad, start=[first, *added_around(of_targets)[0]])
    return Tokenizers(texts, targets, ends, sorted({pad, first} - ends))


def _read(name: str, folder: Path, files: tuple[str, ...], model_type: str) -> tuple[Tokenizer, Tokenizer]:
    if files == MARIAN:
        return _read_marian(name, folder)
    if files[0] in SENTENCEPIECE_FILES:
        tokenizer = _read_lone(name, folder / files[0], model_type)
    elif files == ("tokenizer.json",):  # unchanged: transformers rebuilds some families' tokenizers and loses the rest
        tokenizer = Tokenizer.from_file(str(folder / files[0]))
    else:
        gguf = {"gguf_file": files[0]} if files[0].endswith(".gguf") else {}
        built = AutoTokenizer.from_pretrained(folder, **gguf, **SAFE).backend_tokenizer.to_str()
        if gguf:  # the tokenizer class adds tokens to the file's vocabulary
            parts = json.loads(built)
            known = len(parts["model"]["vocab"])
            built = json.dumps(parts | {"added_tokens": [one for one in parts["added_tokens"] if one["id"] < known]})
        tokenizer = Tokenizer.from_str(built)  # a private copy
    return tokenizer, tokenizer


def _read_marian(name: str, folder: Path) -> tuple[Tokenizer, Tokenizer]:
    """Return Marian's two tokenizers: source.spm splits texts, target.spm targets, and vocab.json has the ids of both.
    Raises CheckpointError, naming the file, for a damaged or unusable one."""
    source, target, vocabulary = (folder / part for part in MARIAN)
    if _tokenizer_config(name, folder).get("separate_vocabs"):
        raise CheckpointError(msg(TWO_VOCABULARIES, model=name))
    ids = read_json(name, vocabulary)
    bad = [piece for piece, token in ids.items() if type(token) is not int or token < 0]
    lacks = [piece for piece in (END, UNKNOWN) if piece not in ids]
    if bad:
        raise CheckpointError(msg(BAD_ID, model=name, file=vocabulary.name, piece=bad[0], id=ids[bad[0]]))
    if lacks:
        raise CheckpointError(msg(NO_PIECE, model=name, file=vocabulary.name, piece=lacks[0]))
    # a typed </s> is text, even for a file without its letters, which returns it as one unknown piece
    plain = {piece: token for piece, token in ids.items() if piece not in (END, UNKNOWN, PAD)}
    cutters = [
        _SentencePiecePreTokenizer(_processor(name, path), plain, ids[UNKNOWN], LANGUAGE) for path in (source, target)
    ]
    of_texts, of_targets = (_tokenizer(cutter, ids, [], [END]) for cutter in cutters)
    return of_texts, of_targets


def _read_lone(name: str, path: Path, model_type: str) -> Tokenizer:
    """Return the tokenizer of a family whose ids are those of its only file, tokenizer.model or spiece.model. Raises
    CheckpointError for a damaged file, and for a family that numbers the pieces or prepares texts differently."""
    if model_type not in ADDED:
        raise CheckpointError(msg(LONE_FILE, model=name, kind=model_type, file=path.name, families=", ".join(ADDED)))
    processor, config = _processor(name, path), _tokenizer_config(name, path.parent)
    pieces = {processor.id_to_piece(token): token for token in range(processor.get_piece_size())}
    plain = {piece: token for piece, token in pieces.items() if not processor.is_control(token)}
    flags = config.get("add_bos_token"), config.get("add_eos_token")
    starts, ends = (usual if one is None else bool(one) for one, usual in zip(flags, ADDED[model_type], strict=True))
    sides = [processor.bos_id()] if starts else [], [processor.eos_id()] if ends else []
    around = ([processor.id_to_piece(token) for token in side if token >= 0] for side in sides)
    cutter = _SentencePiecePreTokenizer(processor, plain, processor.unk_id(), NO_LANGUAGE)
    # tokens added after the file's own: they occur in no text, but a model may predict them
    more = {token["content"]: int(number) for number, token in config.get("added_tokens_decoder", {}).items()}
    return _tokenizer(cutter, pieces | {one: token for one, token in more.items() if token >= len(pieces)}, *around)


class _SentencePiecePreTokenizer:
    """A pre-tokenizer that assigns every piece its id, so that the model after it has nothing to do. The tokenizers
    library has the same algorithms, but not all of sentencepiece's normalizations and ties; and its Unigram's ids are
    indices of its list, whereas Marian's come from a vocabulary that two lists share."""

    def __init__(
        self, processor: SentencePieceProcessor, ids: Mapping[str, int], unknown: int, before: re.Pattern[str]
    ) -> None:
        """before: a pattern that is one token at the beginning of a text."""
        self._processor, self._ids, self._unknown, self._before = processor, ids, unknown, before

    def pre_tokenize(self, text: PreTokenizedString) -> None:
        text.tokenize(self._tokens)

    def _tokens(self, text: str) -> list[Token]:
        """Split a text into tokens; the library counts their offsets in bytes."""
        found = self._before.match(text)
        first = found[0] if found else ""
        skipped = len(first.encode())
        cut = self._processor.encode(text[len(first) :].encode(), return_type="offset_mapping")
        pieces = [(first, 0, skipped)] if first else []
        for piece, (begin, end) in zip(cut["pieces"], cut["offsets"], strict=True):
            pieces.append((piece.decode(), begin + skipped, end + skipped))
        return [Token(self._ids.get(piece, self._unknown), piece, (begin, end)) for piece, begin, end in pieces]


def _tokenizer(cutter: _SentencePiecePreTokenizer, ids: dict[str, int], start: list[str], end: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(WordLevel(ids))
    tokenizer.pre_tokenizer = PreTokenizer.custom(cutter)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    if special := [(piece, ids[piece]) for piece in (*start, *end)]:
        tokenizer.post_processor = TemplateProcessing(single=[*start, "$A", *end], special_tokens=special)
    return tokenizer


def _processor(name: str, path: Path) -> SentencePieceProcessor:
    """Read a sentencepiece file. Raises CheckpointError for an incomplete one, even if it ends between two fields."""
    content = path.read_bytes()
    processor = SentencePieceProcessor()
    try:
        if ModelProto.FromString(content).HasField("normalizer_spec"):  # the last field that is always written
            processor.LoadFromSerializedProto(content)
            return processor
    except (DecodeError, RuntimeError):
        pass
    raise CheckpointError(msg(DAMAGED, model=name, file=path.name))


def _tokenizer_config(name: str, folder: Path) -> dict[str, Any]:
    path = folder / TOKENIZER_CONFIG
    return read_json(name, path) if path.is_file() else {}
