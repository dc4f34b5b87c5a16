"""Writing one token at a time: which tokens may come next, which one is drawn, and the text so far.

The order of the filters: first the temperature, then top-k, then top-p on what top-k left (its mass made 1 again), as
in Hugging Face's generate. Top-p is nucleus sampling (Holtzman et al. 2020, arXiv:1904.09751). V is the vocabulary.
"""

import hashlib
import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

MOST_WRITTEN = 200  # tokens of one text
ROUNDING = 1e-6  # a mass so little short of top-p reaches it: float32 logits tell no more


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn.

    temperature: 0 always takes the likeliest token, 1 the model's own probabilities. top_k: only so many are left; 0 =
    all. top_p: only the fewest likeliest that hold this share; 1 = all. seed: another one, another text.
    Raises ValueError for numbers that mean nothing.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        _check(self.temperature, self.top_k, self.top_p)
        if type(self.seed) is not int:
            raise ValueError(f"expected a whole number as the seed, got {self.seed!r}")


@dataclass(frozen=True, eq=False)
class Choice:
    """A drawn token. before, after: float64 [V], each token's probability by the model and after the filters."""

    token: int
    before: Tensor
    after: Tensor

    @property
    def left(self) -> int:
        """How many tokens the filters leave."""
        return int((self.after > 0).sum())


def choose(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
) -> Choice:
    """Draw a token from logits [V]. Of tokens that are equally likely the one with the lower id comes first.

    generator: where the one random number comes from; torch's own unless given. Temperature 0 needs none.
    Raises ValueError for numbers that mean nothing and for logits that are no numbers.
    """
    after = filtered(logits, temperature, top_k, top_p)
    ranked, order = after.sort(descending=True, stable=True)
    token = int(order[0])
    if temperature > 0:
        number = torch.rand((), dtype=torch.float64, generator=generator)
        upto = ranked.cumsum(-1)
        place = int(torch.searchsorted(upto, number * upto[-1], right=True))
        token = int(order[min(place, int((ranked > 0).sum()) - 1)])
    return Choice(token, filtered(logits), after)


def filtered(logits: Tensor, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """float64 [V]: the probabilities after temperature, then top-k, then top-p; what is filtered out has exactly 0.

    Temperature 0 leaves the likeliest token alone. Raises what choose raises.
    """
    _check(temperature, top_k, top_p)
    scores = _ready(logits)
    ranked, order = scores.sort(descending=True, stable=True)
    kept = 1 if temperature == 0 else min(top_k or len(ranked), len(ranked))
    ranked = ranked[:kept] - ranked[0]
    probabilities = (ranked if temperature == 0 else ranked / temperature).softmax(-1)
    if top_p < 1:
        short = probabilities.cumsum(-1) - probabilities < top_p - ROUNDING  # of the mass, before this token
        short[0] = True  # the likeliest stays, whatever the mass
        probabilities = torch.where(short, probabilities, 0.0)
        probabilities = probabilities / probabilities.sum()
    return torch.zeros_like(scores).index_put((order[:kept],), probabilities)


def generator_at(seed: int, position: int) -> torch.Generator:
    """The randomness of one position: the same however often the text was written up to there."""
    digest = hashlib.blake2b(f"{seed} {position}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


def draw(logits: Tensor, sampling: Sampling, position: int) -> Choice:
    """The token that sampling puts at a position of the text, from the logits [V] of the position before."""
    where = generator_at(sampling.seed, position)
    return choose(logits, sampling.temperature, sampling.top_k, sampling.top_p, where)


@dataclass(frozen=True)
class Continuation:
    """A text in the making: the prompt's ids, those written after it, and for each of them whether a person chose it.

    Made anew at every change, never changed.
    """

    prompt: tuple[int, ...]
    written: tuple[int, ...] = ()
    by_hand: tuple[bool, ...] = ()

    @property
    def ids(self) -> tuple[int, ...]:
        return self.prompt + self.written

    def plus(self, token: int, *, by_hand: bool = False) -> "Continuation":
        """One token more."""
        return replace(self, written=(*self.written, token), by_hand=(*self.by_hand, by_hand))

    def cut(self, written: int) -> "Continuation":
        """The first so many of the written tokens."""
        return replace(self, written=self.written[:written], by_hand=self.by_hand[:written])

    def back(self) -> "Continuation":
        """One written token less; the prompt stays."""
        return self.cut(max(len(self.written) - 1, 0))

    def instead(self, place: int, token: int) -> "Continuation":
        """The path that has this token, chosen by hand, as its written token number `place` (from 0) and ends there."""
        return self.cut(place).plus(token, by_hand=True)

    def room(self, context: int) -> int:
        """How many tokens may still be written by a model that reads so many."""
        return max(min(context - len(self.ids), MOST_WRITTEN - len(self.written)), 0)


def _check(temperature: float, top_k: int, top_p: float) -> None:
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ValueError(f"expected a temperature from 0 on, got {temperature}")
    if type(top_k) is not int or top_k < 0:
        raise ValueError(f"expected a top-k of at least 1 token, or 0 for all, got {top_k!r}")
    if not 0 <= top_p <= 1:
        raise ValueError(f"expected a top-p from 0 to 1, got {top_p}")


def _ready(logits: Tensor) -> Tensor:
    """float64 [V], with one number at least that is finite."""
    if logits.ndim != 1 or not len(logits):
        raise ValueError(f"expected logits [V], got {list(logits.shape)}")
    scores = logits.detach().to("cpu", torch.float64)
    if scores.isnan().any() or scores.max().isinf():
        raise ValueError("expected logits that are numbers, the largest of them finite; this model's are not")
    return scores
