"""What the page measures, remembered between reruns, as its pictures take it."""

from functools import partial

from model import padding
from model.base import Model
from model.jobs.job import ModelRef, Run
from model.padding import CHOICES, Alone, Choice, Comparison, Guess
from ui import results
from ui.padding.lines import Lines
from viz.numbers import Candidate
from viz.padding.grid import PaddedText
from viz.padding.tables import Way


def own_positions(model: Model, texts: tuple[str, ...]) -> bool:
    """Whether the model takes no position ids but its own; remembered."""
    key, ask = ("own positions", model.key), partial(results.ask, padding.takes_positions, ModelRef.of(model))
    return not results.shared().get(key, lambda: ask(texts[-1]))  # of a model: another text would say the same


def alone(model: Model, texts: tuple[str, ...], causal: bool) -> Alone:
    """Each text by itself, remembered."""
    return results.ask(padding.alone, ModelRef.of(model), *_runs(model, texts, causal))


def compare(model: Model, texts: tuple[str, ...], choice: Choice, causal: bool) -> Comparison:
    """The texts as one padded batch beside each alone, remembered."""
    return results.ask(padding.compare, ModelRef.of(model), texts, choice, causal, *_runs(model, texts, causal))


def ways(model: Model, texts: tuple[str, ...], causal: bool, own: bool) -> list[Way]:
    """All ways to pad; those with other position ids are left out for a model that works out its own."""
    offered = [choice for choice in CHOICES if not (own and choice.positions == "cells")]
    return [way(model, texts, choice, causal, own) for choice in offered]


def way(model: Model, texts: tuple[str, ...], choice: Choice, causal: bool, own: bool) -> Way:
    """One of them."""
    by_themselves, found = alone(model, texts, causal), compare(model, texts, choice, causal)
    apart = max(found.largest())
    others = None
    if padding.predicts_next(model):
        pairs = zip(found.guesses, by_themselves.guesses, strict=True)
        others = sum(one is not None and other is not None and one.token != other.token for one, other in pairs)
    positions = "own" if own else choice.positions
    return Way(choice.side, choice.mask, positions, apart, others, apart <= by_themselves.tolerance)


def padded_texts(
    model: Model, found: Lines, comparison: Comparison, by_themselves: Alone, own: bool
) -> list[PaddedText]:
    """The rows of the batch as there is to draw of them."""
    batch, first_of_ours = comparison.batch, len(found.texts) - found.ours
    return [
        PaddedText(
            number=row + 1,
            ours=row >= first_of_ours,
            pieces=batch.pieces[row],
            keep=tuple(batch.keep[row].tolist()),
            positions=() if own else tuple(comparison.positions[row].tolist()),
            apart=tuple(comparison.apart[row].tolist()),
            alone=_candidate(model, by_themselves.guesses[row]),
            padded=_candidate(model, comparison.guesses[row]),
            at_end=_candidate(model, comparison.at_end[row]),
        )
        for row in range(len(found.texts))
    ]


def _runs(model: Model, texts: tuple[str, ...], causal: bool) -> list[Run]:
    """Of each text by itself."""
    return [Run(ModelRef.of(model), model.encode([text]), padding.spec_alone(causal)) for text in texts]


def _candidate(model: Model, guess: Guess | None) -> Candidate | None:
    return None if guess is None else Candidate(model.label(guess.token), guess.probability)
