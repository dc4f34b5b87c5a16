"""Tiny sentencepiece files, and a Marian repository as on the Hub: .spm files, vocab.json, no tokenizer.json."""

import io
import json
import random
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from transformers import MarianConfig

from tests.model.huggingface import families

ENGLISH = [
    "The cat sat on the old mat, and then it saw one big red ball near the door.",
    "A dog and a cat: the dog's ball is red, the cat's is not.",
    "It was the best of times, it was the worst of times; who knows?",
    "On the road, a bird sang: “Come here, come near!”",
]
GERMAN = [
    "Die Katze saß auf der alten Matte, und dann sah sie einen großen roten Ball nahe der Tür.",
    "Ein Hund und eine Katze: der Ball des Hundes ist rot, der der Katze nicht.",
    "Es war die beste und die schlimmste Zeit; wer weiß?",
    "Auf der Straße sang ein Vogel: „Komm her, komm näher!“",
]
LANGUAGE = ">>deu<<"


def sentencepieces(lines: list[str], kind: str, **options: Any) -> bytes:
    """Return the bytes of a trained sentencepiece file. kind: "unigram" or "bpe"."""
    written = io.BytesIO()
    given = {"model_type": kind, "vocab_size": 90, "hard_vocab_limit": False, "minloglevel": 2, "num_threads": 1}
    SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=written, **given | options)
    return written.getvalue()


def vocabulary(source: bytes, target: bytes, *, without: tuple[str, ...] = ()) -> dict[str, int]:
    """Return a vocabulary like Marian's: both files' pieces, shuffled, with </s> and <unk> first and <pad> last."""
    pieces = set()
    for content in (source, target):
        processor = SentencePieceProcessor(model_proto=content)
        pieces |= {processor.id_to_piece(token) for token in range(3, processor.get_piece_size())}
    words = sorted(pieces - set(without))
    random.Random(5).shuffle(words)
    return {piece: token for token, piece in enumerate(["</s>", "<unk>", *words, LANGUAGE, "<pad>"])}


def save(folder: Path, kind: str = "unigram") -> Path:
    """Save a random network and its two sentencepiece files, a few of whose pieces are not in vocab.json."""
    source, target = sentencepieces(ENGLISH, kind), sentencepieces(GERMAN, kind)
    ids = vocabulary(source, target, without=("w", "ß"))
    pad, end = ids["<pad>"], ids["</s>"]
    config = MarianConfig(
        **families.PAIR | {"vocab_size": len(ids), "pad_token_id": pad, "bos_token_id": end, "eos_token_id": end},
        decoder_start_token_id=pad,
        forced_eos_token_id=end,
    )
    families.random_network("marian", config).save_pretrained(folder)
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "eng", "target_lang": "deu"}))
    return folder
