"""The Mask Lab's sections, its notes, and the picture beside the mask."""

from functools import partial

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from i18n import N_, say
from model.heads.view import HeadView
from model.masks import MaskSpec
from model.text import TokenBatch
from ui import explain, page
from ui.markdown import escaped
from ui.mask_lab import compose, effect
from ui.results import cached_figure
from ui.run_view import RunView, layer_names
from ui.widgets.choices import one_of
from viz.head import difference_figure, head_figure
from viz.html import signed

SHOWN = {"now": N_("this mask"), "standard": N_("standard masks"), "change": N_("change")}
SECTIONS = {
    "effect": N_("What it does"),
    "reach": N_("Reach"),
    "steps": N_("Step through this head"),
    "hand": N_("Compute by hand"),
    "fill": N_("Masking value (−∞, −1e9, …)"),
    "name": N_("Name a mask"),
    "code": N_("Export the mask"),
}


def warn_of_a_changed_text(batch: TokenBatch) -> None:
    """A drawing stays where it was drawn; the tokens under it may be others now."""
    if "mask_wrong" in st.session_state:
        problem = escaped(st.session_state.pop("mask_wrong"))
        st.warning(say("The link's masks could not be read ({problem}).", problem=problem))
    text = compose.text_key(batch)
    if not compose.text_changed(text):
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.warning(say("The text has changed under the drawn mask: its cells now cover other tokens."))
        st.button(say("Clear the drawing"), on_click=compose.set_drawing, args=((),))
        keep = partial(compose.take_drawing, st.session_state.mask_drawn, text, st.session_state.mask_number)
        st.button(say("Keep it"), on_click=keep)


def notes(spec: MaskSpec, now: RunView, layer: int) -> list[str]:
    found = []
    if spec.layers and layer not in spec.layers:
        names = layer_names(now.model, now.run.attention)
        words = N_(
            "These masks apply to {layers}. {layer}, which is shown, is under the standard masks; to draw, show a "
            "layer that they apply to."
        )
        found.append(say(words, layers=say(", ").join(names[one] for one in spec.layers), layer=names[layer]))
    keys = now.run.keys
    separators = [value for value in spec.on().values() if isinstance(value, str)]
    return found + [
        say("“{separator}” splits nothing here: it does not occur inside this row.", separator=escaped(separator))
        for separator in separators
        if not bool(keys.split(separator)[now.row].any())
    ]


def picture(shown: str, now: HeadView, standard: HeadView, query: int) -> go.Figure:
    """The head under the masks that were chosen to be shown, as tall as the mask beside it, the query's row framed."""
    dark = page.is_dark()
    if shown == "change":
        return cached_figure(difference_figure, now, standard, dark=dark, query=query)
    return cached_figure(head_figure, now if shown == "now" else standard, dark=dark, query=query)


def alt(name: str, shown: str, now: HeadView, standard: HeadView) -> str:
    if shown != "change":
        return explain.head_alt(name, now if shown == "now" else standard, False)
    change = now.weights - standard.weights
    query, key = np.unravel_index(int(np.abs(change).argmax()), change.shape)
    words = N_(
        "How the weights of {head} change from the standard masks to these. The largest change, {change}, is that of "
        "query {query} ({token}) on key {key} ({seen})."
    )
    cell = {"query": now.first + query, "token": now.queries[query], "key": now.first_key + key, "seen": now.keys[key]}
    return say(words, head=name, change=signed(change[query, key], 2), **cell)


def show_section(now: RunView, standard: RunView, layer: int, head: int, chosen: int) -> None:
    """One section, the one chosen; the others are not computed."""
    if st.session_state.section not in SECTIONS:
        st.session_state.section = "effect"
    section = one_of(say("Section"), SECTIONS, "section", label_visibility="collapsed")
    if section == "effect":
        effect.show(now, standard, chosen)
    elif section == "reach":
        effect.show_reach(now, layer, head, chosen)
    elif section == "steps":
        from ui.mask_lab import steps

        steps.show(now, layer, head, chosen)
    elif section == "hand":
        from ui.mask_lab import by_hand

        by_hand.show()
    elif section == "fill":
        from ui.mask_lab import by_hand

        by_hand.show_fills(now, layer, head)
    elif section == "name":
        from ui.mask_lab import take_away

        take_away.show_named(now, compose.load)
    else:
        from ui.mask_lab import take_away

        take_away.show(now, layer, head, compose.load)
