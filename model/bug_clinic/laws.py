"""What every attention must do, whoever wrote it. A law measures by how much an attention, tried on a case (`AttentionTrial`),
breaks it: 0 where it is kept, infinity where a number is not finite, NaN where the case cannot tell.

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
    """The pair. Whatever it computes raises Crash where PyTorch refuses, but for `verdicts`."""

    attention: Attention
    case: AttentionCase

    @cached_property
    def stages(self) -> AttentionStages:
        """The attention on the case as it is."""
        return self.case.run(self.attention)

    @cached_property
    def verdicts(self) -> dict[str, "Verdict"]:
        return {name: judge(law, self) for name, law in LAWS.items()}

    def output(self, case: AttentionCase) -> Tensor:
        """[B,H,T,D]: the attention on another case."""
        return case.run(self.attention).output

    @cached_property
    def moved(self) -> Tensor:
        """[B,T,T]: how far the output of the last axis' position moves when the real token of the middle one's is
        changed, at most over its heads; infinite where it is no finite number, 0 for what is no real token."""
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
    """A law in words, and how much of a violation is rounding. of: what the violation is a number of. most: in float32;
    where `of` is "output", for values of size 1. needs: what a case must have for the law to say anything."""

    words: str
    measure: Measure
    of: str
    most: float = 0.0
    needs: str = ""


LAWS: dict[str, Law] = {}


def law(words: str, of: str, most: float = 0.0, needs: str = "") -> Callable[[Measure], Measure]:
    """Makes a measure a law, under its name; the rest as Law's."""

    def add(measure: Measure) -> Measure:
        LAWS[measure.__name__] = Law(words, measure, of, most, needs)
        return measure

    return add


HALF_ROUNDS = 1000.0  # float16 rounds about so much coarser than what the laws allow float32


@law(N_("The code runs."), N_("errors"))
def runs(tried: AttentionTrial) -> float:
    """0: who gets here was computed. Raises Crash where PyTorch refuses."""
    _ = tried.stages
    return 0.0


@law(N_("A blocked cell's weight is exactly 0."), N_("weight"))
def blocked(tried: AttentionTrial) -> float:
    weights = tried.stages.weights
    return _largest(weights[~tried.case.allowed.expand_as(weights)])


@law(
    N_("If a token has an allowed key, its weights sum to 1 (together with the head's sink, where a model has sinks)."),
    N_("weight"),
    1e-5,
)
def rows(tried: AttentionTrial) -> float:
    """The furthest that a row's sum is from 1 (beside a sink, from what that leaves), where it has a key to look at."""
    case, sums = tried.case, tried.stages.weights.sum(-1)
    expected = torch.ones_like(sums)
    if (sinks := case.terms.sinks) is not None:
        sinks = sinks[:, None] if sinks.ndim == 1 else sinks[..., 0]
        expected = (tried.stages.masked.float().logsumexp(-1) - sinks).sigmoid()
    looks = case.allowed.any(-1).expand_as(sums)
    return _largest((sums - expected)[looks])


@law(N_("A token with no allowed key gets output 0, never NaN."), N_("output"), needs=N_("a token with no allowed key"))
def empty(tried: AttentionTrial) -> float:
    """The largest weight or output of a row that is blocked throughout."""
    nothing = ~tried.case.allowed.any(-1)  # [B,1,T]
    stages = tried.stages
    parts = [tensor[nothing.expand(tensor.shape[:-1])] for tensor in (stages.weights, stages.output)]
    return max(map(_largest, parts)) if nothing.any() else math.nan


@law(
    N_("No later token is read: changing one leaves every earlier output unchanged."),
    N_("output"),
    1e-4,
    N_("a causal mask and two tokens"),
)
def causal(tried: AttentionTrial) -> float:
    """How far an output moves when a real token that comes later is changed, each of them in turn."""
    return _moved(tried, lambda changed, position: position < changed)


@law(N_("No output depends on the token that it must predict."), N_("output"), 1e-4, N_("a causal mask and two tokens"))
def target(tried: AttentionTrial) -> float:
    """How far an output moves when the token that it is to predict is changed, each of them in turn."""
    return _moved(tried, lambda changed, position: position == changed - tried.case.ahead)


@law(N_("A padded row gives what the same text gives alone."), N_("output"), 1e-4, N_("padding in this row"))
def padded(tried: AttentionTrial) -> float:
    case = tried.case
    if case.keep.all():
        return math.nan
    together = tried.stages.output
    worst = 0.0
    for row in range(len(case.keep)):
        alone = tried.output(case.text_alone(row))[0]
        worst = max(worst, _largest(together[row, :, case.real(row)] - alone))
    return worst


