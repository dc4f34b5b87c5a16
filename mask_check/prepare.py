"""The preparation of a trial: the row of ids, the declared masks, and the size of rounding."""

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from i18n import N_, msg, msg_all, msg_together
from mask_check.declared import declare, farthest, layers_of
from mask_check.findings import CannotCheck
from mask_check.kernels import check_names, row_mixing_cause
from mask_check.subject import CheckedModule, class_in, embeddings, hooks_on, text_config
from mask_check.trial import DEFAULT_OPTIONS, CheckOptions, CheckTrial, noise_of, refuses
from model.errors import first_line
from model.spec import MAX_POSITIONS
from serving import machine

TOO_LARGE = N_(
    "expected fewer than {asked:,} tokens: about {needed:,.1f} GB would be needed, and {free:,.1f} GB are free"
)
USUAL_LENGTH, MAX_LENGTH = 24, 64
SOURCE_LENGTHS = 7, 8  # of an encoder-decoder's source: the one unlike the target's, so that they cannot be confused
SPECIAL = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "unk_token_id", "mask_token_id")
HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads", "decoder_attention_heads")
CONTEXTS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
NUM_OTHER_ROWS = 3  # other rows in the batch in which noise is measured
PROBE = 3  # tokens for finding the vocabulary size, if no row is given
MEMORY_SHARE = 0.5  # most that a check may need by estimate, as a share of free memory
COPIES = 4  # of a layer's scores in memory at once, for ROWS rows: scores, mask, weights and the product
ROWS = 5


def prepare(
    subject: CheckedModule,
    ids: Tensor | Sequence[int] | None,
    *,
    options: CheckOptions = DEFAULT_OPTIONS,
    length: int | None = None,
    seed: int = 0,
) -> CheckTrial:
    """Prepare a trial. Raises CannotCheck for a module whose outputs are not finite, or differ between two runs; for
    ids that it does not have, more tokens than its positions or the memory allow, and kernels that do not exist."""
    check_names(subject, options.kernels)
    recognize_encoder(subject)
    given = None if ids is None else row_of(ids)
    requested = length if given is None else len(given)
    for count in (requested, options.tokens):
        if count is not None:
            check_length(subject, count)
    vocabulary = vocabulary_of(subject, requested) if requested else _probed_vocabulary(subject)
    named = [getattr(subject.config, one, None) for one in SPECIAL]
    special = {one for some in named for one in (some if isinstance(some, list) else [some])}
    usable = [one for one in range(vocabulary) if one not in special]
    pool = torch.tensor(usable if len(usable) > 1 else range(vocabulary))
    generator = generator_of(seed)
    max_tokens = _max_tokens(subject, vocabulary)
    if length is None:  # past every window, if that takes few tokens; at most its positions
        past = (farthest(layers_of(subject.config, subject.kind)) or 0) + 4
        wanted = past if USUAL_LENGTH < past <= MAX_LENGTH else USUAL_LENGTH
        length = min(wanted, max_tokens or MAX_LENGTH)
    row = _random(pool, generator, length) if given is None else checked(given, vocabulary)
    row = row.to(subject.device)
    if subject.kind == "encoder-decoder":
        many = next(one for one in SOURCE_LENGTHS if one != len(row))
        subject.source = _random(pool, generator, many).to(row)
    declared = declare(subject.config, len(row), options.mask, subject.kind)
    check_finite(_first_outputs(subject, row)[0])
    other_rows = torch.stack([_random(pool, generator, len(row)) for _ in range(NUM_OTHER_ROWS)]).to(row)
    with raising_cannot_check(subject, row):
        noise = noise_of(subject, row[None], other_rows, seed)
    if not math.isfinite(noise.across):
        raise CannotCheck(msg("one more rounding in every part turns its outputs into NaN: nothing can be measured"))
    with raising_cannot_check(subject, row):
        subject.find_positions(row, noise.across)
    pad = getattr(subject.config, "pad_token_id", None)
    pad = pad if isinstance(pad, int) and 0 <= pad < vocabulary else 0
    return CheckTrial(subject, row, pool, pad, declared, noise, seed, options, max_tokens)


