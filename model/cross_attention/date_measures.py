"""How well the dates model writes, under any masks: whole dates right, and characters right."""

import random
from dataclasses import dataclass
from functools import lru_cache

import torch

from model.cross_attention.dates import END, DatesModel
from model.cross_attention.days import held_out_days
from model.cross_attention.written_dates import examples
from model.masks import MaskSpec

BATCH = 250  # strings that are written together
Pairs = list[tuple[str, str]]  # (as somebody wrote it, ISO 8601)


@dataclass(frozen=True)
class DateAccuracy:
    """Shares, 0 to 1, over `count` held-out strings.

    exact: the model, writing by itself, wrote the whole date. characters: shown the right date up to each character,
    it thought that character the likeliest; probability: that character's mean probability.
    """

    count: int
    exact: float
    characters: float
    probability: float

    def nbytes(self) -> int:
        """The memory it takes, in bytes, about."""
        return 100


@lru_cache(maxsize=4)
def held_out_sample(count: int, seed: str = "page") -> tuple[tuple[str, str], ...]:
    """Always the same strings of days that never occur in training."""
    return tuple(examples(held_out_days(), count, random.Random(seed)))


def measure(model: DatesModel, spec: MaskSpec, count: int) -> DateAccuracy:
    """On a held-out sample of this size."""
    some = list(held_out_sample(count))
    exact = exact_match(model, some, spec)
    return DateAccuracy(count, exact, *shown_the_answer(model, some, spec))


def exact_match(
    model: DatesModel,
    some: Pairs,
    spec: MaskSpec | None = None,
) -> float:
    """The share, 0 to 1, of the pairs whose whole target the model writes, in batches of BATCH."""
    right = 0
    for begin in range(0, len(some), BATCH):
        sources, targets = zip(*some[begin : begin + BATCH], strict=True)
        written = model.write(model.encode_source(list(sources)), spec).texts
        right += sum(one == other for one, other in zip(written, targets, strict=True))
    return right / len(some)


def shown_the_answer(model: DatesModel, some: Pairs, spec: MaskSpec | None = None) -> tuple[float, float]:
    """Teacher forcing: the share of target characters that are likeliest at their step, and their mean probability."""
    right, chances = [], []
    for begin in range(0, len(some), BATCH):
        sources, targets = zip(*some[begin : begin + BATCH], strict=True)
        trace = model.run(model.encode(list(sources), targets=list(targets)), spec)
        probabilities = trace.logits[:, :-1].softmax(-1)  # [B,T-1,V]
        wanted, real = trace.batch.ids[:, 1:], trace.batch.keep[:, 1:]
        right.append((probabilities.argmax(-1) == wanted)[real])
        chances.append(probabilities.gather(-1, wanted[..., None])[..., 0][real])
    return float(torch.cat(right).float().mean()), float(torch.cat(chances).mean())


def answer_chances(model: DatesModel, text: str, answers: tuple[str, ...]) -> tuple[float, ...]:
    """Teacher forcing: the probability, 0 to 1, of each of these as the whole answer to the text, its end included."""
    trace = model.run(model.encode([text] * len(answers), targets=list(answers)))
    wanted = trace.batch.ids.roll(-1, dims=-1)  # [B,T]
    wanted[torch.arange(len(answers)), trace.batch.keep.sum(-1) - 1] = END
    each = trace.logits.log_softmax(-1).gather(-1, wanted[..., None])[..., 0]
    return tuple(each.where(trace.batch.keep, 0).sum(-1).exp().tolist())