@law(N_("The output is what PyTorch's own attention gives."), N_("output"), 1e-4)
def same(tried: AttentionTrial) -> float:
    case = tried.case
    expected = attend(case.q, case.k, case.v, case.allowed, scale=case.scale, terms=case.terms)
    return _largest(tried.stages.output - expected)


@law(N_("The inputs of one head do not affect the others."), N_("output"), 1e-4, N_("two key-value heads"))
def heads(tried: AttentionTrial) -> float:
    """How far the other heads' output moves when head 0, and who shares its keys, are given other numbers."""
    case = tried.case
    group = case.q.shape[1] // case.k.shape[1]
    if case.k.shape[1] == 1:
        return math.nan
    before, after = tried.stages.output, tried.output(case.with_negated((slice(None), 0)))
    return _largest(before[:, group:] - after[:, group:])


@law(
    N_("Different queries, keys or values give a different output."),
    N_("of 3 ignored"),
    needs=N_("a token with two allowed keys"),
)
def projected(tried: AttentionTrial) -> float:
    """How many of q, k and v may be given other numbers without any effect on the output."""
    case = tried.case
    if (case.allowed.sum(-1) < 2).all():
        return math.nan  # who has one key to look at gives it all weight, whatever q and k
    before = tried.stages.output
    changed = [replace(case, **{name: -getattr(case, name)}) for name in ("q", "k", "v")]
    return float(sum(_largest(before - tried.output(other)) == 0 for other in changed))


@law(
    N_("q and k of unit variance and any width give scaled scores with a standard deviation of 1."),
    N_("standard deviation"),
    0.1,
    N_("a model that divides its scores by √d"),
)
def scaled(tried: AttentionTrial) -> float:
    """How far from 1 the scaled scores' standard deviation is, for independent q and k of unit variance, in the case's
    sizes and precision, on 128 positions."""
    case, random = tried.case, torch.Generator().manual_seed(0)
    if not case.has_usual_scale:
        return math.nan
    shapes = (tensor.shape[1::2] for tensor in (case.q, case.k, case.v))  # (H, D) of each
    q, k, v = (torch.randn(1, heads, 128, width, generator=random).to(case.q.dtype) for heads, width in shapes)
    drawn = AttentionCase(q, k, v, torch.ones(1, 1, 128, 128, dtype=torch.bool), torch.ones(1, 128, dtype=torch.bool))
    return abs(float(drawn.run(tried.attention).scaled.float().std()) - 1)


@law(N_("Scores that are still needed are not overwritten."), N_("scores"))
def kept(tried: AttentionTrial) -> float:
    """How many of the scores, which others may still use, the attention has overwritten with -inf."""
    stages, bias = tried.stages, tried.case.terms.bias
    gone = stages.raw.isfinite() & (stages.scaled == -torch.inf)
    return float((gone if bias is None else gone & (bias != -torch.inf)).sum())  # -inf of the model's own is none of it


@dataclass(frozen=True)
class Verdict:
    """What a law says of an attention. amount: the violation, NaN where the case cannot tell. error: what PyTorch said
    when the attention could not be computed at all, which breaks the law "runs" and leaves the others unmeasured."""

    amount: float
    broken: bool
    error: str = ""


def judge(law: Law, tried: AttentionTrial) -> Verdict:
    try:
        amount = law.measure(tried)
    except Crash as crash:
        return Verdict(math.inf if law.measure is runs else math.nan, law.measure is runs, str(crash))
    most = law.most * (HALF_ROUNDS if tried.case.q.dtype == torch.float16 else 1.0)
    if law.of == "output":
        most *= max(1.0, float(tried.case.v.abs().max()))
    return Verdict(amount, amount > most)


def _moved(tried: AttentionTrial, asked: Callable[[Tensor, Tensor], Tensor]) -> float:
    """How far an output moves when a real token is changed, each in turn. asked: (the changed positions [T,1], all
    positions [T]) -> bool [T,T], which outputs are asked about."""
    allowed = tried.case.allowed
    positions = torch.arange(allowed.shape[-1])
    later = positions > positions[:, None]
    if (allowed & later).any() or len(positions) == 1:
        return math.nan  # here nothing forbids to look ahead, or nobody comes earlier
    return _largest(tried.moved[:, asked(positions[:, None], positions)])


def _largest(values: Tensor) -> float:
    """The largest size, infinite where one is no finite number, 0 of nothing."""
    if values.numel() == 0:
        return 0.0
    return float(values.float().abs().nan_to_num(math.inf, math.inf).max())
