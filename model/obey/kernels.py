"""Law 5: the same numbers from every attention kernel that the module offers, and from a batch of any size."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from model.language import N_, listed, say, say_all
from model.obey.findings import BROKEN, CannotCheck, Finding
from model.obey.padding import padded, positions
from model.obey.trial import Trial, difference_of, first_above, skipped, written

LAW, NAME = "kernels", N_("Attention kernels")
BATCH, BATCH_NAME = "batch", N_("A batch of one")
CHEAP = ("eager", "sdpa")  # flex_attention is compiled at its first call: on a CPU that takes about a minute
ROWS_BESIDE = 4


def current(module: nn.Module) -> str:
    """The name of the attention kernel that the module runs with, "its own" where it has no choice."""
    name = getattr(getattr(module, "config", None), "_attn_implementation", None)
    return str(name) if name else say("its own")


def judge(trial: Trial) -> Finding:
    """Every other kernel's outputs of the row, and of a row padded on the left, beside those of its own."""
    module, own = trial.subject.module, current(trial.subject.module)
    asked = trial.kernels or cast(tuple[str, ...], getattr(module, "attention_kernels", CHEAP))
    if not hasattr(module, "set_attn_implementation"):
        return skipped(LAW, NAME, say("it offers no choice of attention kernels."))
    expected = [trial.alone, *_padded(trial)]
    tried, refused, most = [], [], 0.0
    for name in asked:
        if name == own:
            continue
        with using(module, name, own) as refusal:
            if refusal:
                refused.append(f"{name} ({refusal})")
                continue
            tried.append(name)
            try:
                found = [trial.subject.outputs(trial.ids[None])[0], *_padded(trial)]
            except (CannotCheck, MemoryError):
                raise
            except Exception as error:  # noqa: BLE001 - a kernel that was offered and cannot be computed
                words = say("{name} cannot be computed: {error}", name=name, error=_first_line(error))
                return Finding(LAW, NAME, BROKEN, words, torch.inf, trial.tolerance)
        for padded_row, here, there in zip((False, True), found, expected, strict=False):
            amount, each = difference_of(here, there)
            if amount > trial.tolerance:
                where = first_above(each, trial.tolerance)
                told = {"where": where, "amount": written(amount), "own": own, "name": name}
                if padded_row:
                    words = say("output {where} of a row padded on the left differs by {amount} between {own} and "
                                "{name}.", **told)  # fmt: skip
                else:
                    words = say("output {where} differs by {amount} between {own} and {name}.", **told)
                return Finding(LAW, NAME, BROKEN, words, amount, trial.tolerance)
            most = max(most, amount)
    if not tried:
        others = listed(refused, N_("; ")) or say("no other asked")
        return skipped(LAW, NAME, say("it runs with {own} and with nothing else: {others}.", own=own, others=others))
    return trial.finding(
        LAW, NAME, amount=most, broken="", kept=say("{kernels} agree.", kernels=say_all([own, *tried]))
    )


def judge_batch(trial: Trial) -> Finding:
    """The row alone and in a batch with others."""
    beside = trial.random_rows(ROWS_BESIDE, trial.length, trial.generator(5))
    found = trial.subject.outputs(torch.cat([beside[:2], trial.ids[None], beside[2:]]))[2]
    amount, each = difference_of(found, trial.alone)
    where = first_above(each, trial.tolerance)
    return trial.finding(
        BATCH,
        BATCH_NAME,
        amount=amount,
        broken=say("among {count} other rows output {where} differs by {amount} from the row alone.",
                   count=ROWS_BESIDE, where=where, amount=written(amount)),
        kept=say("the row is the same among {count} others.", count=ROWS_BESIDE),
    )  # fmt: skip


@contextmanager
def using(module: Any, name: str, own: str) -> Iterator[str]:
    """Another kernel for a while. Yields why it is not to be had, "" where it is."""
    refusal = ""
    try:
        module.set_attn_implementation(name)
        if current(module) != name:
            refusal = say("not offered")
    except (ValueError, ImportError, TypeError, KeyError) as error:
        refusal = _first_line(error)[:80]
    try:
        yield refusal
    finally:
        if current(module) != own:
            module.set_attn_implementation(own)


def _padded(trial: Trial) -> list[Tensor]:
    """Outputs of the row's first part padded on the left, [T',V], where padding can be told."""
    if not trial.subject.takes_mask or trial.subject.kind == "encoder-decoder" or trial.length < 3:
        return []
    ids, keep, real = padded(trial, "left")
    return [trial.subject.outputs(ids, keep, **positions(trial.subject, keep, "left"))[0, real]]


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
