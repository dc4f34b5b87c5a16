"""What the page measures, remembered between reruns, as its pictures take it."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import streamlit as st

from i18n import say
from model import padding
from model.base import Model
from model.padding import CHOICES, Alone, Guess, PaddingChoice, PaddingComparison
from serving.job import ModelRef, RunRef, digest
from ui import results
from ui.padding.lines import PaddedTexts
from ui.results import cached_figure
from ui.streamlit_internals import css
from viz.numbers import Candidate
from viz.padding.grid import PaddedText
from viz.padding.tables import MASKS, Way, side_label, way_label, way_name, ways_style


def show(ways: Sequence[Way], shown: Way, texts: int, cells: int) -> None:
    """A row for each side and kind of position ids, a column for each mask; `shown` is framed."""
    by_choice = {(way.side, way.positions, way.mask): way for way in ways}
    st.html(css(cached_figure(ways_style, ways)))
    with st.grid(4, wrap=False, min_column_width=60, gap="xxsmall", vertical_alignment="center", key="ways"):
        st.empty()
        for title in MASKS.values():
            st.caption(say(title))
        for side, positions in dict.fromkeys((way.side, way.positions) for way in ways):
            st.caption(side_label(side, positions, cells))
            for mask in MASKS:
                way = by_choice[side, positions, mask]
                st.button(way_label(way, texts), key=way.key, help=way_name(way, cells), width="stretch",
                          type="primary" if way == shown else "secondary",
                          on_click=_take, args=(way,))  # fmt: skip


def _take(way: Way) -> None:
    st.session_state.update(pad=way.side, padding_mask=way.mask)
    if way.positions != "own":
        st.session_state.position_ids = way.positions


Made = TypeVar("Made")


@dataclass(frozen=True)
class Padded:
    """The batch under one way to pad. tolerance: the largest difference of a logit that is rounding."""

    texts: list[PaddedText]
    way: Way
    tolerance: float

    @property
    def cells(self) -> int:
        """Of a row."""
        return len(self.texts[0].pieces)


def own_positions(model: Model, texts: tuple[str, ...]) -> bool:
    """Whether the model takes no position ids but its own; remembered."""
    key, ask = ("own_positions", model.key), partial(results.ask, padding.takes_positions, ModelRef.of(model))
    return not results.kept(key, lambda: ask(texts[-1]))  # of a model: another text would say the same


def padded(model: Model, found: PaddedTexts, choice: PaddingChoice, causal: bool, own: bool) -> Padded:
    """The texts as one batch padded by choice, beside each alone. own: the model takes no position ids but its own."""

    def make() -> Padded:
        runs = _runs(model, found.texts, causal)
        alone, comparison = _alone(model, runs), _compared(model, found.texts, choice, causal, runs)
        texts = _padded_texts(model, found, comparison, alone, own)
        return Padded(texts, _way(model, choice, alone, comparison, own), alone.tolerance)

    return _kept(("padded", choice, own), model, found, causal, make)


def ways(model: Model, found: PaddedTexts, causal: bool, own: bool) -> list[Way]:
    """All ways to pad; those with other position ids are left out for a model that works out its own."""

    def make() -> list[Way]:
        runs = _runs(model, found.texts, causal)
        alone = _alone(model, runs)
        offered = [choice for choice in CHOICES if not (own and choice.positions == "cells")]
        compared = {choice: _compared(model, found.texts, choice, causal, runs) for choice in offered}
        return [_way(model, choice, alone, comparison, own) for choice, comparison in compared.items()]

    return _kept(("ways", own), model, found, causal, make)


def _kept(what: Hashable, model: Model, found: PaddedTexts, causal: bool, make: Callable[[], Made]) -> Made:
    return results.kept((what, model.key, digest((found.texts, found.ours)), causal), make)


def _runs(model: Model, texts: tuple[str, ...], causal: bool) -> list[RunRef]:
    """Of each text by itself."""
    return [RunRef(ModelRef.of(model), model.encode([text]), padding.spec_alone(causal)) for text in texts]


def _alone(model: Model, runs: list[RunRef]) -> Alone:
    return results.ask(padding.alone, ModelRef.of(model), *runs)


def _compared(
    model: Model, texts: tuple[str, ...], choice: PaddingChoice, causal: bool, runs: list[RunRef]
) -> PaddingComparison:
    return results.ask(padding.compare, ModelRef.of(model), texts, choice, causal, *runs)


def _way(model: Model, choice: PaddingChoice, alone: Alone, found: PaddingComparison, own: bool) -> Way:
    apart = max(found.largest())
    others = None
    if padding.predicts_next(model):
        pairs = zip(found.guesses, alone.guesses, strict=True)
        others = sum(one is not None and other is not None and one.token != other.token for one, other in pairs)
    positions = "own" if own else choice.positions
    return Way(choice.side, choice.mask, positions, apart, others, apart <= alone.tolerance)


def _padded_texts(
    model: Model, found: PaddedTexts, comparison: PaddingComparison, alone: Alone, own: bool
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
            alone=_candidate(model, alone.guesses[row]),
            padded=_candidate(model, comparison.guesses[row]),
            at_end=_candidate(model, comparison.at_end[row]),
        )
        for row in range(len(found.texts))
    ]


def _candidate(model: Model, guess: Guess | None) -> Candidate | None:
    return None if guess is None else Candidate(model.label(guess.token), guess.probability)
