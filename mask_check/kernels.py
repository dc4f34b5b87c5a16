"""Laws of attention kernels, batches and training mode: none of these changes the outputs."""

import re
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from i18n import N_, msg, msg_all, msg_list, msg_together
from mask_check.findings import BROKEN, CannotCheck, Finding, skipped, unknown
from mask_check.padding import padded, positions
from mask_check.subject import CheckedModule, restoring_buffers, setting
from mask_check.trial import CheckTrial
from model.errors import first_line
from model.huggingface.internals import attention_name, selectable_only_at_loading

CHEAP = ("eager", "sdpa")  # flex_attention is compiled at its first call: on a CPU that takes about a minute
NUM_OTHERS = 4
RANDOM = ("drop", "jitter")  # parts of the names of attributes that make training random
MIXED = N_("{way} output {where} differs by {amount} from the row alone.")
FIXED = N_(
    'its kernel, {own}, cannot be changed after the model is made: load it with attn_implementation="{name}" to check '
    "that one."
)
DIFFERS = N_("output {where} differs by {amount} between {own} and {name}.")
DIFFERS_PADDED = N_("output {where} of a row padded on the left differs by {amount} between {own} and {name}.")


def current(module: nn.Module) -> str:
    """Return the name of the attention kernel that the module runs, "its own" if it has no choice."""
    name = attention_name(getattr(module, "config", None))
    return str(name) if name else msg("its own")


def described(subject: CheckedModule) -> dict[str, Any]:
    """Return a report's fields on the module itself."""
    dtype = str(subject.dtype).removeprefix("torch.")
    kernel = current(subject.module) if subject.has_known_kernel else msg("its own")
    about = {"dtype": dtype, "kernel": kernel, "parameters": subject.parameters}
    return about | {"kind": subject.kind, "forwards": subject.forwards}


def check_names(subject: CheckedModule, requested: Any) -> None:
    """Check names of attention kernels; None stands for those that are cheap. Raises CannotCheck for unknown ones."""
    if requested is None:
        return
    known = dict.fromkeys((*CHEAP, "flex_attention", *getattr(subject.module, "attention_kernels", ())))
    if subject.is_pretrained_model:
        from transformers import AttentionInterface  # takes seconds to import

        from model.huggingface.attention_hook import NAME

        # "paged|…" needs continuous batching, and Unmask's own kernel a run of Unmask's: neither can be called alone
        names = AttentionInterface().valid_keys()
        known |= dict.fromkeys(name for name in names if name != NAME and not name.startswith("paged|"))
    several = not isinstance(requested, str) and isinstance(requested, Sequence | Set) and bool(requested)
    wrong = [name for name in requested if name not in known] if several else [requested]
    if wrong:
        values = {"known": ", ".join(known), "got": repr(wrong[0])[:80]}
        raise CannotCheck(msg("expected a tuple of attention kernels out of {known}, got {got}", **values))


def judge(trial: CheckTrial) -> Finding:
    """Every other attention kernel gives the same outputs as the module's own, for the row and for a row padded on the
    left.

    Tolerated: rounding. Limits: for transformers' models eager and sdpa, and FlexAttention with --flex, where the
    kernel can be changed after the model is made; for others those in its attention_kernels.
    """
    module, own = trial.subject.module, current(trial.subject.module)
    requested = trial.options.kernels or cast(tuple[str, ...], getattr(module, "attention_kernels", CHEAP))
    if not (hasattr(module, "set_attn_implementation") and trial.subject.has_known_kernel):
        return skipped(msg("it offers no choice of attention kernels."))
    if fixed := [name for name in requested if name != own and selectable_only_at_loading(module, name)]:
        return skipped(msg(FIXED, own=own, name=fixed[0]))
    expected = [trial.alone, *_padded(trial)]
    tried, refused, max_change = [], [], 0.0
    for name in requested:
        if name == own:
            continue
        with selected_kernel(module, name, own) as refusal:
            if refusal:
                refused.append(msg("{name} ({why})", name=name, why=refusal))
                continue
            tried.append(name)
            try:
                found = [trial.subject.outputs(trial.ids[None])[0], *_padded(trial)]
            except (CannotCheck, MemoryError):
                raise
            except Exception as error:  # noqa: BLE001 - a kernel that is offered may still fail
                why = msg("{name} cannot be computed: {error}", name=name, error=first_line(error))
                return Finding(BROKEN, why, torch.inf, trial.tolerance)
        for words, here, there in zip((DIFFERS, DIFFERS_PADDED), found, expected, strict=False):
            finding = trial.compared(here, there, words, "", own=own, name=name)
            if finding.verdict == BROKEN:
                return finding
            max_change = max(max_change, finding.amount or 0.0)
    if not tried:
        others = msg_list(refused, N_("; ")) or msg("no other requested")
        return skipped(msg("it runs only with {own}: {others}.", own=own, others=others))
    agree = msg("{kernels} agree.", kernels=msg_all([own, *tried]))
    if trial.options.kernels and refused:
        agree = msg_together([agree, msg("Not compared: {refused}.", refused=msg_list(refused, N_("; ")))])
    return trial.finding(max_change, broken="", obeyed=agree)


