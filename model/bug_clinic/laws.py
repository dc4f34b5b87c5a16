"""What every attention must do, whoever wrote it. A law measures by how much an attention breaks it.

A law takes an attention with the core's signature (`attention_stages`) and a Case to try it on. It returns the largest
violation: 0 where the law is kept, infinity where a number is not finite, NaN where the case cannot tell.
Sizes: B rows, H heads, T positions, D head width.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from model.attention import NO_TERMS, AttentionStages, ScoreTerms, attend

Attention = Callable[..., AttentionStages]  # called as attention_stages is

TOKENS_AT_ONCE = 16
HALF_ROUNDS = 1000.0  # float16 rounds about so much coarser than what the laws allow float32


@dataclass(frozen=True, eq=False)
class Case:
    """What an attention is tried on: one layer of one run, every position looking at every position.

    q [B,H,T,D]; k and v [B,Hkv,T,D]; allowed bool [B,1,T,T]; keep bool [B,T], True = a real token.
    scale, terms: as the core takes them. inputs [B,H,T,D]: what the layer read before its projections, cut into heads;
    None where that is not known.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    allowed: Tensor
    keep: Tensor
    scale: float | None = None
    terms: ScoreTerms = NO_TERMS
    inputs: Tensor | None = None

    def run(self, attention: Attention) -> AttentionStages:
        """The attention on this case; one with a parameter `inputs` gets those too."""
        takes_inputs = "inputs" in inspect.signature(attention).parameters
        more = {"inputs": self.inputs} if takes_inputs else {}
        return attention(self.q, self.k, self.v, self.allowed, scale=self.scale, terms=self.terms, **more)

    def to(self, dtype: torch.dtype) -> "Case":
        """The same numbers in another precision."""
        q, k, v = (tensor.to(dtype) for tensor in (self.q, self.k, self.v))
        bias, sinks = (None if term is None else term.to(dtype) for term in (self.terms.bias, self.terms.sinks))
        inputs = None if self.inputs is None else self.inputs.to(dtype)
        return replace(self, q=q, k=k, v=v, inputs=inputs, terms=ScoreTerms(self.terms.softcap, bias, sinks))

    def text_alone(self, row: int) -> "Case":
        """One row without its padding."""
        some, one = self.real(row), slice(row, row + 1)
        bias = self.terms.bias
        if bias is not None:
            bias = bias[one if len(bias) > 1 else slice(None), :, some, some]
        return replace(
            self,
            q=self.q[one, :, some],
            k=self.k[one, :, some],
            v=self.v[one, :, some],
            allowed=self.allowed[one, :, some, some],
            keep=self.keep[one, some],
            terms=replace(self.terms, bias=bias),
            inputs=None if self.inputs is None else self.inputs[one, :, some],
        )

    def copies(self, row: int, count: int) -> "Case":
        """The same row several times."""
        bias = self.terms.bias
        if bias is not None and len(bias) > 1:
            bias = bias[row : row + 1]
        q, k, v, allowed, keep = (
            tensor[row : row + 1].expand(count, *tensor.shape[1:])
            for tensor in (self.q, self.k, self.v, self.allowed, self.keep)
        )
        inputs = None if self.inputs is None else self.inputs[row : row + 1].expand(count, *self.inputs.shape[1:])
        return Case(q, k, v, allowed, keep, self.scale, replace(self.terms, bias=bias), inputs)

    def turned(self, where: tuple) -> "Case":
        """Other numbers at an index into [B,H,T,D]: q, k, v and inputs there with their signs reversed."""
        q, k, v = (_negated(tensor, where) for tensor in (self.q, self.k, self.v))
        return replace(self, q=q, k=k, v=v, inputs=None if self.inputs is None else _negated(self.inputs, where))

    def real(self, row: int) -> slice:
        """Where the row's real tokens are."""
        where = self.keep[row].nonzero()
        return slice(int(where[0]), int(where[-1]) + 1)


def blocked(attention: Attention, case: Case) -> float:
    """The largest weight in a blocked cell."""
    weights = case.run(attention).weights
    return _largest(weights[~case.allowed.expand_as(weights)])


def rows(attention: Attention, case: Case) -> float:
    """The furthest that a row's sum is from 1 (beside sinks, from what they leave), where a row may look anywhere."""
    sums = case.run(attention).weights.sum(-1)
    expected = torch.ones_like(sums)
    if case.terms.sinks is not None:
        ones = torch.ones_like(case.v[..., :1])  # their weighted sum is the row's sum
        expected = attend(case.q, case.k, ones, case.allowed, scale=case.scale, terms=case.terms)[..., 0]
    looks = case.allowed.any(-1).expand_as(sums)
    return _largest((sums - expected)[looks])


def empty(attention: Attention, case: Case) -> float:
    """The largest weight or output of a row that is blocked throughout."""
    nothing = ~case.allowed.any(-1)  # [B,1,T]
    stages = case.run(attention)
    parts = [tensor[nothing.expand(tensor.shape[:-1])] for tensor in (stages.weights, stages.output)]
    return max(map(_largest, parts)) if nothing.any() else math.nan