def check_finite(outputs: Tensor) -> None:
    """Check outputs [T,V]. Raises CannotCheck if they are NaN or infinite, except for the -inf that some models give to
    entries that are never predicted."""
    wrong = (outputs.isnan() | outputs.isposinf()).any(-1)
    if bool(wrong.any()):
        first = int(wrong.nonzero()[0])
        raise CannotCheck(msg("its outputs are not finite (NaN or infinity) from position {first} on", first=first))


def recognize_encoder(subject: CheckedModule) -> None:
    """Set the kind to "encoder" for an encoder: transformers' by class, unless they are configured as decoders."""
    if subject.kind != "decoder":
        return
    if not subject.is_transformers_model and getattr(subject.config, "is_causal", None) is False:
        subject.kind = "encoder"
    elif subject.is_pretrained_model and _is_encoder_of_transformers(subject):
        subject.kind, subject.config = "encoder", text_config(subject.config, encoder=True)


def _is_encoder_of_transformers(subject: CheckedModule) -> bool:
    """Whether it is an encoder by its configuration and name; else by the masks that its file makes, or by its
    tasks."""
    import transformers as hf

    kind = type(subject.inner)
    own = class_in("transformers.models.", subject.inner) or kind
    config, name = subject.config, own.__name__  # for a class derived from a model, the model's name
    if "Decoder" in name or any(getattr(config, says, False) for says in ("is_decoder", "causal")):
        return False
    if "Encoder" in name or type(config) in hf.MODEL_FOR_MASKED_LM_MAPPING:
        return True
    made = getattr(sys.modules.get(own.__module__), "__dict__", {})
    both_ways, causal = ("create_bidirectional_mask" in made, "create_causal_mask" in made)
    if both_ways != causal and text_config(config) is config:  # else its text part may be from another file
        return both_ways
    tasks = hf.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING, hf.MODEL_FOR_QUESTION_ANSWERING_MAPPING
    return type(config) not in hf.MODEL_FOR_CAUSAL_LM_MAPPING and any(type(config) in task for task in tasks)


@contextmanager
def raising_cannot_check(subject: CheckedModule, row: Tensor) -> Iterator[None]:
    """Turn what its forward raises on the row [T], within the context, into CannotCheck."""
    try:
        yield
    except (CannotCheck, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, TypeError) and any(repr(name) in str(error) for name in subject.needs):
            words = N_(
                "its forward needs more than {ids}: check a wrapper that takes {ids} alone and passes on {needed}"
            )
            raise CannotCheck(msg(words, ids=subject.ids_name, needed=msg_all(subject.needs))) from error
        why, mixed = N_("its forward raised {error} on {count} tokens: {words}"), row_mixing_cause(subject.module)
        longer = N_("its forward raised {error} on {count} tokens, and none on {fewer}: {words}")
        several = N_("its forward raised {error} on several rows of {count} tokens, and none on one of them: {words}")
        ids = N_(
            "its forward raised {error} on {count} tokens with ids up to {last}, and none where all are 0: {words}. If "
            "its vocabulary is smaller, give it a config with vocab_size"
        )
        some = N_(
            "its forward raised {error} on {count} tokens: {words}. If it takes rows of some lengths only, give one of "
            "them: length= in Python, --length on the command line"
        )
        if isinstance(error, IndexError) and not refuses(subject, torch.zeros_like(row)[None]):
            why, mixed = ids, ""
        elif not refuses(subject, row[None]) and refuses(subject, row.repeat(NUM_OTHER_ROWS + 1, 1)):
            why = several
        elif not refuses(subject, row[None, :PROBE]):
            why, mixed = (longer if len(row) > PROBE else why), ""
        elif len(row) > PROBE and not mixed:
            why = some
        values = {"error": type(error).__name__, "count": len(row), "fewer": PROBE, "last": int(row.max())}
        why = msg(why, **values, words=first_line(error).rstrip("."))
        raise CannotCheck(msg_together([msg("{problem}.", problem=why), mixed]) if mixed else why) from error


