"""From a module to a trial of it: what it reads, what it declares, how much its rounding moves it."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from model.language import say
from model.obey.declared import Mask, declare, farthest, layers_of
from model.obey.findings import CannotCheck
from model.obey.subject import Subject
from model.obey.tolerance import noise_of
from model.obey.trial import Trial

USUAL_LENGTH, MOST_LENGTH = 24, 64
SOURCE_LENGTHS = 7, 8  # of an encoder-decoder's source: another than the target's, so that the two cannot be confused
SPECIAL = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "unk_token_id", "mask_token_id")
CONTEXTS = ("max_position_embeddings", "n_positions", "n_ctx", "block_size", "max_seq_len")
COMPANY = 3  # rows that the noise is measured beside
PROBE = 3  # tokens on which the number of ids is found out, where no row is given


def prepare(
    subject: Subject,
    ids: Tensor | Sequence[int] | None,
    *,
    mask: Mask = None,
    length: int | None = None,
    seed: int = 0,
    kernels: tuple[str, ...] | None = None,
) -> Trial:
    """Everything that the laws are tried with. Raises CannotCheck for a module that gives no numbers, or for no ids."""
    if subject.kind == "decoder" and declares_encoder(subject):
        subject.kind = "encoder"
    given = None if ids is None else torch.as_tensor(ids).flatten().long()
    vocabulary = _vocabulary(subject, length or (PROBE if given is None else len(given)))
    pool = _pool(subject.config, vocabulary)
    generator = torch.Generator().manual_seed(seed)
    row = _random(pool, generator, _length(subject, length)) if given is None else _checked(given, vocabulary)
    row = row.to(subject.device)
    if subject.kind == "encoder-decoder":
        many = next(one for one in SOURCE_LENGTHS if one != len(row))
        subject.source = _random(pool, generator, many).to(row)
    declared = declare(subject.config, len(row), mask, subject.kind)
    _check_numbers(_first_outputs(subject, row))
    company = torch.stack([_random(pool, generator, len(row)) for _ in range(COMPANY)]).to(row)
    noise = noise_of(subject, row[None], company, seed)
    if not math.isfinite(noise.across):
        raise CannotCheck(say("one more rounding in every part turns its outputs into NaN: nothing can be told apart"))
    subject.find_positions(row, noise.across)
    return Trial(subject, row, pool, _pad(subject.config, vocabulary), declared, noise, seed, kernels)


def declares_encoder(subject: Subject) -> bool:
    """Whether a model of transformers' is an encoder by its class, and not told to be a decoder."""
    if not subject.is_transformers:
        return getattr(subject.config, "is_causal", None) is False
    from transformers import MODEL_FOR_MASKED_LM_MAPPING

    masked = type(subject.config) in MODEL_FOR_MASKED_LM_MAPPING
    return masked and not getattr(subject.config, "is_decoder", False)


def _first_outputs(subject: Subject, row: Tensor) -> Tensor:
    try:
        return subject.outputs(row[None])
    except CannotCheck:
        raise
    except Exception as error:
        raise CannotCheck(
            say("its forward raised {error} on {count} tokens: {words}",
                error=type(error).__name__, count=len(row), words=_first_line(error))
        ) from error  # fmt: skip


def _vocabulary(subject: Subject, length: int) -> int:
    """How many ids it reads: its configuration's number, or the size of the embedding that reads them."""
    config = subject.config
    text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    said = getattr(text, "vocab_size", None)
    if isinstance(said, int) and said > 1:
        return said
    ids = torch.zeros(1, max(length, 1), dtype=torch.long, device=subject.device)
    if subject.kind == "encoder-decoder":
        subject.source = ids[0]
    sizes: list[int] = []

    def look(part: nn.Module, arguments: tuple[Any, ...], _found: Any) -> None:
        read = arguments[0] if arguments else None
        if isinstance(part, nn.Embedding) and isinstance(read, Tensor) and torch.equal(read, ids):
            sizes.append(part.num_embeddings)

    hooks = [one.register_forward_hook(look) for one in subject.module.modules() if isinstance(one, nn.Embedding)]
    try:
        _first_outputs(subject, ids[0])
    finally:
        for hook in hooks:
            hook.remove()
    if not sizes or max(sizes) < 2:
        raise CannotCheck(say("no embedding was found that reads its ids: give it a config with vocab_size"))
    return max(sizes)


def _length(subject: Subject, asked: int | None) -> int:
    """Enough tokens to see past every window, where that is few; no more than its positions."""
    if asked is not None:
        if asked < 2:
            raise CannotCheck(say("expected a length of 2 tokens at least, got {asked}", asked=asked))
        return asked
    config = subject.config
    text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    limits = [getattr(text, one, None) for one in CONTEXTS]
    limit = min([one for one in limits if isinstance(one, int) and one > 1], default=MOST_LENGTH)
    reaches = farthest(layers_of(config, subject.kind))
    wanted = USUAL_LENGTH if reaches is None else max(USUAL_LENGTH, reaches + 4)
    return min(wanted if wanted <= MOST_LENGTH else USUAL_LENGTH, limit)


def _pool(config: Any, vocabulary: int) -> Tensor:
    """The ids that a text is made of: those that stand for nothing special, where there are two."""
    said = [getattr(config, one, None) for one in SPECIAL]
    special = {one for some in said for one in (some if isinstance(some, list) else [some])}
    usable = [one for one in range(vocabulary) if one not in special]
    return torch.tensor(usable if len(usable) > 1 else range(vocabulary))


def _pad(config: Any, vocabulary: int) -> int:
    pad = getattr(config, "pad_token_id", None)
    return pad if isinstance(pad, int) and 0 <= pad < vocabulary else 0


def _random(pool: Tensor, generator: torch.Generator, many: int) -> Tensor:
    return pool[torch.randint(0, len(pool), (many,), generator=generator)]


def _checked(row: Tensor, vocabulary: int) -> Tensor:
    if len(row) < 2 or int(row.min()) < 0 or int(row.max()) >= vocabulary:
        raise CannotCheck(say("expected at least 2 ids from 0 to {last}, got {ids}",
                              last=vocabulary - 1, ids=row.tolist()[:8]))  # fmt: skip
    return row


def _check_numbers(outputs: Tensor) -> None:
    """[1,T,V]. -inf is a number here: some models give it to entries that are never predicted."""
    wrong = (outputs.isnan() | outputs.isposinf()).any(-1)[0]
    if bool(wrong.any()):
        raise CannotCheck(say("its outputs are no numbers (NaN or infinity) from position {first} on",
                              first=int(wrong.nonzero()[0])))  # fmt: skip


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
