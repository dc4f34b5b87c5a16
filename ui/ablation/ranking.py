"""All heads, a layer at a time. Each layer's effects are kept: after a stop it goes on where it was."""

from dataclasses import replace

import numpy as np
import streamlit as st

from i18n import say
from model.heads.ablation import HeadsOff, layer_effects
from model.text import TokenBatch
from serving.job import ModelRef
from ui import page, results
from ui.ablation import choosing
from ui.run_view import RunView
from viz.ablation import EffectsView, effects_alt, effects_figure, effects_table, ranking_sentence


def show(now: RunView, batch: TokenBatch, query: int, target: int, off: HeadsOff, names: list[str], heads: int) -> None:
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
    effects = np.full((len(names), heads), np.nan, np.float32)
    for layer in range(len(names)):
        so_far = say("{layer}: {measured} of {count} heads measured", layer=names[layer], measured=layer * heads,
                     count=effects.size)  # fmt: skip
        progress.progress(layer / len(names), so_far)
        asked = (ModelRef.of(now.model), batch, now.masks, now.row, query, target, layer, heads, replace(off, heads=()))
        effects[layer] = results.ask(layer_effects, *asked).effects
    progress.empty()
    view = EffectsView(effects, names, frozenset(off.heads))
    words.markdown(ranking_sentence(view))
    picture.plotly_chart(effects_figure(view, dark=page.is_dark()), key="effects", config=page.CHART,
                         alt=effects_alt(view))  # fmt: skip
    table.html(effects_table(view))
    strongest = view.ranked()[0]
    first_place.button(say("Turn {head} off", head=view.name(*strongest)), key="turn_first", args=([strongest],),
                       icon=":material/power_settings_new:", on_click=choosing.turn_off)  # fmt: skip
