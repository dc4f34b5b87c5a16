"""The sentences of the batch: the reader's lines, and two of the page's own where those need no padding."""

from dataclasses import dataclass
from typing import Literal, cast

import streamlit as st

from i18n import N_, say, say_all, together
from model import padding
from model.base import Model
from model.padding import PaddingChoice, PaddingMask, PositionIds, Side
from model.text import rows_of
from serving.job import digest
from ui import controls, explain, link, results
from ui.widgets import choices
from ui.widgets.choices import one_of

SIDES = {"left": N_("left"), "right": N_("right")}
MASKS = {"off": N_("off"), "keys": N_("on keys"), "both": N_("on keys and queries")}
POSITIONS = {"counted": N_("from the mask"), "cells": "0…T−1"}

ENCODER_DECODER = N_(
    "This page is about models with one stack of layers. {model} has two, an encoder and a decoder, each with its own "
    "padding. Choose a decoder or an encoder on the left; Explore shows this model's attention under padding."
)
OF_ENCODER = N_(
    "An encoder predicts no next token: its logits predict the token at each position, and those are compared."
)
NO_LOGITS = N_("This model was saved without its language-model head: its last hidden states are compared, not logits.")


class PaddingLink(link.TextLink):
    """This page's link."""

    pad: Literal["left", "right"] = "left"
    causal: bool | None = None
    padding_mask: Literal["off", "keys", "both"] = "keys"  # what goes wrong most often, so that there is something
    position_ids: Literal["counted", "cells"] = "cells"  # to see


def choose(model: Model, own: bool) -> tuple[PaddingChoice, bool]:
    """How to pad, and whether the causal mask is on. own: the model takes no position ids but its own."""
    _keep_choices()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        filled = say("The side on which shorter sentences are padded to the length of the longest.")
        side = one_of(say("Pad side"), SIDES, "pad", width="content", help=filled)
        on_queries = say(
            "On keys: no token attends to padding. On keys and queries: padding attends to no token either."
        )
        mask = one_of(say("Padding mask"), MASKS, "padding_mask", width="content", help=on_queries)
        positions = "counted"
        if not own:
            counted = say(
                "From the mask: only real tokens are counted. 0…T−1: every cell is counted, including padding; T is "
                "the number of cells."
            )
            positions = one_of(say("Position ids"), POSITIONS, "position_ids", width="content", help=counted)
        controls.mask_switch(model, "causal")
    if own:
        st.caption(say("{model} computes its own position ids, so there are none to choose.",
                       model=explain.title_of(model)))  # fmt: skip
    choice = PaddingChoice(cast(Side, side), cast(PaddingMask, mask), cast(PositionIds, positions))
    return choice, st.session_state.causal


def notes(model: Model) -> list[str]:
    """What is to be known of the model on this page."""
    if not model.predicts:
        return [say(NO_LOGITS)]
    return [say(OF_ENCODER)] if model.kind == "encoder" else []


def share(model: Model) -> None:
    """Keep the URL true to the page, and offer links."""
    controls.share(PaddingLink, model)


def _keep_choices() -> None:
    """Put the page's own choices where their widgets find them."""
    own = {"padding_mask", "position_ids"}
    choices.restore("kept_padding", lambda: PaddingLink.read().model_dump(include=own))


# Of different lengths, so that one of them is always padded.
OURS = ("Once upon a time", "The king said to his")  # not shown in another language: models read it


@dataclass(frozen=True)
class PaddedTexts:
    """The texts of the batch: the reader's first, then `ours` of the page's own. notes: what is to be said of them.

    whole: all that the reader wrote, with ours among it.
    """

    texts: tuple[str, ...]
    ours: int
    notes: tuple[str, ...]
    whole: str


def lines(model: Model, text: str) -> PaddedTexts:
    """The reader's lines, and two of the page's own where those need no padding. Raises what encode raises."""
    key = ("padding lines", model.key, digest((text, model.name)))  # not shown
    return results.kept(key, lambda: _lines(model, text))


def _lines(model: Model, text: str) -> PaddedTexts:
    rows, _ = rows_of(text, len(text))
    texts = padding.fitting(model, rows)
    ours = () if _need_padding(model, texts) else OURS
    kept = texts[: padding.MOST_TEXTS - len(ours)]
    notes = [*_cuts(model, rows, kept), *_left_out(len(rows) - len(kept), len(kept))]
    whole = "\n".join([*rows[: len(kept)], *ours, *rows[len(kept) :]])
    return PaddedTexts((*kept, *ours), len(ours), tuple(notes), whole)


def offer_ours(found: PaddedTexts) -> None:
    """Say that lines are ours and why, and let the reader take them over."""
    shown = say_all([f"“{text}”" for text in OURS])
    words, button = st.columns([5, 1.2], vertical_alignment="center")
    match len(found.texts) - found.ours:
        case 0:
            because = say("No text yet, so this page adds two lines of its own: {lines}.", lines=shown)
        case 1:
            because = say(
                "One line alone needs no padding, so this page adds two lines of its own: {lines}.", lines=shown
            )
        case _:
            because = say(
                "These lines are all of the same length and need no padding, so this page adds two lines of its own: "
                "{lines}.",
                lines=shown,
            )
    words.caption(together([because, say("Type yours on the left, one per line.")]))
    button.button(say("Edit these lines"), on_click=lambda: st.session_state.update(text=found.whole))


def _need_padding(model: Model, texts: list[str]) -> bool:
    return bool(texts) and not bool(model.encode(texts).keep.all())


def _cuts(model: Model, rows: list[str], texts: list[str]) -> list[str]:
    """A sentence for every text that is not there as a whole."""
    if not texts:
        return []
    batch = model.encode(texts)
    return [
        say(
            "Sentence {number} is cut to its first {kept:,} tokens: this page compares at most {most} per sentence, "
            "and {model} reads at most {context:,}.",
            number=number,
            kept=int(batch.keep[number - 1].sum()),
            most=padding.MOST_TOKENS,
            model=explain.title_of(model),
            context=model.context,
        )
        for number, (row, text) in enumerate(zip(rows, texts, strict=False), 1)
        if row != text or batch.cut[number - 1]
    ]


def _left_out(count: int, shown: int) -> list[str]:
    if not count:
        return []
    return [
        say(
            "Only the first {shown} lines are shown, {count:,} more are left out: the page takes at most {most} lines "
            "including its own, fewer if they are long.",
            shown=shown, count=count, most=padding.MOST_TEXTS,
        )
    ]  # fmt: skip
