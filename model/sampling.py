"""Sampling of one token at a time: which tokens may come next, which one is drawn, and the text so far.

The logits are divided by the temperature; then come the filters: top-k, and top-p on the renormalized result of top-k,
as in Hugging Face's generate. Top-p is nucleus sampling (Holtzman et al. 2020, arXiv:1904.09751). V is the vocabulary.
Everything that generates text in this project draws its tokens here.
"""

import hashlib
import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from model.trace import Trace

MAX_WRITTEN = 200  # tokens generated in one text
ROUNDING = 1e-6  # a mass this little below top-p counts as reaching it: float32 logits are no more exact


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn. temperature: 0 always takes the most likely token, 1 the model's own probabilities. top_k:
    the number of tokens to draw from; 0 = all. top_p: only the fewest most likely that hold this share; 1 = all. seed:
    of the random numbers. Raises ValueError for invalid numbers."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"expected a temperature from 0 on, got {self.temperature}")
        if type(self.top_k) is not int or self.top_k < 0:
            raise ValueError(f"expected a top-k of at least 1 token, or 0 for all, got {self.top_k!r}")
        if not 0 <= self.top_p <= 1:
            raise ValueError(f"expected a top-p from 0 to 1, got {self.top_p}")
        if type(self.seed) is not int:
            raise ValueError(f"expected a whole number as the seed, got {self.seed!r}")


@dataclass(frozen=True, eq=False)
class SampledToken:
    """A sampled token. before, after: float64 [V], the model's probabilities, and those it is drawn with."""

    token: int
    before: Tensor
    after: Tensor

    @property
    def left(self) -> int:
        """The number of tokens that may be drawn."""
        return int((self.after > 0).sum())


def draw(logits: Tensor, sampling: Sampling, position: int) -> SampledToken:
    """Sample the token at a position of the text, from the logits [V] of the position before. The random number depends
    on seed and position alone, however often the text was generated up to there."""
    digest = hashlib.blake2b(f"{sampling.seed} {position}".encode(), digest_size=8).digest()
    return choose(logits, sampling, torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1))


def choose(logits: Tensor, sampling: Sampling, generator: torch.Generator | None = None) -> SampledToken:
    """Sample a token from logits [V]. Of equally likely tokens the one with the lower id comes first. generator: the
    source of the one random number, whatever sampling's seed. Raises ValueError for logits with NaN or without a finite
    maximum."""
    if logits.ndim != 1:
        raise ValueError(f"expected logits [V], got {list(logits.shape)}")
    after = distribution(logits, sampling)
    number = torch.rand((), dtype=torch.float64, generator=generator)
    return SampledToken(int(pick(after, number)), _ready(logits).softmax(-1), after)


def distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return the probabilities a token is drawn with, logits [..,V] -> float64 [..,V]; 0 where top-k or top-p exclude
    it. Temperature 0 keeps the most likely token alone. Raises as choose."""
    scores = _ready(logits)
    ranked, order = scores.sort(descending=True, stable=True)
    count = 1 if sampling.temperature == 0 else min(sampling.top_k or ranked.shape[-1], ranked.shape[-1])
    ranked, order = ranked[..., :count] - ranked[..., :1], order[..., :count]
    probabilities = (ranked / (sampling.temperature or 1)).softmax(-1)
    if sampling.top_p < 1:
        short = probabilities.cumsum(-1) - probabilities < sampling.top_p - ROUNDING  # the mass before this token
        short[..., 0] = True  # the most likely stays, whatever the mass
        probabilities = torch.where(short, probabilities, 0.0)
        probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    return torch.zeros_like(scores).scatter(-1, order, probabilities)


def pick(probabilities: Tensor, numbers: Tensor) -> Tensor:
    """Return tokens [..] for probabilities [..,V] and numbers [..] from 0 to 1: where the cumulative probability, the
    most likely token first, passes the number. A token with probability 0 is never picked."""
    ranked, order = probabilities.sort(descending=True, stable=True)
    upto = ranked.cumsum(-1)
    index = torch.searchsorted(upto, numbers[..., None].to(upto) * upto[..., -1:], right=True)
    last = (ranked > 0).sum(-1, keepdim=True) - 1
    return order.gather(-1, index.minimum(last))[..., 0]


@dataclass(frozen=True)
class Continuation:
    """A text being generated: the prompt's ids, the generated ids, and for each of these whether a user chose it.
    Immutable: a change makes a new one."""

    prompt: tuple[int, ...]
    written: tuple[int, ...] = ()
    by_hand: tuple[bool, ...] = ()

    @property
    def ids(self) -> tuple[int, ...]:
        return self.prompt + self.written

    def plus(self, token: int, *, by_hand: bool = False) -> "Continuation":
        return replace(self, written=(*self.written, token), by_hand=(*self.by_hand, by_hand))

    def cut(self, written: int) -> "Continuation":
        return replace(self, written=self.written[:written], by_hand=self.by_hand[:written])

    def instead(self, index: int, token: int) -> "Continuation":
        """Return the continuation that ends with this token, chosen by the user, as generated token `index` from 0."""
        return self.cut(index).plus(token, by_hand=True)

    def room(self, context: int) -> int:
        """Return the number of tokens that a model with this context may still generate."""
        return max(min(context - len(self.ids), MAX_WRITTEN - len(self.written)), 0)


def _ready(logits: Tensor) -> Tensor:
    """Return logits as float64 [..,V]. Raises ValueError for NaN, and for a row without a finite maximum."""
    if not logits.numel():
        raise ValueError(f"expected logits [..,V], got {list(logits.shape)}")
    scores = logits.detach().to("cpu", torch.float64)
    if scores.isnan().any() or scores.amax(-1).isinf().any():
        raise ValueError("expected logits that are numbers, the largest of them finite; this model's are not")
    return scores


@dataclass(frozen=True, eq=False)
class NextTokens:
    """The most likely next tokens, in descending order: tokens int64 [N], probabilities float32 [N], 0 to 1."""

    tokens: np.ndarray
    probabilities: np.ndarray


@dataclass(frozen=True, eq=False)
class Predictions(NextTokens):
    """The most likely next tokens, and a row's losses: float32 [T], nats, NaN where there is none."""

    losses: np.ndarray


def logits_at(trace: Trace, row: int, position: int) -> Tensor:
    """Return the float32 logits [V] of what follows the token at a position."""
    with torch.inference_mode():
        return trace.readout(trace.states[row, position]).float().cpu()


def next_tokens(trace: Trace, row: int, query: int | None, count: int) -> NextTokens:
    """Return at most `count` of the most likely tokens after the position query (default: the row's last real one)."""
    chances = trace.next_token(row, query)
    top = chances.topk(min(count, len(chances)))
    return NextTokens(top.indices.cpu().numpy(), top.values.cpu().numpy())


def predictions(trace: Trace, row: int, query: int | None, count: int) -> Predictions:
    """Return `next_tokens` and the row's losses, which need the logits of every position: for a long text this takes as
    long as a small run."""
    found = next_tokens(trace, row, query, count)
    return Predictions(found.tokens, found.probabilities, trace.losses(row).numpy())
