"""A checked folder to a network and a tokenizer, by transformers: safetensors alone, never a repository's own code."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.utils import logging

from model.errors import CheckpointError, NotSupported, first_line
from model.huggingface import checkpoint_files, formats, lora
from model.huggingface.refusals import refusal
from model.huggingface.sentencepieces import read_lone, read_marian
from model.huggingface.stacks import vocabulary_of
from model.huggingface.weights import Head, check_report, class_for
from model.text import BatchTokenizer, added_around

SAFE: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}

logging.disable_progress_bar()


@dataclass(frozen=True)
class Tokens:
    """How a network reads and writes. targets: for an encoder-decoder's, else None.

    ends: the ids that close a written text. never_written: ids that stand for no text, padding for example.
    """

    texts: BatchTokenizer
    targets: BatchTokenizer | None
    ends: frozenset[int]
    never_written: list[int]


def read_network(name: str, folder: Path) -> tuple[PreTrainedModel, Head]:
    """The network in folder with eager attention, ready to run, and what the folder holds of its head.

    An adapter that lies beside it is merged into it.
    float32 on a CPU, the checkpoint's own type on a GPU. Raises CheckpointError for weights that do not fit.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        config = AutoConfig.from_pretrained(folder, **SAFE)
        network, report = class_for(config).from_pretrained(
            folder,
            config=config,
            dtype=_type_on(device),
            use_safetensors=True,
            attn_implementation="eager",
            output_loading_info=True,
            variant=formats.variant(checkpoint_files.local_files(folder)),
            adapter_kwargs=lora.UNSEEN,
            **SAFE,
        )
    except NotSupported as error:
        raise refusal(name, config.model_type, str(error)) from None
    except Exception as error:  # noqa: BLE001 - a damaged file raises whatever its reader happens to raise
        raise CheckpointError(f"{name}: the weights do not fit the configuration ({first_line(error)}).") from None
    head = check_report(name, network, report)
    head = replace(head, adapted=lora.merge(name, network, folder))
    return network.eval().requires_grad_(False).to(device), head


def read_tokenizers(name: str, folder: Path, model_type: str) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizer of the texts and that of an encoder-decoder's targets: the same one, but for Marian.

    Raises CheckpointError where there is none, or a damaged one, or one that knows next to no tokens.
    """
    files = checkpoint_files.tokenizer_files(name, checkpoint_files.local_files(folder))
    try:
        tokenizers = _read(name, folder, files, model_type)
        for tokenizer in tokenizers:
            tokenizer.encode("a")  # one that refuses a letter would refuse most texts
    except CheckpointError:
        raise
    except Exception as error:  # noqa: BLE001 - the libraries raise plain Exception
        raise CheckpointError(
            f"{name}: its tokenizer cannot be read ({first_line(error)}). Its {' and '.join(files)} must be whole."
        ) from None
    if min(tokenizer.get_vocab_size() for tokenizer in tokenizers) < 2:
        raise CheckpointError(f"{name} has no tokenizer that knows any token. Save its tokenizer beside its weights.")
    return tokenizers


def check_vocabulary(name: str, network: PreTrainedModel, tokenizer: Tokenizer) -> None:
    """Raises CheckpointError when the tokenizer has ids that the network does not know."""
    highest, known = max(tokenizer.get_vocab().values()), vocabulary_of(network)
    if highest >= known:
        raise CheckpointError(
            f"{name}: its tokenizer has ids up to {highest} and its weights know {known} entries. "
            "They are not of one model."
        )


def tokens_of(network: PreTrainedModel, tokenizers: tuple[Tokenizer, Tokenizer], context: int) -> Tokens:
    """The encoders of a network's texts and targets, with all that their tokenizers add around them."""
    config, (tokenizer, of_targets) = network.config, tokenizers
    start, end = added_around(tokenizer)
    ends = frozenset().union(*(_ids(getattr(said, "eos_token_id", None)) for said in _configs(network)))
    pad = _padding(config, tokenizer, ends, vocabulary_of(network))
    texts = BatchTokenizer(tokenizer, context, pad=pad, start=start, end=end)
    if not config.is_encoder_decoder:
        return Tokens(texts, None, ends, [])
    first = _first_of_target(network, pad)
    targets = BatchTokenizer(of_targets, context, pad=pad, start=[first, *added_around(of_targets)[0]])
    return Tokens(texts, targets, ends, sorted({pad, first} - ends))


def _read(name: str, folder: Path, files: tuple[str, ...], model_type: str) -> tuple[Tokenizer, Tokenizer]:
    if files == checkpoint_files.MARIAN:
        return read_marian(name, folder)
    if files[0] in checkpoint_files.LONE:
        tokenizer = read_lone(name, folder / files[0], model_type)
    elif files == ("tokenizer.json",):  # as it is: transformers rebuilds some families', and the rest gets lost
        tokenizer = Tokenizer.from_file(str(folder / files[0]))
    else:
        built = AutoTokenizer.from_pretrained(folder, **SAFE)
        tokenizer = Tokenizer.from_str(built.backend_tokenizer.to_str())  # a copy of our own
    return tokenizer, tokenizer


def _type_on(device: str) -> torch.dtype | str:
    """float32 where it costs little, the checkpoint's own type ("auto") where it is fast."""
    return torch.float32 if device == "cpu" else "auto"


def _padding(config: PreTrainedConfig, tokenizer: Tokenizer, ends: frozenset[int], known: int) -> int:
    """The id in padded cells: the model's own, or the tokenizer's, or for want of one the closing token."""
    own = getattr(config, "pad_token_id", None)
    named = [tokenizer.token_to_id(token) for token in ("<pad>", "[PAD]", "<|pad|>")]
    usable = [token for token in (own, *named, *sorted(ends)) if token is not None and 0 <= token < known]
    return usable[0] if usable else 0


def _first_of_target(network: PreTrainedModel, pad: int) -> int:
    for config in _configs(network):
        token = getattr(config, "decoder_start_token_id", None)
        if token is not None:
            return int(token)
    return pad


def _configs(network: PreTrainedModel) -> list[Any]:
    """Where a network may say how its texts begin and end, the most particular first."""
    found = getattr(network, "generation_config", None), network.config
    return [config for config in found if config is not None]


def _ids(tokens: int | list[int] | None) -> frozenset[int]:
    return frozenset() if tokens is None else frozenset([tokens] if isinstance(tokens, int) else tokens)
