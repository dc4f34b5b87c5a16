"""Which heads are off, in which way, and the page's link."""

import re
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
import streamlit as st

from i18n import N_, say
from model import catalog
from model.base import Model
from model.heads.ablation import Head, HeadsOff, Way, layer_effects
from model.mask_kinds import NEAR
from model.masks import MaskSpec, Stroke
from model.spec import MOST_POSITIONS
from model.text import TokenBatch
from serving.job import ModelRef
from ui import controls, link, page, results, run_view
from ui.run_view import RunView
from ui.widgets import choices
from ui.widgets.choices import bound, one_of
from viz.ablation import EffectsView, effects_alt, effects_figure, effects_table, ranking_sentence


def show(now: RunView, batch: TokenBatch, query: int, target: int, off: HeadsOff) -> None:
    """The button; once it is pressed, how far it is, then the picture and the table."""
    on = bool(st.session_state.ranking)
    with st.container(horizontal=True, vertical_alignment="center"):
        label = say("Stop ranking") if on else say("Rank all heads by their effect on this prediction")
        icon = ":material/stop_circle:" if on else ":material/leaderboard:"
        st.button(label, key="rank", icon=icon, on_click=lambda: st.session_state.update(ranking=not on))
        first_place = st.container(width="content")
    if not on:
        return
    progress, words = st.empty(), st.empty()
    left, right = st.columns([1.6, 1], gap="large")
    picture, table = left.empty(), right.empty()
    layers, heads = run_view.shape(now.model, off.attention)
    effects = np.full((layers, heads), np.nan, np.float32)
    for layer in range(layers):
        name = run_view.name_of(now.model, off.attention, layer)
        so_far = say("{layer}: {measured} of {count} heads measured", layer=name, measured=layer * heads,
                     count=effects.size)  # fmt: skip
        progress.progress(layer / layers, so_far)
        asked = (ModelRef.of(now.model), batch, now.masks, now.row, query, target, layer, heads, replace(off, heads=()))
        effects[layer] = results.ask(layer_effects, *asked).effects
    progress.empty()
    number = now.model.describe().layer_number
    view = EffectsView(effects, [number(off.attention, layer) for layer in range(layers)], frozenset(off.heads))
    words.markdown(ranking_sentence(view))
    picture.plotly_chart(effects_figure(view, dark=page.is_dark()), key="effects", config=page.CHART,
                         alt=effects_alt(view))  # fmt: skip
    table.html(effects_table(view))
    strongest = view.ranked()[0]
    first_place.button(say("Turn {head} off", head=view.name(*strongest)), key="turn_first", args=([strongest],),
                       icon=":material/power_settings_new:", on_click=turn_off)  # fmt: skip


WAYS = {"zero": N_("zero"), "mean": N_("mean of the text"), "mask": N_("another mask")}
IN_WORDS = {
    "zero": N_("output set to 0"),
    "mean": N_("output set to its mean over this text"),
    "mask": N_("seeing {what}"),
}
MASKS = {
    "itself": N_("only the token itself"),
    "near": N_("only the last four tokens"),
    "both_sides": N_("only tokens at most three positions away"),
    "not_first": N_("all but the first token"),
    "ahead": N_("also later tokens"),
}
OWN_MASKS = ("itself", "near", "not_first", "ahead")
HELP = N_(
    "Zero: the head's output is 0. Mean: at every token the output is its mean over this text, later tokens included, "
    "so only the variation between tokens is removed. Another mask: only this head uses a different mask."
)
LONGEST = 600  # characters of the heads that are off, in a link
MOST_OFF = 64


class AblationLink(link.View):
    """This page's link. heads_off: "4.0,2.1", layer and head, counted as in a trace; None is one head worth seeing."""

    heads_off: Annotated[str | None, link.at_most(LONGEST)] = None
    way_off: Literal["zero", "mean", "mask"] = "zero"
    mask_off: Literal["itself", "near", "not_first", "ahead"] = "itself"
    ranking: bool = False


def restore() -> None:
    """Put the page's own choices where their widgets find them."""
    own = {"heads_off", "way_off", "mask_off", "ranking"}
    choices.restore("kept_ablation", lambda: AblationLink.read().model_dump(include=own))


def choose_heads(model: Model, attention: str, layers: int, heads: int) -> tuple[Head, ...]:
    """The heads that are off, those of them that are there."""
    written = st.session_state.heads_off
    first = catalog.first_head(model)
    chosen = [first] if written is None else read(written)
    there = [one for one in chosen if one[0] < layers and one[1] < heads]
    offered = [(layer, head) for layer in range(layers) for head in range(heads)]
    off = st.multiselect(
        say("Ablated heads"), offered, **bound("heads_chosen", there, turn_off), placeholder=say("none"),
        max_selections=MOST_OFF, format_func=lambda one: run_view.name_of(model, attention, *one),
    )  # fmt: skip
    return tuple(off)


def choose_way(spec: MaskSpec, attention: str) -> tuple[Way, MaskSpec | None]:
    """What "off" means: the way, and the heads' own mask where that is the way. spec: the masks of all others."""
    way = one_of(say("Off means"), WAYS, "way_off", help=say(HELP), width="content")
    if way != "mask":
        return way, None
    causal = spec.causal and attention != "encoder"
    offered = [name for name in OWN_MASKS if name != "ahead" or causal]
    if st.session_state.mask_off not in offered:
        st.session_state.mask_off = offered[0]
    st.selectbox(say("These heads attend to"), offered, key="mask_off",
                 format_func=lambda name: mask_words(name, spec, attention))  # fmt: skip
    return "mask", own_mask(st.session_state.mask_off, spec)


def own_mask(name: str, spec: MaskSpec) -> MaskSpec:
    """The mask of the heads that are off: one of MASKS, beside the masks of all others."""
    if name == "ahead":
        return spec.replace(causal=False)
    if name == "not_first":
        last = MOST_POSITIONS - 1
        return replace(spec, drawn=(Stroke("block", 0, 0, last, 0),))
    return spec.replace(**{NEAR: {"itself": 1, "near": 4}[name]})


def mask_words(name: str, spec: MaskSpec, attention: str) -> str:
    """What heads see under their own mask: a window reaches ahead as well where nothing is causal."""
    if name == "near" and (attention == "encoder" or not spec.causal):
        name = "both_sides"
    return say(MASKS[name])


def in_words(off: HeadsOff, spec: MaskSpec) -> str:
    """What "off" means here."""
    return say(IN_WORDS[off.way], what=mask_words(st.session_state.mask_off, spec, off.attention))


def read(written: str) -> list[Head]:
    """ "4.0,2.1" -> [(4, 0), (2, 1)]; what is no head is passed over, each counts once."""
    found = [
        (int(layer), int(head)) for layer, head in re.findall(r"(?<![\d.-])(\d{1,4})\.(\d{1,4})(?![\d.])", written)
    ]
    return list(dict.fromkeys(found))[:MOST_OFF]


def write(heads: tuple[Head, ...] | list[Head]) -> str:
    """What `read` reads."""
    return ",".join(f"{layer}.{head}" for layer, head in heads)


def turn_off(heads: list[Head]) -> None:
    """For a callback: these heads are off, and no others."""
    st.session_state.heads_off = write(heads)


def share(model: Model) -> None:
    """Keep the URL true to the page, and offer links."""
    controls.share(AblationLink, model, masks=None, section=None, scope="model", zoom=None)
