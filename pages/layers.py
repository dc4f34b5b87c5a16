"""Across layers: what each layer would predict, and where tokens look once heads and layers are put together."""

import streamlit as st

from i18n import N_, say
from ui import page

page.set_up(N_("Across layers"))  # first, so that the browser has something to fetch while torch is imported

from ui import controls, explain, run_view
from ui.guard import guarded
from ui.heads import query
from ui.layers import sections

model, text = controls.open_page(sections.restore)
reading, row = controls.open_text(model, text)

spec = controls.open_masks(say("Across layers"), model, reading.batch, row)
sentence_place = st.empty()
with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
    section = sections.choose_section()
    attention = model.attentions[-2] if "cross" in model.attentions else model.attentions[0]
    if section != "lens":
        attention = controls.choose_attention([name for name in model.attentions if name != "cross"])
    query_place, over_place, layer_place = st.container(width=170), st.container(width=210), st.container(width=110)
with guarded(say("Running {model} …", model=explain.title_of(model))):
    now, standard = run_view.run_pair(model, reading.batch, spec, row, attention)
tokens = reading.batch.source if attention == "encoder" and reading.batch.source else reading.batch
changed = standard if spec != model.standard else None
with query_place:
    position = query.choose(now)
names = run_view.layer_names(model, attention)
if section != "lens":
    with over_place:
        over = sections.choose_over(section)
if section == "all":
    with layer_place:
        layer = sections.choose_layer(model, names)
    part = controls.choose_positions(tokens.ids.shape[1], tokens.ids.shape[1])
sections.share(model)

chosen = sections.ChosenRow(model, tokens, row, position)
with guarded(say("Computing all layers …")):
    if section == "lens":
        sentence = sections.show_lens(chosen, now, changed)
    elif section == "token":
        sentence = sections.show_token(chosen, over, names, now, changed)
    else:
        sentence = sections.show_all(chosen, over, layer, names[layer], part, now, changed)
sentence_place.html(f'<p class="sentence">{sentence}</p>')
