"""The check of one module against every law: `check(module)` returns a CheckReport."""

import inspect
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from i18n import N_, msg
from mask_check import cache, differentiate, kernels, longer, packing, padding, parameters, reach, source
from mask_check.findings import (
    BROKEN,
    DECISIVE,
    DOES_NOT_APPLY,
    LAWS,
    PREREQUISITES,
    CannotCheck,
    CheckReport,
    Finding,
    skipped,
    unknown,
)
from mask_check.prepare import check_seconds, context_of, prepare
from mask_check.subject import CheckedModule, restoring_module, text_config
from mask_check.trial import CheckOptions, CheckTrial
from model.errors import first_line
from model.spec import MAX_POSITIONS
from serving import machine
from serving.settings import Settings

SECONDS = 120.0
ROUNDING = N_("Effect of rounding")  # measured before the first law
ROUNDING_IS = (
    "Rounding is measured on the module itself: the same run twice, other rows in the batch, and one\n"
    "additional rounding in every component."  # not shown
)
Progress = Callable[[str, float], None]  # called with the current law's title and the share that is done
JUDGES: dict[str, Callable[[CheckTrial], Finding]] = {  # by key, as in findings.LAWS
    "reach": reach.judge,
    "gradients": reach.judge_gradients,
    "batch": kernels.judge_batch,  # before those that compare batches
    "positions": padding.judge_positions,
    "padding-right": partial(padding.judge, side="right"),
    "padding-left": partial(padding.judge, side="left"),
    "pad-content": padding.judge_content,
    "packing": packing.judge,
    "cache": cache.judge,
    "kernels": kernels.judge,
    "cross": source.judge_cross,
    "encoder": source.judge,
    "cross-reach": source.judge_cross_reach,
    "training": kernels.judge_training_mode,
    "reuse": cache.judge_reuse,
    "last": cache.judge_last,
    "tree": packing.judge_tree,
    "unpositioned": padding.judge_unpositioned,
    "images": reach.judge_images,
    "layers": differentiate.judge_layers,
    "parameters": parameters.judge_parameters,
    "derivative": differentiate.judge_derivative,
    "checkpointing": differentiate.judge_checkpointing,
    "compile": differentiate.judge_compile,
    "length": longer.judge,  # last, because it may use up the time
}


def check(
    module: nn.Module,
    *,
    ids: Tensor | Sequence[int] | None = None,
    name: str | None = None,
    pieces: Sequence[str] | None = None,
    length: int | None = None,
    seed: int = 0,
    seconds: float | None = SECONDS,
    progress: Progress | None = None,
    **options: Any,
) -> CheckReport:
    """Measure which tokens influence which outputs of a module, and compare that with the masks that it declares.

    module: called with input_ids [B,T] (and attention_mask, position_ids, past_key_values … if it takes them), it
    returns logits [B,T,V] or something with .logits. ids [T]: its input; by default random ids. pieces: a label for
    each position. seconds: the time limit of the whole check. progress: called before each forward; what it raises, if
    not an Exception, ends the check. options: mask, kernels, tokens, thorough, packing, see `CheckOptions`.

    The module is left as it was. Raises CannotCheck if it cannot be called, or its outputs are not finite.
    """
    started = time.monotonic()
    check_seconds(seconds)
    chosen = CheckOptions(**options)
    if chosen.packing not in (None, "position_ids"):
        raise CannotCheck(f"expected packing None or 'position_ids', got {chosen.packing!r:.40}")  # not shown
    subject = CheckedModule(module, seconds=seconds)
    threads = machine.one_thread() if subject.parameters < machine.SMALL_MODEL_PARAMETERS else nullcontext()
    # gradients are needed, whatever modes the caller has set
    with restoring_module(module), threads, torch.inference_mode(False), torch.enable_grad():
        report = progress or (lambda _law, _share: None)
        subject.before_forward = partial(report, ROUNDING, 0.0)
        trial = prepare(subject, ids, options=chosen, length=length, seed=seed)
        for law, judge in JUDGES.items():
            subject.before_forward = partial(report, LAWS[law], (1 + len(trial.found)) / (1 + len(JUDGES)))
            trial.found[law] = _timed(law, partial(judge, trial), trial)
    return CheckReport(
        name=name or type(module).__name__,
        declared=trial.declared.words,
        assumed=trial.declared.assumed,
        length=trial.length,
        longer=tuple(trial.longer),
        limits=limits(trial),
        pieces=tuple(pieces if pieces is not None else map(str, trial.ids.tolist())),
        seed=seed,
        noise=trial.noise,
        findings=tuple(trial.found.values()),
        mask=trial.mask,
        seconds=time.monotonic() - started,
        **kernels.described(subject),
    )


