"""How to pad: the switches above the grid, every way as a button below it, and the page's link."""

from typing import Literal, cast

import streamlit as st

from i18n import N_, say
from model.base import Model
from model.padding import PaddingChoice, PaddingMask, PositionIds, Side
from ui import controls, explain, link
from ui.widgets import choices
from ui.widgets.one_of import one_of

SIDES = {"left": N_("left"), "right": N_("right")}
MASKS = {"off": N_("off"), "keys": N_("on keys"), "both": N_("on keys and queries")}
POSITIONS = {"counted": N_("from the mask"), "cells": "0…T−1"}

ENCODER_DECODER = N_(
    "This page is about models with one stack of layers. {model} has two, an encoder and a decoder, each with its own "
    "padding. Choose a decoder or an encoder on the left; Explore shows this model's attention under padding."
)
OF_ENCODER = N_("An encoder predicts no next token: its logits say what stands at each place, and those are compared.")
NO_LOGITS = N_("This model was saved without the layer that predicts tokens: its last states are compared, not logits.")


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
        filled = say("Where the shorter sentences are filled up to the length of the longest.")
        side = one_of(say("Pad side"), SIDES, "pad", width="content", help=filled)
        on_queries = say("On keys: no token looks at padding. On queries too: padding looks at no token either.")
        mask = one_of(say("Padding mask"), MASKS, "padding_mask", width="content", help=on_queries)
        positions = "counted"
        if not own:
            counted = say(
                "From the mask: only real tokens are counted. 0…T−1: every cell is counted, padding too; T is the "
                "number of cells."
            )
            positions = one_of(say("Position ids"), POSITIONS, "position_ids", width="content", help=counted)
        controls.mask_switch(model, "causal")
    if own:
        st.caption(say("{model} works out its position ids by itself, so there are none to choose.",
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
