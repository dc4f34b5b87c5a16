"""Circuits: what a head does on any token, from its weights, and which heads read other heads' output."""

import streamlit as st

from i18n import N_, say
from ui import page

page.set_up(N_("Circuits"))  # first, so that the browser has something to fetch while torch is imported

from ui import controls, explain
from ui.circuits import ov_qk as circuits
from ui.guard import guarded

model, text = controls.open_page(circuits.CircuitsLink.restore)
left, right = st.columns([1.6, 1], vertical_alignment="bottom")
left.markdown(page.heading(say("Circuits"), explain.title_of(model)))
with right:
    layer, head = controls.choose_head(model, model.num_layers, model.num_heads)
sentence = st.empty()
controls.share(circuits.CircuitsLink, model)
with guarded(say("Multiplying the weights …")):
    sentence.html(page.sentence(circuits.show_head(model, text, layer, head)))
    circuits.show_composition(model, layer, head)