def limits(trial: CheckTrial) -> tuple[tuple[str, str], ...]:
    """Return what no law has tested: longer rows, most pairs in those tried, and windows wider than the longest row."""
    longest, context = trial.longest, context_of(trial.subject.config)[0] or MAX_POSITIONS
    wide = max((layer.window or layer.chunk or 0 for layer in trial.declared.masks), default=0)
    more = N_("rows of more than {longest:,} tokens: use --tokens {needed} or more.")
    words = msg(more, longest=longest, needed=longest + 1)
    more_asked = trial.refused or (trial.options.tokens or 0) > longest  # refused, as the finding says
    leaks = trial.mask is not None and bool(trial.mask.leaks.any())
    short = leaks or trial.given_as_cells  # if so, no longer row is tried
    found = [(LAWS["length"], words)] if longest < context and not more_asked and not short else []
    if longest < wide + 2 <= context and not (short or trial.refused):
        needed = min(wide + 8, context)
        words = msg("rows past its window of {wide:,}: use --tokens {needed}.", wide=wide, needed=needed)
        found.append((LAWS["length"], words))
    if trial.longer and trial.found["length"].verdict != BROKEN and not trial.options.thorough:
        words = msg("leaks in a longer row between tokens that no position tried separates: use --thorough.")
        found.append((LAWS["length"], words))
    if trial.subject.is_pretrained_model:
        from model.huggingface.described import is_language_model  # takes seconds to import

        predicted = getattr(text_config(trial.subject.config, decoder=True), "vocab_size", None)
        if predicted not in (None, trial.alone.shape[-1]) and not is_language_model(type(trial.subject.inner).__name__):
            words = msg("It has no language-model head: its last hidden states are compared, not logits.")
            found.append((LAWS[DECISIVE], words))
        if trial.subject.has_known_kernel and not trial.options.kernels:
            found.append((LAWS["kernels"], msg("FlexAttention, which takes a minute to compile: use --flex.")))
    return tuple(found)


def explain(law: str) -> str:
    """Return a law's description, tolerance and limits: its judge's docstring. Raises CannotCheck for an unknown
    law."""
    if law not in JUDGES:
        raise CannotCheck(f"expected a check out of {', '.join(JUDGES)}, got {law[:40]!r}")  # not shown
    judge: Any = getattr(JUDGES[law], "func", JUDGES[law])
    about = inspect.getdoc(judge) or ""
    return "\n\n".join([f"{law}: {LAWS[law]}", about, *[ROUNDING_IS] * (": rounding" in about)])


def _timed(law: str, judge: Callable[[], Finding], trial: CheckTrial) -> Finding:
    """Return the law's finding with its key and duration; if a forward raises, the finding is that it cannot tell."""
    started, found = time.monotonic(), trial.found
    try:
        before = [one for one in PREREQUISITES.get(law, ()) if one in found and found[one].verdict == BROKEN]
        finding = _finding_if_not_applicable(judge, trial.subject) if before else judge()
        finding = finding or skipped(msg("{law} is broken already.", law=msg(LAWS[before[0]])))
    except (CannotCheck, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - a third-party forward may raise anything
        finding = unknown(msg("it raised {error}: {words}", error=type(error).__name__, words=first_line(error)))
    return replace(finding, law=law, seconds=time.monotonic() - started)


class _ForwardNeeded(BaseException):
    """Raised when a judge needs a forward pass. Not an Exception, because a judge may catch those."""


def _finding_if_not_applicable(judge: Callable[[], Finding], subject: CheckedModule) -> Finding | None:
    """Return the finding if a law does not apply to this module and that is known without a forward pass; else None."""

    def needed() -> None:
        raise _ForwardNeeded

    subject.before_forward = needed
    try:
        finding = judge()
    except (_ForwardNeeded, Exception):  # noqa: BLE001 - time may be up, or no memory left for a copy
        return None
    return finding if finding.verdict == DOES_NOT_APPLY else None


def check_checkpoint(
    report: Callable[[tuple[str, float]], None],
    name: str,
    folder: Path,
    ids: tuple[int, ...],
    pieces: tuple[str, ...],
    number_type: str,
    seconds: float,
) -> CheckReport:
    """Check a checkpoint. report: called with the current law and the share done. Raises as loading and checking do."""
    from model.huggingface import own_network  # takes seconds to import

    network = own_network.load(name, folder, Settings.from_environment(), getattr(torch, number_type))
    title = f"{Path(name).name} ({type(network).__name__})"
    return check(network, name=title, ids=ids, pieces=pieces, seconds=seconds, progress=lambda *now: report(now))
