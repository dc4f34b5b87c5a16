"""What a bug breaks on a reader's text: every law measured on the wrong attention and the right one, and the loss."""

import math
from dataclasses import dataclass, replace
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from model.attention import AttentionStages, attention_stages
from model.base import Model
from model.bug_clinic.case import Attention, Bug, Crash, Options
from model.bug_clinic.comparison import BugComparison, compare, trial_of
from model.bug_clinic.laws import LAWS, Verdict, judge
from model.bug_clinic.masks import MASKS
from model.bug_clinic.modules import AROUND, TARGETS
from model.bug_clinic.rerun import rerun
from model.bug_clinic.scores import SCORES
from model.kv_cache import network_of
from model.trace import Trace

BUGS = (*AROUND, *SCORES, *MASKS, TARGETS)
BY_KEY = {bug.key: bug for bug in BUGS}
TITLES = tuple(dict.fromkeys(bug.title for bug in BUGS))


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
def examine(model: Model, trace: Trace, bug: Bug, layer: int, row: int) -> Examination:
    """The bug on one row of a run under masks_for(model), its laws in one layer."""
    trial = trial_of(model, trace, bug, layer, row)
    verdicts = {key: (judge(law, trial.tried), trial.right.verdicts[key]) for key, law in LAWS.items()}
    return Examination(verdicts, _losses(model, trace, bug, row, trial.buggy))


def in_precision(attention: Attention, dtype: torch.dtype) -> Attention:
    """The same attention computed in dtype, float32 in and out."""
    if dtype == torch.float32:
        return attention

    def run(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, **options: Unpack[Options]) -> AttentionStages:
        stages = attention(q.to(dtype), k.to(dtype), v.to(dtype), allowed, **options)
        return AttentionStages(**{name: part.float() for name, part in vars(stages).items()})

    return run


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
    attention = in_precision(bug.function, bug.dtype)
    try:
        with_it = rerun(network, trace, row, lambda layer: attention if layer >= bug.first_layer else attention_stages)
    except Crash:  # what PyTorch says is shown elsewhere
        return math.nan, right
    states = trace.states.clone()
    states[row] = with_it[0]
    losses = replace(trace, states=states).losses(row)
    real = trace.batch.real(row)
    with_bug = losses[real][1:].mean().item()  # NaN stays NaN here: a run without a number has no loss
    return with_bug, right


def compared(model: Model, trace: Trace, row: int, bug: str, layer: int) -> BugComparison:
    """The bug of this key beside its right version on one row of a run; see compare."""
    return compare(model, trace, BY_KEY[bug], layer, row)


def examined(model: Model, trace: Trace, row: int, bug: str, layer: int) -> Examination:
    """What the bug of this key breaks on one row of a run; see examine."""
    return examine(model, trace, BY_KEY[bug], layer, row)
