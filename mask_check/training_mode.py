"""Law 8: in training mode, with every dropout at 0, a module computes what it computes in eval mode."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from i18n import N_, say
from mask_check.findings import Finding
from mask_check.subject import evaluating
from mask_check.trial import CheckTrial, difference_of, first_above, unknown, written

LAW, NAME = "training", N_("Training mode")
RANDOM = ("drop", "jitter")  # what modules call the numbers that make training random


def judge(trial: CheckTrial) -> Finding:
    """The row in both modes. A module that is random in training mode all the same cannot be compared."""
    expected = trial.alone
    with training_without_dropout(trial.subject.module):
        found = trial.subject.outputs(trial.ids[None])[0]
        again = trial.subject.outputs(trial.ids[None])[0]
    amount, each = difference_of(found, expected)
    where = first_above(each, trial.tolerance)
    finding = trial.finding(
        LAW,
        NAME,
        amount=amount,
        broken=say("output {where} differs by {amount} between training mode without dropout and eval mode.",
                   where=where, amount=written(amount)),
        kept=say("training mode without dropout gives the same outputs as eval mode."),
    )  # fmt: skip
    if difference_of(found, again)[0] > trial.tolerance:
        why = say("in training mode it is random, though every dropout was set to 0.")
        return unknown(LAW, NAME, why, finding)
    return finding


@contextmanager
def training_without_dropout(module: nn.Module) -> Iterator[None]:
    """Training mode, nothing random in it; modes, numbers and buffers are as they were afterwards."""
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    kept: list[tuple[nn.Module, str, float]] = []
    with evaluating(module):  # which puts every part's mode back
        for part in module.modules():
            names = ["p"] if isinstance(part, nn.modules.dropout._DropoutNd) else []
            names += [name for name in vars(part) if any(word in name for word in RANDOM)]
            for name in names:
                value = getattr(part, name)
                if isinstance(value, float):
                    kept.append((part, name, value))
                    setattr(part, name, 0.0)
            part.training = True
        try:
            yield
        finally:
            for part, name, value in kept:
                setattr(part, name, value)
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)