def _first_outputs(subject: CheckedModule, row: Tensor) -> Tensor:
    with raising_cannot_check(subject, row):
        return subject.outputs(row[None])


def check_seconds(seconds: Any) -> None:
    """Check a time limit. Raises CannotCheck for anything else."""
    if seconds is not None and not (isinstance(seconds, int | float) and seconds >= 0):
        raise CannotCheck(msg("expected a number of seconds, got {seconds}", seconds=repr(seconds)[:40]))


def vocabulary_of(subject: CheckedModule, length: int) -> int:
    """Return the number of ids: from its configuration, or the size of the embedding that looks them up. They may stand
    among tokens of its own, such as one before them and padding after them, with the last of them cut off."""
    size = None if subject.table is not None else getattr(text_config(subject.config, decoder=True), "vocab_size", None)
    if isinstance(size, int) and size > 1:
        return size
    # 1, 0, 1 …: numbers of positions or documents, and hashes of several ids, differ from these
    ids = (torch.arange(length, device=subject.device)[None] + 1) % 2
    if subject.kind == "encoder-decoder":
        subject.source = ids[0]
    seen: list[tuple[Tensor, int]] = []

    def look(part: nn.Embedding, arguments: tuple[Any, ...], _found: Any) -> None:
        read = arguments[0] if arguments else None
        if isinstance(read, Tensor) and read.ndim == 2 and len(read) == 1:
            seen.append((read[0], part.num_embeddings))

    def sizes_of(reading: Tensor) -> list[int]:
        long = ((read.unfold(0, len(reading), 1), size) for read, size in seen if len(read) >= len(reading))
        return [size for parts, size in long if bool((parts == reading).all(1).any())]

    with subject.uncompiled(), hooks_on(subject.embeddings, look):
        _first_outputs(subject, ids[0])
    if subject.table is not None:
        return subject.table.num_embeddings
    sizes = sizes_of(ids[0]) or sizes_of(ids[0, :-1])
    if not sizes or max(sizes) < 2:
        words = N_(
            "no embedding was found that reads its ids [B,T]: give it a config with vocab_size or, if its forward "
            "takes [T,B], pass one that takes [B,T]"
        )
        raise CannotCheck(msg(words))
    return max(sizes)


def _probed_vocabulary(subject: CheckedModule) -> int:
    """Return the number of ids, by a row of PROBE tokens or, as some modules take no fewer, the usual number."""
    try:
        return vocabulary_of(subject, PROBE)
    except CannotCheck:
        return vocabulary_of(subject, min(USUAL_LENGTH, _max_tokens(subject, None) or USUAL_LENGTH))


def context_of(config: Any) -> tuple[int, str]:
    """Return how many positions a configuration declares, and the name of that field; 0 if it declares none."""
    text = text_config(config, decoder=True)
    for names in (CONTEXTS, ("block_size",)):  # nanoGPT's name, which BigBird uses for something else
        known = [(many, name) for name in names if isinstance(many := getattr(text, name, None), int) and many > 1]
        if known:
            return min(known)
    return 0, ""


def _max_tokens(subject: CheckedModule, vocabulary: int | None) -> int:
    """Return the most tokens that it takes, by its configuration. If it declares none: on a GPU, which no longer
    responds after an index out of range, what fits into all its tables but that of its ids; on the CPU 0, unknown."""
    context = context_of(subject.config)[0]
    return context or (table_capacity(subject.inner, vocabulary) if subject.device.type != "cpu" else 0)


