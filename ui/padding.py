"""What the Padding page needs of streamlit: its controls, its lines, and its measurements, which are remembered."""

from dataclasses import dataclass
from typing import Literal, cast

import streamlit as st

from model import padding
from model.base import Model
from model.padding import CHOICES, Alone, Choice, Comparison, Guess, PaddingMask, PositionIds, Side
from model.text import rows_of
from ui import choices, controls, explain, link, results
from viz.numbers import Candidate
from viz.padding.grid import PaddedText
from viz.padding.tables import Way

OURS = ("Once upon a time", "The king said to his")  # of different lengths, so that one of them is always padded
SIDES = {"left": "left", "right": "right"}
MASKS = {"off": "off", "keys": "on keys", "both": "on keys and queries"}
POSITIONS = {"counted": "from the mask", "cells": "0…T−1"}
ENCODER_DECODER = (
    "This page is about models with one stack, where every token may stand beside padding in one attention. {} has "
    "two, an encoder and a decoder, each with its own padding. Choose a decoder or an encoder on the left; Explore "
    "shows this model's attention under padding."
)
NO_PREDICTIONS = {
    "encoder": "An encoder predicts no next token: its logits say what stands at each place, and those are compared.",
    "bare": "This model was saved without the layer that predicts tokens: its last states are compared, not logits.",
}


@dataclass(frozen=True)
class Lines:
    """The texts of the batch: the reader's first, then `ours` of the page's own. notes: what is to be said of them.

    whole: all that the reader wrote, with ours among it.
    """

    texts: tuple[str, ...]
    ours: int
    notes: tuple[str, ...]
    whole: str


def lines(model: Model, text: str) -> Lines:
    """The reader's lines, and two of the page's own where those need no padding. Raises what encode raises."""
    rows, _ = rows_of(text, len(text))
    texts = padding.fitting(model, rows)
    ours = () if _need_padding(model, texts) else OURS
    kept = texts[: padding.MOST_TEXTS - len(ours)]
    notes = [*_cuts(model, rows, kept), *_left_out(len(rows) - len(kept), len(kept))]
    whole = "\n".join([*rows[: len(kept)], *ours, *rows[len(kept) :]])
    return Lines((*kept, *ours), len(ours), tuple(notes), whole)


def offer_ours(found: Lines) -> None:
    """Say that lines are ours and why, and let the reader take them over."""
    why = {0: "No text yet", 1: "One line alone needs no padding"}
    because = why.get(len(found.texts) - found.ours, "These lines are all of the same length and need no padding")
    words, button = st.columns([5, 1.2], vertical_alignment="center")
    shown = " and ".join(f"“{text}”" for text in OURS)
    words.caption(f"{because}, so this page adds two lines of its own: {shown}. Type yours on the left, one a line.")
    button.button("Edit these lines", on_click=lambda: st.session_state.update(text=found.whole))


def choose(model: Model, own: bool) -> tuple[Choice, bool]:
    """How to pad, and whether the causal mask is on. own: the model takes no position ids but its own."""
    _keep_choices()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        _segments("Pad side", SIDES, "pad", "Where the short sentences are filled up.")
        _segments("Padding mask", MASKS, "padding_mask",
                  "On keys: no token looks at padding. On queries too: padding looks at no token either.")  # fmt: skip
        if not own:
            _segments("Position ids", POSITIONS, "position_ids",
                      "From the mask: counted over real tokens alone. 0…T−1: padding is counted too.")  # fmt: skip
        controls.mask_switch(model, "causal")
    if own:
        st.caption(
            f"{explain.title_of(model)} works out its position ids by itself: of them there is nothing to choose."
        )
    positions = "counted" if own else st.session_state.position_ids
    choice = Choice(
        cast(Side, st.session_state.pad),
        cast(PaddingMask, st.session_state.padding_mask),
        cast(PositionIds, positions),
    )
    return choice, st.session_state.causal


def own_positions(model: Model, texts: tuple[str, ...]) -> bool:
    """Whether the model takes no position ids but its own; remembered."""
    key = ("own positions", model.key)
    return results.shared().get(key, lambda: _Answer(not padding.takes_positions(model, texts[-1]))).yes


def alone(model: Model, texts: tuple[str, ...], causal: bool) -> Alone:
    """Each text by itself, remembered."""
    return results.shared().get(("alone", model.key, texts, causal), lambda: padding.alone(model, list(texts), causal))


def compare(model: Model, texts: tuple[str, ...], choice: Choice, causal: bool) -> Comparison:
    """The texts as one padded batch beside each alone, remembered."""
    by_themselves = alone(model, texts, causal)  # before the next: one that waits for a core must hold none
    key = ("padded", model.key, texts, choice, causal)
    return results.shared().get(key, lambda: padding.compare(model, list(texts), choice, causal, by_themselves))


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


class PaddingLink(link.TextLink):
    """This page's link."""

    pad: Literal["left", "right"] = "left"
    causal: bool | None = None
    padding_mask: Literal["off", "keys", "both"] = "keys"  # what goes wrong most often, so that there is something
    position_ids: Literal["counted", "cells"] = "cells"  # to see


def share(model: Model) -> None:
    """Keep the URL true to the page, and offer links."""
    controls.share(PaddingLink, model)


@dataclass(frozen=True)
class _Answer:
    """A yes or no to remember."""

    yes: bool

    def nbytes(self) -> int:
        return 1


def _keep_choices() -> None:
    """Put the page's own choices where their widgets find them."""
    own = {"padding_mask", "position_ids"}
    choices.restore("kept_padding", lambda: PaddingLink.read().model_dump(include=own))


def _segments(label: str, offered: dict[str, str], key: str, help_text: str) -> None:
    st.segmented_control(
        label, list(offered), format_func=offered.__getitem__, key=key, required=True, width="content", help=help_text
    )


def _need_padding(model: Model, texts: list[str]) -> bool:
    return bool(texts) and not bool(model.encode(texts).keep.all())


def _cuts(model: Model, rows: list[str], texts: list[str]) -> list[str]:
    """A sentence for every text that is not there as a whole."""
    if not texts:
        return []
    batch = model.encode(texts)
    return [
        f"Sentence {number} is cut to its first {int(batch.keep[number - 1].sum()):,} tokens: this page compares at "
        f"most {padding.MOST_TOKENS} of a sentence, and {explain.title_of(model)} reads at most {model.context:,}."
        for number, (row, text) in enumerate(zip(rows, texts, strict=False), 1)
        if row != text or batch.cut[number - 1]
    ]


def _left_out(count: int, shown: int) -> list[str]:
    if not count:
        return []
    most = f"the page takes {padding.MOST_TEXTS} lines at the most, its own included, fewer when they are long"
    return [f"Shown are the first {shown} lines, {count:,} more are left out: {most}."]


def _candidate(model: Model, guess: Guess | None) -> Candidate | None:
    return None if guess is None else Candidate(model.label(guess.token), guess.probability)