def causal(attention: Attention, case: Case) -> float:
    """How far an output moves when a real token that comes later is changed, each of them in turn."""
    size = case.allowed.shape[-1]
    later = torch.ones(size, size, dtype=torch.bool).triu(1)
    if (case.allowed & later).any() or size == 1:
        return math.nan  # here nothing forbids to look ahead, or nobody comes earlier
    worst = 0.0
    for row in range(len(case.keep)):
        real = case.real(row)
        for some in torch.arange(max(real.start, 1), real.stop).split(TOKENS_AT_ONCE):
            copies = torch.arange(len(some))
            changed = case.copies(row, len(some) + 1).turned((copies, slice(None), some))
            outputs = changed.run(attention).output  # the last copy is unchanged
            earlier = (torch.arange(size) < some[:, None])[:, None, :, None]
            change = (outputs[:-1] - outputs[-1:]).masked_fill(~earlier, 0.0)
            worst = max(worst, _largest(change))
    return worst


def padded(attention: Attention, case: Case) -> float:
    """How far the output of a padded row is from that of the same text alone."""
    if case.keep.all():
        return math.nan
    together = case.run(attention).output
    worst = 0.0
    for row in range(len(case.keep)):
        alone = case.text_alone(row).run(attention).output[0]
        worst = max(worst, _apart(together[row, :, case.real(row)], alone))
    return worst


def same(attention: Attention, case: Case) -> float:
    """How far the output is from that of `attend`, which PyTorch's own kernels compute."""
    expected = attend(case.q, case.k, case.v, case.allowed, scale=case.scale, terms=case.terms)
    return _apart(case.run(attention).output, expected)


def heads(attention: Attention, case: Case) -> float:
    """How far the other heads' output moves when head 0, and who shares its keys, are given other numbers."""
    group = case.q.shape[1] // case.k.shape[1]
    if case.k.shape[1] == 1:
        return math.nan
    before = case.run(attention).output
    after = case.turned((slice(None), 0)).run(attention).output
    return _apart(before[:, group:], after[:, group:])


def projected(attention: Attention, case: Case) -> float:
    """How many of q, k and v may be given other numbers without any effect on the output."""
    if (case.allowed.sum(-1) < 2).all():
        return math.nan  # who has one key to look at gives it all weight, whatever q and k
    before = case.run(attention).output
    changed = [replace(case, **{name: -getattr(case, name)}) for name in ("q", "k", "v")]
    return float(sum(_apart(before, other.run(attention).output) == 0 for other in changed))


def scaled(attention: Attention, case: Case) -> float:
    """How far from 1 the scaled scores' standard deviation is, for independent q and k of unit variance.

    In the case's sizes and precision, on numbers of its own: 128 positions.
    """
    random = torch.Generator().manual_seed(0)
    shapes = (tensor.shape[1::2] for tensor in (case.q, case.k, case.v))  # (H, D) of each
    drawn = [torch.randn(1, heads, 128, width, generator=random).to(case.q.dtype) for heads, width in shapes]
    return abs(float(attention(*drawn, None).scaled.float().std()) - 1)


def kept(attention: Attention, case: Case) -> float:
    """How many of the scores, which others may still use, the attention has overwritten with -inf."""
    stages = case.run(attention)
    return float((stages.raw.isfinite() & (stages.scaled == -torch.inf)).sum())


@dataclass(frozen=True)
class Law:
    """A law in words, and how much of a violation is rounding.

    of: what the violation is a number of. most: in float32; where `of` is "output", for values of size 1.
    """

    words: str
    measure: Callable[[Attention, Case], float]
    of: str
    most: float = 0.0
    needs: str = ""  # what a case must have for the law to say anything


LAWS = {
    "blocked": Law("A blocked cell's weight is exactly 0.", blocked, "weight"),
    "rows": Law("A row that may look anywhere has weights that sum to 1.", rows, "weight", 1e-5),
    "empty": Law(
        "A row that may look nowhere gives 0, never NaN.", empty, "output", 0.0, "a row that is blocked throughout"
    ),
    "causal": Law(
        "Changing a token leaves every earlier output as it was.", causal, "output", 1e-4,
        "a causal mask and two positions",
    ),
    "padded": Law("A padded row equals the same text alone.", padded, "output", 1e-4, "padding in this row"),
    "same": Law("The output is the one that PyTorch's own kernel gives.", same, "output", 1e-4),
    "heads": Law("What goes into one head leaves the others alone.", heads, "output", 1e-4, "two key-value heads"),
    "projected": Law(
        "Other queries, keys or values give another output.", projected, "of 3 ignored", 0.0, "a choice of two keys"
    ),
    "scaled": Law("Unit q and k of any width give scaled scores with a deviation of 1.", scaled, "deviation", 0.1),
    "kept": Law("Scores that others still use are not overwritten.", kept, "scores"),
}  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """What a law says of an attention. amount: the violation, NaN where the case cannot tell. error: what PyTorch said
    when the attention could not be computed at all."""

    amount: float
    broken: bool
    error: str = ""


def judge(law: Law, attention: Attention, case: Case) -> Verdict:
    """Measure one law on one case."""
    try:
        amount = law.measure(attention, case)
    except RuntimeError as error:
        return Verdict(math.inf, True, str(error))
    most = law.most * (HALF_ROUNDS if case.q.dtype == torch.float16 else 1.0)
    if law.of == "output":
        most *= max(1.0, float(case.v.abs().max()))
    return Verdict(amount, amount > most)


def _negated(tensor: Tensor, where: tuple) -> Tensor:
    result = tensor.clone()
    result[where] = -result[where]
    return result


def _apart(one: Tensor, other: Tensor) -> float:
    return _largest(one - other)


def _largest(values: Tensor) -> float:
    """The largest size, infinite where one is no finite number, 0 of nothing."""
    if values.numel() == 0:
        return 0.0
    return float(values.float().abs().nan_to_num(math.inf, math.inf).max())
