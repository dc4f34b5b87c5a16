"""Across layers: what each layer would predict, and what tokens attend to over all heads and layers."""

from typing import Any

import streamlit as st

from i18n import N_, say
from ui import page

page.set_up(N_("Across layers"))  # first, so that the browser has something to fetch while torch is imported

from model import catalog
from ui import controls, explain, layers, run_view
from ui.guard import guarded
from ui.heads import query
from ui.widgets import bound, one_of

model, text = controls.open_page(layers.LayersLink.restore)
reading, row = controls.open_text(model, text)

spec = controls.open_masks(say("Across layers"), model, reading.batch, row)
sentence_slot = st.empty()
with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
    section = one_of(say("Shown"), layers.SECTIONS, "across", label_visibility="collapsed")
    attention = model.attentions[-2] if "cross" in model.attentions else model.attentions[0]
    if section != "lens":
        attention = controls.choose_attention([name for name in model.attentions if name != "cross"])
    query_slot, over_slot, layer_slot = st.container(width=170), st.container(width=210), st.container(width=110)
with guarded(say("Running {model} …", model=explain.title_of(model))):
    now, standard = run_view.run_pair(model, reading.batch, spec, row, attention, by=st.session_state.by)
changed = standard if spec != model.standard else None
with query_slot:
    position = query.choose(now)
names = run_view.layer_names(model, attention)
if section != "lens":
    with over_slot:
        flows = section == "token" and st.session_state.by == "tokens"
        offered = [one for one in layers.OVER if one != "flow" or flows]
        look = bound("over", st.session_state.over if st.session_state.over in offered else "rollout")
        look |= {"format_func": lambda name: say(layers.OVER[name]), "help": say(layers.HELP)}
        over: Any = st.selectbox(say("Over heads"), offered, **look)
if section == "all":
    with layer_slot:
        layer = catalog.first_head(model)[0] if st.session_state.layer is None else st.session_state.layer
        layer = st.session_state.layer = min(layer, len(names) - 1)
        layer = st.selectbox(say("Layer"), range(len(names)), format_func=names.__getitem__, **bound("layer", layer))
    part = controls.choose_positions(len(now.tokens), len(now.tokens))
controls.share(layers.LayersLink, model)

with guarded(say("Computing all layers …")):
    if section == "lens":
        sentence = layers.show_lens(now, changed, position)
    elif section == "token":
        sentence = layers.show_token(now, changed, position, over)
    else:
        sentence = layers.show_all(now, changed, position, over, layer, names[layer], part)
sentence_slot.html(page.sentence(sentence))