def judge_batch(trial: CheckTrial) -> Finding:
    """The row alone gives the same outputs as in a batch with four others, and as under a mask of ones, which blocks
    nothing: some encoders made from decoders lose their mask in a batch of one.

    Tolerated: rounding. Limits: one row, one size of batch.
    """
    subject = trial.subject
    others = trial.random_rows(NUM_OTHERS, trial.length, trial.generator(5))
    rows = torch.cat([others, trial.ids[None]])
    ways: list[tuple[str, Tensor, Tensor | None]] = [(msg("among {count} other rows", count=NUM_OTHERS), rows, None)]
    if subject.takes_mask and subject.kind != "encoder-decoder":
        ones = torch.ones_like(rows).bool()
        ways += [(msg("under a mask of ones"), rows[-1:], ones[-1:])]
        ways += [] if subject.row_by_row else [(msg("under a mask of ones beside another row"), rows[-2:], ones[-2:])]
    obeyed = msg("the row is the same among {count} other rows.", count=NUM_OTHERS)
    for way, ids, keep in ways:
        found = subject.batch_outputs(ids, keep)[-1]
        finding = trial.compared(found, trial.alone, MIXED, obeyed, way=way)
        if finding.verdict == BROKEN:
            return finding.because(row_mixing_cause(subject.inner))
    return finding


def row_mixing_cause(module: nn.Module) -> str:
    """Return a sentence on the first part that is known to let the rows of a batch change each other, or ""."""
    for name, part in module.named_modules():
        why = ""
        if isinstance(part, nn.MultiheadAttention | nn.RNNBase) and not part.batch_first:
            why = N_("{part} has batch_first=False: it takes the first axis for positions and the second for rows.")
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is None:
            why = N_("{part} has track_running_stats=False: it normalizes by the mean and variance of the batch.")
        if why:
            return msg(why, part=name or type(part).__name__)
    return ""


@contextmanager
def selected_kernel(module: Any, name: str, own: str) -> Iterator[str]:
    """Run with another kernel within the context. Yields why it cannot be used, "" if it can."""
    refusal = ""
    try:
        module.set_attn_implementation(name)
        if current(module) != name:
            refusal = msg("not offered")
    except (ValueError, ImportError, TypeError, KeyError) as error:
        refusal = _reason(error)
    try:
        yield refusal
    finally:
        if current(module) != own:
            module.set_attn_implementation(own)


def _reason(error: Exception) -> str:
    """Return the first sentence that gives the reason, without the one that transformers writes before it: "… due to
    the following error:". A full stop before a lower-case letter ends none: it may be in a version number."""
    why = first_line(error).rpartition("following error: ")[2]  # not shown
    return re.split(r"\. (?=[A-Z])", why)[0].rstrip(".")


def _padded(trial: CheckTrial) -> list[Tensor]:
    """Return in a list the outputs [T',V] of the row's first part padded on the left; [] if that cannot be passed."""
    if not trial.subject.takes_mask or trial.subject.kind == "encoder-decoder" or trial.length < 3:
        return []
    ids, keep, real = padded(trial, "left")
    return [trial.subject.outputs(ids, keep, **positions(trial.subject, keep, "left"))[0, real]]


def judge_training_mode(trial: CheckTrial) -> Finding:
    """The row gives the same outputs in training mode, with every dropout set to 0, as in eval mode.

    Tolerated: rounding. Limits: a module that is random in training mode even without dropout cannot be compared.
    """
    _ = trial.alone  # computed now, in eval mode
    with training_without_dropout(trial.subject.module):
        found = trial.subject.outputs(trial.ids[None])[0]
        again = trial.subject.outputs(trial.ids[None])[0]
    broken = N_("output {where} differs by {amount} between training mode without dropout and eval mode.")
    obeyed = msg("training mode without dropout gives the same outputs as eval mode.")
    finding = trial.compared(found, trial.alone, broken, obeyed)
    if trial.difference(found, again).amount > trial.tolerance:
        return unknown(msg("in training mode it is random, although every dropout was set to 0."), finding)
    return finding


@contextmanager
def training_without_dropout(module: nn.Module) -> Iterator[None]:
    """Switch to training mode without randomness; modes, numbers and buffers are restored afterwards."""
    copies = {id(buffer): buffer.clone() for buffer in module.buffers()}  # writing into one may add a gradient
    named = {part: part.named_buffers(recurse=False, remove_duplicate=False) for part in module.modules()}
    buffers = [(part, name, copies[id(buffer)]) for part, some in named.items() for name, buffer in some]
    random = [
        (part, name, 0.0)
        for part in module.modules()
        for name, value in vars(part).items()
        if isinstance(value, float)
        and (any(one in name for one in RANDOM) or (isinstance(part, nn.modules.dropout._DropoutNd) and name == "p"))
    ]
    modes = ((part, "training", True) for part in module.modules())
    with restoring_buffers(module), setting([*random, *buffers, *modes]):  # a view of a buffer may be written into
        yield
