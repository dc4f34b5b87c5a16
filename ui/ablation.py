"""The Ablation page: its link, its controls, and the ranking of all heads."""

import re
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import streamlit as st

from i18n import N_, say
from model.base import Model
from model.heads.ablation import AblatedHeads, AblationMethod, Head, layer_effects
from model.mask_kinds import NEAR
from model.masks import MaskSpec, Stroke
from model.spec import MAX_POSITIONS
from model.text import TokenBatch
from serving.job import ModelRef
from ui import controls, link, page, results, run_view
from ui.run_view import RunView
from ui.widgets import bound, by_layer, one_of, select
from viz.ablation import EffectsView, effects_alt, effects_figure, effects_table, ranking_sentence


def show(now: RunView, batch: TokenBatch, query: int, target: int, off: AblatedHeads) -> None:
    """Draw the ranking of all heads: a button and, once it is pressed, the progress, a heatmap and a table."""
    on = bool(st.session_state.ranking)
    with st.container(horizontal=True, vertical_alignment="center"):
        label = say("Close the ranking") if on else say("Rank all heads by their effect on this prediction")
        icon = ":material/close:" if on else ":material/leaderboard:"
        st.button(label, key="rank", icon=icon, on_click=lambda: st.session_state.update(ranking=not on))
        strongest_slot = st.container(width="content")
    if not on:
        return
    progress, sentence = st.empty(), st.empty()
    left, right = st.columns([1.6, 1], gap="large")
    picture, table = left.empty(), right.empty()
    layers, _ = run_view.shape(now.model, off.attention)
    about, one_off = (ModelRef.of(now.model), batch, now.masks, now.row, query, target), replace(off, heads=())
    names = run_view.layer_names(now.model, off.attention)
    measured = by_layer(names, lambda layer: results.ask(layer_effects, *about, layer, one_off), progress)
    number = now.model.describe().layer_number
    numbers = [number(off.attention, layer) for layer in range(layers)]
    view = EffectsView(np.stack(measured), numbers, frozenset(off.heads))
    sentence.markdown(ranking_sentence(view))
    with picture:
        page.chart(effects_figure(view, dark=page.is_dark()), "effects", effects_alt(view))
    table.html(effects_table(view))
    strongest = view.strongest()
    label, icon = say("Turn {head} off", head=view.name(*strongest)), ":material/power_settings_new:"
    strongest_slot.button(label, key="turn_first", icon=icon, on_click=turn_off, args=([strongest],))


WAYS = {"zero": N_("zero"), "mean": N_("mean of the text"), "mask": N_("another mask")}
METHOD_PHRASES = {
    "zero": N_("output set to 0"),
    "mean": N_("output set to its mean over this text"),
    "mask": N_("seeing {what}"),
}
METHOD_PHRASES_PLURAL = METHOD_PHRASES | {
    "zero": N_("outputs set to 0"),
    "mean": N_("outputs set to their means over this text"),
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
MAX_HEADS_OFF_LENGTH = 600  # maximum number of characters of heads_off in a link
MAX_OFF = 64


class AblationLink(link.View):
    """The link of the Ablation page. heads_off: "4.0,2.1", layer and head as traces count; None: Explore's head."""

    LEFT_OUT = ("masks", "section", "scope", "zoom")
    heads_off: Annotated[str | None, link.at_most(MAX_HEADS_OFF_LENGTH)] = None
    way_off: Literal["zero", "mean", "mask"] = "zero"
    mask_off: Literal["itself", "near", "not_first", "ahead"] = "itself"
    ranking: bool = False


def choose_heads(model: Model, attention: str, layers: int, heads: int) -> tuple[Head, ...]:
    """Let the user choose the heads that are off. Heads that the model does not have are left out."""
    linked = st.session_state.heads_off
    chosen = [controls.nearest_head(model, layers, heads)] if linked is None else read(linked)
    offered = list(np.ndindex(layers, heads))
    widget: dict[str, Any] = bound("heads_chosen", [head for head in chosen if head in offered], turn_off)
    widget |= {"max_selections": MAX_OFF, "placeholder": say("none")}
    widget["format_func"] = lambda head: run_view.name_of(model, attention, *head)
    return tuple(st.multiselect(say("Ablated heads"), offered, **widget))


def choose_way(spec: MaskSpec, attention: str) -> tuple[AblationMethod, MaskSpec | None]:
    """Let the user choose how heads are turned off. Returns the way and, if it is "mask", the mask of these heads.
    spec: the masks of all other heads."""
    way = one_of(say("Ablate with"), WAYS, "way_off", help=say(HELP), width="content")
    if way != "mask":
        return way, None
    causal = spec.causal and attention != "encoder"
    offered = [name for name in OWN_MASKS if name != "ahead" or causal]
    if st.session_state.mask_off not in offered:
        st.session_state.mask_off = offered[0]
    masks = {name: mask_name(name, spec, attention) for name in offered}
    return "mask", own_mask(select(say("These heads attend to"), masks, "mask_off"), spec)


def own_mask(name: str, spec: MaskSpec) -> MaskSpec:
    """Return the mask of the heads that are off: the one of MASKS with this name, added to the other heads' masks."""
    if name == "ahead":
        return spec.replace(causal=False)
    if name == "not_first":
        last = MAX_POSITIONS - 1
        return replace(spec, drawn=(Stroke("block", 0, 0, last, 0),))
    return spec.replace(**{NEAR: {"itself": 1, "near": 4}[name]})


def mask_name(name: str, spec: MaskSpec, attention: str) -> str:
    """Return the label of a mask of MASKS. Without a causal mask, a window also reaches later tokens."""
    return MASKS["both_sides" if name == "near" and (attention == "encoder" or not spec.causal) else name]


def read(written: str) -> list[Head]:
    """Parse heads: "4.0,2.1" -> [(4, 0), (2, 1)]. Anything but a head is ignored, and repeated heads count once."""
    pairs = re.findall(r"(?<![\d.-])(\d{1,4})\.(\d{1,4})(?![\d.])", written)
    return list(dict.fromkeys((int(layer), int(head)) for layer, head in pairs))[:MAX_OFF]


def turn_off(heads: list[Head]) -> None:
    """Turn these heads off, and no others. For use in a widget's callback."""
    st.session_state.heads_off = ",".join(f"{layer}.{head}" for layer, head in heads)