def table_capacity(module: nn.Module, vocabulary: int | None = None) -> int:
    """Return the fewest rows of what may be a table of positions or a mask in a module: its embeddings but one of
    `vocabulary` ids, tensors [..,T,D] that begin with 1, and square ones that are not learned."""
    stored = [*module.parameters(), *module.buffers()]
    tables = [one.shape[-2] for one in stored if one.ndim > 2 and one.shape[0] == 1]
    fixed = [one.shape for one in stored if one.ndim == 2 and not one.requires_grad]
    masks = [rows for rows, columns in fixed if rows == columns]
    sizes = [one.num_embeddings for one in embeddings(module)]
    if vocabulary in sizes:
        sizes.remove(vocabulary)
    return int(min([MAX_POSITIONS, *(one for one in (*sizes, *tables, *masks) if one > 2)]))


def usual_length(module: nn.Module, usual: int, *, guess: bool) -> int:
    """Return `usual`, or what its context allows; if that is not declared and guess is set, what its tables and masks
    may have room for."""
    context = context_of(getattr(module, "config", None))[0]
    if context or not guess:
        return min(usual, context or usual)
    return max(min(usual, table_capacity(module)), 2)


def generator_of(seed: Any) -> torch.Generator:
    if type(seed) is not int or not 0 <= seed < 2**31:
        raise CannotCheck(msg("expected a seed from 0 to {most}, got {seed}", most=2**31 - 1, seed=repr(seed)[:40]))
    return torch.Generator().manual_seed(seed)


def check_length(subject: CheckedModule, length: Any) -> None:
    if type(length) is not int or length < 2:
        raise CannotCheck(msg("expected a length of at least 2 tokens, got {asked}", asked=repr(length)[:40]))
    context, name = context_of(subject.config)
    if context and length > context:
        values = {"most": context, "name": name, "asked": length}
        raise CannotCheck(msg("expected at most {most:,} tokens, which is its {name}, got {asked:,}", **values))
    needed, free = needed_bytes(subject.config, length), machine.free_bytes()
    if needed > MEMORY_SHARE * free:
        values = {"asked": length, "needed": needed / 1e9, "free": free / 1e9}
        raise CannotCheck(msg(TOO_LARGE, **values))


def needed_bytes(config: Any, length: int) -> float:
    """Estimate the memory that a check of `length` tokens takes, besides the module itself: scores of ROWS rows, or of
    one in all layers for its gradients; their logits; the measurements of each pair."""
    text = text_config(config, decoder=True)
    heads = next((one for one in (getattr(text, name, None) for name in HEADS) if isinstance(one, int)), 1)
    layers = len(layers_of(config))
    cells = 4.0 * heads * max(ROWS * COPIES, 3 * layers) + 32 + layers
    return cells * length**2 + 4.0 * 3 * ROWS * length * (getattr(text, "vocab_size", None) or 1000)


def row_of(ids: Any) -> Tensor:
    try:
        given = torch.as_tensor(ids)
    except (TypeError, ValueError, RuntimeError):
        raise CannotCheck(msg("expected ids as whole numbers [T], got {ids}", ids=repr(ids)[:80])) from None
    given = given[0] if given.ndim == 2 and len(given) == 1 else given
    if given.ndim != 1 or given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        got = f"{str(given.dtype).removeprefix('torch.')} {list(given.shape)}"
        raise CannotCheck(msg("expected ids as whole numbers [T], got {ids}", ids=got))
    return given.long()


def _random(pool: Tensor, generator: torch.Generator, many: int) -> Tensor:
    return pool[torch.randint(0, len(pool), (many,), generator=generator)]


def checked(row: Tensor, vocabulary: int) -> Tensor:
    if len(row) < 2 or int(row.min()) < 0 or int(row.max()) >= vocabulary:
        values = {"last": vocabulary - 1, "ids": row.tolist()[:8]}
        raise CannotCheck(msg("expected at least 2 ids from 0 to {last}, got {ids}", **values))
    return row
