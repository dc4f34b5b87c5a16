"""Every law, on one module: `check(module) -> Report`."""

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from model.obey import cache, cross, gradients, kernels, packing, padding, reach, training
from model.obey.declared import Mask, declare, farthest, layers_of
from model.obey.findings import CannotCheck, Finding, MeasuredMask, Report
from model.obey.subject import Subject, evaluating
from model.obey.tolerance import noise_of
from model.obey.trial import Trial, unknown

USUAL_LENGTH, MOST_LENGTH = 24, 64
SOURCE_LENGTH = 7
SECONDS = 120.0
SPECIAL = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "unk_token_id", "mask_token_id")
CONTEXTS = ("max_position_embeddings", "n_positions", "n_ctx", "block_size", "max_seq_len")
COMPANY = 3  # rows that the noise is measured beside
PROBE = 3  # ids are tried on so many tokens, to find how many there are


def check(
    module: nn.Module,
    *,
    ids: Tensor | Sequence[int] | None = None,
    mask: Mask = None,
    name: str | None = None,
    pieces: Sequence[str] | None = None,
    length: int | None = None,
    seed: int = 0,
    seconds: float | None = SECONDS,
    kernel_names: tuple[str, ...] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Measure what really reaches what in a module, and hold it to the masks it declares.

    module: called with input_ids [B,T] (and attention_mask, position_ids, past_key_values … if it takes them), it
    returns logits [B,T,V] or something with .logits. ids [T]: what it reads; random ones unless given. mask: what it
    should obey, see `declared.declare`; its configuration says unless given. pieces: a label for each position.
    seconds: the most that all may take. kernel_names: the attention kernels to compare.

    The module is left as it was. Raises CannotCheck where it cannot be called, or gives no numbers.
    """
    started = time.monotonic()
    subject = Subject(module, seconds=seconds)
    with evaluating(module):
        trial = _prepared(subject, ids, mask, length, seed, kernel_names)
        laws: list[tuple[str, str, Callable[[], Finding]]] = []
        measured: list[MeasuredMask] = []

        def what_reaches_what() -> Finding:
            measured.append(reach.measure(trial))
            return reach.judge(trial, measured[0])

        laws.append((reach.LAW, reach.NAME, what_reaches_what))
        laws.append((gradients.LAW, gradients.NAME, partial(gradients.judge, trial)))
        laws += [(law, padding.NAMES[law], partial(padding.judge, trial, law)) for law in padding.SIDES]
        laws.append((padding.CONTENT, padding.NAMES[padding.CONTENT], partial(padding.judge_content, trial)))
        laws += [(law.LAW, law.NAME, partial(law.judge, trial)) for law in (packing, cache, kernels, cross, training)]
        laws.insert(-2, (kernels.BATCH, kernels.BATCH_NAME, partial(kernels.judge_batch, trial)))
        findings = []
        for law, title, judge in laws:
            if progress is not None:
                progress(title)
            findings.append(_timed(law, title, judge))
    return Report(
        name=name or type(module).__name__,
        kind=subject.kind,
        declared=trial.declared.words,
        length=trial.length,
        pieces=tuple(pieces) if pieces is not None else tuple(str(one) for one in trial.ids.tolist()),
        dtype=str(subject.dtype).removeprefix("torch."),
        kernel=kernels.current(module),
        parameters=subject.parameters,
        seed=seed,
        noise=trial.noise,
        findings=tuple(findings),
        mask=measured[0] if measured else None,
        forwards=subject.forwards,
        seconds=time.monotonic() - started,
    )


def _prepared(
    subject: Subject,
    given: Tensor | Sequence[int] | None,
    mask: Mask,
    length: int | None,
    seed: int,
    kernel_names: tuple[str, ...] | None,
) -> Trial:
    config = subject.config
    if subject.kind == "decoder" and declares_encoder(subject):
        subject.kind = "encoder"
    special = {getattr(config, one, None) for one in SPECIAL}
    special = {one for some in special for one in (some if isinstance(some, list) else [some])} - {None}
    vocabulary = _vocabulary(subject)
    usable = [one for one in range(vocabulary) if one not in special]
    pool = torch.tensor(usable if len(usable) > 1 else range(vocabulary))
    generator = torch.Generator().manual_seed(seed)
    if given is None:
        many = length or _length(subject)
        row = pool[torch.randint(0, len(pool), (many,), generator=generator)]
    else:
        row = torch.as_tensor(given).flatten().long()
        if len(row) < 2 or int(row.min()) < 0 or int(row.max()) >= vocabulary:
            raise CannotCheck(f"expected at least 2 ids from 0 to {vocabulary - 1}, got {row.tolist()[:8]}")
    row = row.to(subject.device)
    if subject.kind == "encoder-decoder":
        source = pool[torch.randint(0, len(pool), (SOURCE_LENGTH + (len(row) == SOURCE_LENGTH),), generator=generator)]
        subject.source = source.to(subject.device)
    declared = declare(config, len(row), mask, subject.kind)
    base = _first_outputs(subject, row)
    if not bool(base.isfinite().all()) and bool((base.isnan() | base.isposinf()).any()):
        where = int((base.isnan() | base.isposinf()).any(-1)[0].nonzero()[0])
        raise CannotCheck(f"its outputs are no numbers (NaN or infinity) from position {where} on")
    company = pool[torch.randint(0, len(pool), (COMPANY, len(row)), generator=generator)].to(row)
    noise = noise_of(subject, row[None], company, seed)
    if not math.isfinite(noise.across):
        raise CannotCheck("one more rounding in every part turns its outputs into NaN: nothing can be told apart")
    subject.find_positions(row, noise.across)
    pad = getattr(config, "pad_token_id", None)
    pad = pad if isinstance(pad, int) and 0 <= pad < vocabulary else 0
    return Trial(subject, row, pool, pad, declared, noise, seed, kernel_names)


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
            f"its forward raised {type(error).__name__} on {len(row)} tokens: {_first_line(error)}"
        ) from error


def _timed(law: str, title: str, judge: Callable[[], Finding]) -> Finding:
    """The law's finding with its seconds; a forward that raises under it is a finding too."""
    started = time.monotonic()
    try:
        finding = judge()
    except (CannotCheck, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - a stranger's forward may raise anything
        finding = unknown(law, title, f"it raised {type(error).__name__}: {_first_line(error)}")
    return Finding(**{**vars(finding), "seconds": time.monotonic() - started})


def _vocabulary(subject: Subject) -> int:
    """How many ids it reads: its configuration's number, or the size of the embedding that reads them."""
    config = subject.config
    text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    said = getattr(text, "vocab_size", None)
    if isinstance(said, int) and said > 1:
        return said
    ids = torch.zeros(1, PROBE, dtype=torch.long, device=subject.device)
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
        raise CannotCheck("no embedding was found that reads its ids: give it a config with vocab_size")
    return max(sizes)


def _length(subject: Subject) -> int:
    """Enough tokens to see past every window, where that is few; no more than its positions."""
    config = subject.config
    text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    limits = [getattr(text, one, None) for one in CONTEXTS]
    limit = min([one for one in limits if isinstance(one, int) and one > 1], default=MOST_LENGTH)
    reaches = farthest(layers_of(config, subject.kind))
    wanted = USUAL_LENGTH if reaches is None else max(USUAL_LENGTH, reaches + 4)
    return min(wanted if wanted <= MOST_LENGTH else USUAL_LENGTH, limit)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
