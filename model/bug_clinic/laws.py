"""The laws that every attention must obey. A law measures by how much an attention, tried on a case (`AttentionTrial`),
breaks it: 0 if it is obeyed, infinity if a number is not finite, NaN if the case cannot tell.

Sizes: B rows, H heads, T positions, D head width.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from i18n import N_
from model.attention import AttentionStages, attend
from model.bug_clinic.bugs import Attention, AttentionCase, Crash

TOKENS_AT_ONCE = 16


@dataclass(frozen=True, eq=False)
class AttentionTrial:
    """An attention tried on a case. Its properties and methods raise Crash if PyTorch refuses, except `verdicts`."""

    attention: Attention
    case: AttentionCase

    @cached_property
    def stages(self) -> AttentionStages:
        """The stages of the attention on the case as it is."""
        return self.case.run(self.attention)

    @cached_property
    def verdicts(self) -> dict[str, "Verdict"]:
        return {name: judge(law, self) for name, law in LAWS.items()}

    def output(self, case: AttentionCase) -> Tensor:
        """Return the output of the attention on another case: [B,H,T,D]."""
        return case.run(self.attention).output

    @cached_property
    def moved(self) -> Tensor:
        """How far each output moves when one real token is changed: [B,T,T], the changed token by the output's
        position, at most over its heads; infinite if it is no finite number, 0 if the token is padding."""
        size = self.case.allowed.shape[-1]
        moved = torch.zeros(len(self.case.keep), size, size)
        for row, keep in enumerate(self.case.keep):
            real = self.case.real(row)
            for some in torch.arange(real.start, real.stop).split(TOKENS_AT_ONCE):
                copies = torch.arange(len(some))
                changed = self.case.copies(row, len(some) + 1).with_negated((copies, slice(None), some))
                outputs = self.output(changed)  # the last copy is unchanged
                change = (outputs[:-1] - outputs[-1:]).float().abs().nan_to_num(math.inf, math.inf)  # [N,H,T,D]
                moved[row, some] = change.amax((1, 3)).masked_fill(~keep, 0.0)
        return moved


Measure = Callable[[AttentionTrial], float]


@dataclass(frozen=True)
class Law:
    """A law in words, and how much of a violation is rounding. of: the quantity of the violation. tolerance: in
    float32; if `of` is "output", for values of size 1. needs: what a case must have for the law to apply."""

    words: str
    measure: Measure
    of: str
    tolerance: float = 0.0
    needs: str = ""


LAWS: dict[str, Law] = {}


def law(words: str, of: str, tolerance: float = 0.0, needs: str = "") -> Callable[[Measure], Measure]:
    """Register a measure as a law, under its name; the arguments are Law's."""

    def add(measure: Measure) -> Measure:
        LAWS[measure.__name__] = Law(words, measure, of, tolerance, needs)
        return measure

    return add


HALF_ROUNDS = 1000.0  # how much coarser float16 rounds than the laws allow float32


@law(N_("The code runs."), N_("errors"))
def runs(trial: AttentionTrial) -> float:
    """Return 0 if the attention could be computed. Raises Crash if PyTorch refuses."""
    _ = trial.stages
    return 0.0


@law(N_("A blocked cell's weight is exactly 0."), N_("weight"))
def blocked(trial: AttentionTrial) -> float:
    weights = trial.stages.weights
    return _largest(weights[~trial.case.allowed.expand_as(weights)])


@law(
    N_("If a token has an allowed key, its weights sum to 1 (together with the head's sink, where a model has sinks)."),
    N_("weight"),
    1e-5,
)
def rows(trial: AttentionTrial) -> float:
    """Return how far a row's sum is from 1 (with a sink, from what that leaves), at most, if it has an allowed key."""
    case, sums = trial.case, trial.stages.weights.sum(-1)
    expected = torch.ones_like(sums)
    if (sinks := case.terms.sinks) is not None:
        sinks = sinks[:, None] if sinks.ndim == 1 else sinks[..., 0]
        expected = (trial.stages.masked.float().logsumexp(-1) - sinks).sigmoid()
    looks = case.allowed.any(-1).expand_as(sums)
    return _largest((sums - expected)[looks])


@law(N_("A token with no allowed key gets output 0, never NaN."), N_("output"), needs=N_("a token with no allowed key"))
def empty(trial: AttentionTrial) -> float:
    """Return the largest weight or output of a fully blocked row."""
    nothing = ~trial.case.allowed.any(-1)  # [B,1,T]
    stages = trial.stages
    parts = [tensor[nothing.expand(tensor.shape[:-1])] for tensor in (stages.weights, stages.output)]
    return max(map(_largest, parts)) if nothing.any() else math.nan


@law(
    N_("No later token is read: changing one leaves every earlier output unchanged."),
    N_("output"),
    1e-4,
    N_("a causal mask and two tokens"),
)
def causal(trial: AttentionTrial) -> float:
    """Return how far an output moves when a later real token is changed, each of them in turn."""
    return _moved(trial, lambda changed, position: position < changed)


@law(N_("No output depends on the token that it must predict."), N_("output"), 1e-4, N_("a causal mask and two tokens"))
def target(trial: AttentionTrial) -> float:
    """Return how far an output moves when the token that it must predict is changed, each of them in turn."""
    return _moved(trial, lambda changed, position: position == changed - trial.case.ahead)


