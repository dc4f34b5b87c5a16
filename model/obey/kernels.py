"""Law 5: the same numbers from every attention kernel that the module offers, and from a batch of any size."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from model.obey.findings import BROKEN, CannotCheck, Finding
from model.obey.padding import padded, positions
from model.obey.trial import Trial, difference_of, first_above, say, skipped

LAW, NAME = "kernels", "Attention kernels"
BATCH, BATCH_NAME = "batch", "A batch of one"
CHEAP = ("eager", "sdpa")  # flex_attention is compiled at its first call: on a CPU that takes about a minute
ROWS_BESIDE = 4


def current(module: nn.Module) -> str:
    """The name of the attention kernel that the module runs with, "its own" where it has no choice."""
    return str(getattr(getattr(module, "config", None), "_attn_implementation", None) or "its own")


def judge(trial: Trial) -> Finding:
    """Every other kernel's outputs of the row, and of a row padded on the left, beside those of its own."""
    module, own = trial.subject.module, current(trial.subject.module)
    asked = trial.kernels or cast(tuple[str, ...], getattr(module, "attention_kernels", CHEAP))
    if not hasattr(module, "set_attn_implementation"):
        return skipped(LAW, NAME, "it offers no choice of attention kernels.")
    expected = _outputs(trial)
    tried, refused = [], []
    for name in asked:
        if name == own:
            continue
        with using(module, name, own) as refusal:
            if refusal:
                refused.append(f"{name} ({refusal})")
                continue
            tried.append(name)
            try:
                found = _outputs(trial)
            except (CannotCheck, MemoryError):
                raise
            except Exception as error:  # noqa: BLE001 - a kernel that was offered and cannot be computed
                words = f"{name} cannot be computed: {_first_line(error)}"
                return Finding(LAW, NAME, BROKEN, words, torch.inf, trial.tolerance)
        for what, here, there in zip(("", " of a row padded on the left"), found, expected, strict=False):
            amount, each = difference_of(here, there)
            if amount > trial.tolerance:
                where = first_above(each, trial.tolerance)
                words = f"output {where}{what} differs by {say(amount)} between {own} and {name}."
                return Finding(LAW, NAME, BROKEN, words, amount, trial.tolerance)
    if not tried:
        return skipped(
            LAW, NAME, f"it runs with {own} and with nothing else: {'; '.join(refused) or 'no other asked'}."
        )
    most = 0.0
    for name in tried:
        with using(module, name, own):
            most = max(most, *(difference_of(a, b)[0] for a, b in zip(_outputs(trial), expected, strict=True)))
    return trial.finding(LAW, NAME, amount=most, broken="", kept=f"{own} and {' and '.join(tried)} agree.")


def judge_batch(trial: Trial) -> Finding:
    """The row alone and in a batch with others."""
    alone = trial.subject.outputs(trial.ids[None])[0]
    beside = trial.random_rows(ROWS_BESIDE, trial.length, trial.generator(5))
    found = trial.subject.outputs(torch.cat([beside[:2], trial.ids[None], beside[2:]]))[2]
    amount, each = difference_of(found, alone)
    where = first_above(each, trial.tolerance)
    return trial.finding(
        BATCH,
        BATCH_NAME,
        amount=amount,
        broken=f"among {ROWS_BESIDE} other rows output {where} differs by {say(amount)} from the row alone.",
        kept=f"the row is the same among {ROWS_BESIDE} others.",
    )


@contextmanager
def using(module: Any, name: str, own: str) -> Iterator[str]:
    """Another kernel for a while. Yields why it is not to be had, "" where it is."""
    refusal = ""
    try:
        module.set_attn_implementation(name)
        if current(module) != name:
            refusal = "not offered"
    except (ValueError, ImportError, TypeError, KeyError) as error:
        refusal = _first_line(error)[:80]
    try:
        yield refusal
    finally:
        if current(module) != own:
            module.set_attn_implementation(own)


def _outputs(trial: Trial) -> list[Tensor]:
    """Of the row, [T,V], and of its first part padded on the left, where padding can be told."""
    found = [trial.subject.outputs(trial.ids[None])[0]]
    if trial.subject.takes_mask and trial.subject.kind != "encoder-decoder" and trial.length > 2:
        ids, keep, real = padded(trial, "left")
        found.append(trial.subject.outputs(ids, keep, **positions(trial.subject, keep, "left"))[0, real])
    return found


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
