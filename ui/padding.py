"""The Padding page: the lines of the batch, its controls, and the results of all padding settings."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import streamlit as st

from i18n import N_, say
from model import padding
from model.base import Model
from model.mask_kinds import LOCAL
from model.masks import MaskSpec
from model.padding import CHOICES, Alone, Guess, PaddingChoice, PaddingComparison, PositionIds
from model.text import rows_of
from serving.job import ModelRef, RunRef, digest
from ui import controls, explain, link, results
from ui.results import cached_figure
from ui.streamlit_internals.selectors import css
from ui.widgets import one_of
from viz.numbers import Candidate
from viz.padding.tables import MASKS as MASK_TITLES
from viz.padding.tables import PaddedText, Way, side_label, way_label, way_name, ways_style

MASKS = {"off": N_("off"), "keys": N_("on keys"), "both": N_("on keys and queries")}
POSITIONS = {"counted": N_("from the mask"), "cells": "0…T−1"}
ENCODER_DECODER = N_(
    "This page is about models with one stack of layers. {model} has two, an encoder and a decoder, each with its own "
    "padding. Choose a decoder or an encoder on the left; Explore shows this model's attention under padding."
)
OF_ENCODER = N_(
    "An encoder predicts no next token: its logits predict the token at each position, and those are compared."
)
OTHER_LAYERS = N_("These masks apply to attention only: other parts of the network may still read padding.")
NO_LOGITS = N_("This model was saved without its language-model head: its last hidden states are compared, not logits.")
# Of different lengths, so that one of them is always padded.
OURS = ("Once upon a time", "The king said to his")  # not shown in another language: models read it
Made = TypeVar("Made")


class PaddingLink(link.TextLink):
    """The link of the Padding page. Its defaults are the most common mistakes, so that there is something to see."""

    pad: Literal["left", "right"] = "left"
    causal: bool | None = None
    padding_mask: Literal["off", "keys", "both"] = "keys"
    position_ids: Literal["counted", "cells"] = "cells"


@dataclass(frozen=True)
class PaddedTexts:
    """The texts of the batch: the user's first, then `ours` texts that the page added. notes: sentences about them.

    whole: all lines that the user typed, with the added ones among them.
    """

    texts: tuple[str, ...]
    ours: int
    notes: tuple[str, ...]
    whole: str


@dataclass(frozen=True)
class Padded:
    """The batch under one padding setting. tolerance: the largest difference of a logit that counts as rounding."""

    texts: list[PaddedText]
    way: Way
    tolerance: float

    @property
    def cells(self) -> int:
        return len(self.texts[0].pieces)


def choose(model: Model, own: bool) -> tuple[PaddingChoice, bool]:
    """Let the user choose how to pad, and the causal mask. own: the model accepts no position ids but its own."""
    PaddingLink.restore()
    filled = say("The side on which shorter sentences are padded to the length of the longest.")
    on_queries = say("On keys: no token attends to padding. On keys and queries: padding attends to no token either.")
    counted = say(
        "From the mask: only real tokens are counted. 0…T−1: every cell is counted, including padding; T is the number "
        "of cells."
    )
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        side = one_of(say("Pad side"), controls.SIDES, "pad", width="content", help=filled)
        mask = one_of(say("Padding mask"), MASKS, "padding_mask", width="content", help=on_queries)
        positions: PositionIds = "counted"
        if not own:
            positions = one_of(say("Position ids"), POSITIONS, "position_ids", width="content", help=counted)
        controls.mask_switch(model, "causal")
    if own:
        name = explain.title_of(model)
        st.caption(say("{model} computes its own position ids, so there are none to choose.", model=name))
    return PaddingChoice(side, mask, positions), st.session_state.causal


def notes(model: Model) -> list[str]:
    other = [say(OTHER_LAYERS)] if model.describe().other_layers() else []
    if not model.predicts:
        return [say(NO_LOGITS), *other]
    return [*([say(OF_ENCODER)] if model.kind == "encoder" else []), *other]


def is_local(model: Model) -> bool:
    """Whether the model has layers with a window or chunks of its own."""
    return not set(LOCAL).isdisjoint(model.describe().masks)


def padded_texts(model: Model, text: str) -> PaddedTexts:
    """Return the user's lines, and two of the page's own if those need no padding. Raises what encode raises."""

    def make() -> PaddedTexts:
        rows, _ = rows_of(text, len(text))
        texts = padding.fitting(model, rows)
        need_padding = bool(texts) and not bool(model.encode(texts).keep.all())
        ours = () if need_padding else OURS
        shown = texts[: padding.MAX_TEXTS - len(ours)]
        batch = model.encode(shown) if shown else None
        limits = {"most": padding.MAX_TOKENS, "model": explain.title_of(model), "context": model.context}
        cut = N_(
            "Sentence {number} is cut to its first {kept:,} tokens: this page compares at most {most} per sentence, "
            "and {model} reads at most {context:,} here."
        )
        notes = [
            say(cut, number=number + 1, kept=int(batch.keep[number].sum()), **limits)
            for number, (row, line) in enumerate(zip(rows, shown, strict=False))
            if batch and (row != line or batch.cut[number])
        ]
        if len(rows) > len(shown):
            left_out = N_(
                "Lines shown: the first {shown} of {count:,}. The page takes at most {most} including its own, fewer "
                "if they are long."
            )
            notes.append(say(left_out, shown=len(shown), count=len(rows), most=padding.MAX_TEXTS))
        whole = "\n".join([*rows[: len(shown)], *ours, *rows[len(shown) :]])
        return PaddedTexts((*shown, *ours), len(ours), tuple(notes), whole)

    return results.cached(("padding lines", model.key, digest((text, model.name))), make)  # not shown


ADDED_LINES_NOTE = N_("Padding needs lines of different lengths, so this page adds two of its own: {lines}.")


def show_ways(ways: Sequence[Way], shown: Way, texts: int, cells: int) -> None:
    """Draw a table: a row for each side and kind of position ids, a column for each mask; `shown` is framed."""
    by_choice = {(way.side, way.positions, way.mask): way for way in ways}

    def take(way: Way) -> None:
        st.session_state.update(pad=way.side, padding_mask=way.mask)
        if way.positions != "own":
            st.session_state.position_ids = way.positions

    st.html(css(cached_figure(ways_style, ways)))
    with st.grid(4, wrap=False, min_column_width=60, gap="xxsmall", vertical_alignment="center", key="ways"):
        st.empty()
        for title in MASK_TITLES.values():
            st.caption(say(title))
        for side, positions in dict.fromkeys((way.side, way.positions) for way in ways):
            st.caption(side_label(side, positions, cells))
            for mask in MASK_TITLES:
                way = by_choice[side, positions, mask]
                look: Any = {"width": "stretch", "type": "primary" if way == shown else "secondary"}
                label, about = way_label(way, texts), way_name(way, cells)
                st.button(label, key=way.key, help=about, on_click=take, args=(way,), **look)


@dataclass(frozen=True, eq=False)
class PaddingRuns:
    """The texts as one batch under each padding setting, and each text alone. own: the model accepts no position ids
    but its own. Results are cached."""

    model: Model
    found: PaddedTexts
    causal: bool
    own: bool

    def padded(self, choice: PaddingChoice) -> Padded:
        def make() -> Padded:
            runs, alone = self._alone()
            comparison = self._compared(choice, runs)
            batch, count = comparison.batch, len(self.found.texts)
            texts = [
                PaddedText(
                    number=row + 1,
                    ours=row >= count - self.found.ours,
                    pieces=batch.pieces[row],
                    keep=tuple(batch.keep[row].tolist()),
                    positions=() if self.own else tuple(comparison.positions[row].tolist()),
                    differences=tuple(comparison.apart[row].tolist()),
                    alone=self._candidate(alone.guesses[row]),
                    padded=self._candidate(comparison.guesses[row]),
                    at_end=self._candidate(comparison.at_end[row]),
                )
                for row in range(count)
            ]
            return Padded(texts, self._way(choice, alone, comparison), alone.tolerance)

        return self._cached(("padded", choice), make)

    def ways(self) -> list[Way]:
        """Return the results of all padding settings, without other position ids if the model computes its own."""

        def make() -> list[Way]:
            runs, alone = self._alone()
            offered = [choice for choice in CHOICES if not (self.own and choice.positions == "cells")]
            return [self._way(choice, alone, self._compared(choice, runs)) for choice in offered]

        return self._cached("ways", make)

    def _cached(self, what: Hashable, make: Callable[[], Made]) -> Made:
        texts = digest((self.found.texts, self.found.ours))
        return results.cached((what, self.model.key, texts, self.causal, self.own), make)

    def _alone(self) -> tuple[list[RunRef], Alone]:
        """Return the run of each text alone, and the results of these runs."""
        ref, spec = ModelRef.of(self.model), MaskSpec(causal=self.causal)
        runs = [RunRef(ref, self.model.encode([text]), spec) for text in self.found.texts]
        return runs, results.ask(padding.alone, ref, *runs)

    def _candidate(self, guess: Guess | None) -> Candidate | None:
        return None if guess is None else Candidate(self.model.label(guess.token), guess.probability)

    def _compared(self, choice: PaddingChoice, runs: list[RunRef]) -> PaddingComparison:
        return results.ask(padding.compare, ModelRef.of(self.model), self.found.texts, choice, self.causal, *runs)

    def _way(self, choice: PaddingChoice, alone: Alone, found: PaddingComparison) -> Way:
        difference = max(found.largest())
        changed = None
        if padding.predicts_next(self.model):
            pairs = zip(found.guesses, alone.guesses, strict=True)
            changed = sum(one is not None and other is not None and one.token != other.token for one, other in pairs)
        positions = "own" if self.own else choice.positions
        return Way(choice.side, choice.mask, positions, difference, changed, difference <= alone.tolerance)