@law(N_("A padded row gives what the same text gives alone."), N_("output"), 1e-4, N_("padding in this row"))
def padded(trial: AttentionTrial) -> float:
    case = trial.case
    if case.keep.all():
        return math.nan
    together = trial.stages.output
    worst = 0.0
    for row in range(len(case.keep)):
        alone = trial.output(case.text_alone(row))[0]
        worst = max(worst, _largest(together[row, :, case.real(row)] - alone))
    return worst


@law(N_("The output is what PyTorch's own attention gives."), N_("output"), 1e-4)
def same(trial: AttentionTrial) -> float:
    case = trial.case
    expected = attend(case.q, case.k, case.v, case.allowed, scale=case.scale, terms=case.terms)
    return _largest(trial.stages.output - expected)


@law(N_("The inputs of one head do not affect the others."), N_("output"), 1e-4, N_("two key-value heads"))
def heads(trial: AttentionTrial) -> float:
    """Return how far the other heads' output moves when head 0, and those that share its keys, get other numbers."""
    case = trial.case
    group = case.q.shape[1] // case.k.shape[1]
    if case.k.shape[1] == 1:
        return math.nan
    before, after = trial.stages.output, trial.output(case.with_negated((slice(None), 0)))
    return _largest(before[:, group:] - after[:, group:])


@law(
    N_("Different queries, keys or values give a different output."),
    N_("of 3 ignored"),
    needs=N_("a token with two allowed keys"),
)
def projected(trial: AttentionTrial) -> float:
    """Return how many of q, k and v can get other numbers without any effect on the output."""
    case = trial.case
    if (case.allowed.sum(-1) < 2).all():
        return math.nan  # a query with one allowed key gives it all weight, whatever q and k
    before = trial.stages.output
    changed = [replace(case, **{name: -getattr(case, name)}) for name in ("q", "k", "v")]
    return float(sum(_largest(before - trial.output(other)) == 0 for other in changed))


@law(
    N_("q and k of unit variance and any width give scaled scores with a standard deviation of 1."),
    N_("standard deviation"),
    0.1,
    N_("a model that divides its scores by √d"),
)
def scaled(trial: AttentionTrial) -> float:
    """Return how far from 1 the scaled scores' standard deviation is, for independent q and k of unit variance, in the
    case's sizes and precision, on 128 positions."""
    case, random = trial.case, torch.Generator().manual_seed(0)
    if not case.has_usual_scale:
        return math.nan
    shapes = (tensor.shape[1::2] for tensor in (case.q, case.k, case.v))  # (H, D) of each
    q, k, v = (torch.randn(1, heads, 128, width, generator=random).to(case.q.dtype) for heads, width in shapes)
    drawn = AttentionCase(q, k, v, torch.ones(1, 1, 128, 128, dtype=torch.bool), torch.ones(1, 128, dtype=torch.bool))
    return abs(float(drawn.run(trial.attention).scaled.float().std()) - 1)


@law(N_("Scores that are still needed are not overwritten."), N_("scores"))
def kept(trial: AttentionTrial) -> float:
    """Return how many of the scores, which may still be needed, the attention has overwritten with -inf."""
    stages, bias = trial.stages, trial.case.terms.bias
    gone = stages.raw.isfinite() & (stages.scaled == -torch.inf)
    return float((gone if bias is None else gone & (bias != -torch.inf)).sum())  # the model's own -inf does not count


@dataclass(frozen=True)
class Verdict:
    """A law's verdict on an attention. amount: the violation, NaN if the case cannot tell. error: PyTorch's message if
    the attention could not be computed at all, which breaks the law "runs" and leaves the others unmeasured."""

    amount: float
    broken: bool
    error: str = ""


def judge(law: Law, trial: AttentionTrial) -> Verdict:
    try:
        amount = law.measure(trial)
    except Crash as crash:
        return Verdict(math.inf if law.measure is runs else math.nan, law.measure is runs, str(crash))
    tolerance = law.tolerance * (HALF_ROUNDS if trial.case.q.dtype == torch.float16 else 1.0)
    if law.of == "output":
        tolerance *= max(1.0, float(trial.case.v.abs().max()))
    return Verdict(amount, amount > tolerance)


def _moved(trial: AttentionTrial, affected: Callable[[Tensor, Tensor], Tensor]) -> float:
    """Return how far an output moves when a real token is changed, each in turn. affected: maps (the changed positions
    [T,1], all positions [T]) to bool [T,T], the outputs that count."""
    allowed = trial.case.allowed
    positions = torch.arange(allowed.shape[-1])
    later = positions > positions[:, None]
    if (allowed & later).any() or len(positions) == 1:
        return math.nan  # no mask forbids attending ahead, or no position is earlier
    return _largest(trial.moved[:, affected(positions[:, None], positions)])


def _largest(values: Tensor) -> float:
    """Return the largest size, infinite if one is no finite number, 0 without numbers."""
    if values.numel() == 0:
        return 0.0
    return float(values.float().abs().nan_to_num(math.inf, math.inf).max())
