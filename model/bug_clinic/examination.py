"""What a bug breaks on a reader's text: every law measured on the wrong attention and the right one, and the loss."""

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from model.base import Model
from model.bug_clinic.case import AttentionCase, Bug, Crash
from model.bug_clinic.comparison import BY_KEY, trial_of
from model.bug_clinic.laws import LAWS, Verdict
from model.bug_clinic.rerun import rerun
from model.kv_cache import network_of
from model.trace import Trace


@dataclass(frozen=True)
class Examination:
    """verdicts: for each law by its key the bug's and the right version's. loss: the mean in nats with the bug and
    without, NaN where that is not known."""

    verdicts: dict[str, tuple[Verdict, Verdict]]
    loss: tuple[float, float]

    def broken(self, law: str) -> bool:
        """Whether the bug breaks the law of this key."""
        return self.verdicts[law][0].broken


@torch.inference_mode()
def examine(model: Model, trace: Trace, row: int, key: str, layer: int) -> Examination:
    """The bug of this key on one row of a run under masks_for(model), its laws in one layer."""
    trial = trial_of(model, trace, BY_KEY[key], layer, row)
    verdicts = {law: (trial.tried.verdicts[law], trial.right.verdicts[law]) for law in LAWS}
    return Examination(verdicts, _losses(model, trace, BY_KEY[key], row, trial.buggy))


@torch.inference_mode()
def unshifted_losses(trace: Trace, row: int) -> Tensor:
    """-log p(token | the text up to and with that very token), in nats, one for each of the row's real tokens."""
    here = trace.batch.real(row)
    logits = trace.readout(trace.states[row, here]).float()
    return F.cross_entropy(logits, trace.batch.ids[row, here], reduction="none")


def _losses(model: Model, trace: Trace, bug: Bug, row: int, buggy: Trace | None) -> tuple[float, float]:
    """The mean loss of the row with the bug in every layer that has it, and without, in nats."""
    nothing = (math.nan, math.nan)
    if model.kind == "encoder" or not model.predicts or not model.standard.causal:
        return nothing
    right = trace.losses(row).nanmean().item()
    if not bug.ahead:
        return unshifted_losses(trace, row).mean().item(), right
    if buggy is not None:
        return buggy.losses(row).nanmean().item(), right
    network = network_of(model)
    if network is None:
        return nothing
    try:
        with_it = rerun(network, trace, row, lambda layer: bug.on if layer >= bug.first_layer else AttentionCase.stages)
    except Crash:  # what PyTorch says is shown elsewhere
        return math.nan, right
    states = trace.states.clone()
    states[row] = with_it[0]
    losses = replace(trace, states=states).losses(row)
    real = trace.batch.real(row)
    with_bug = losses[real][1:].mean().item()  # NaN stays NaN here: a run without a number has no loss
    return with_bug, right
