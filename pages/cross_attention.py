"""Cross-attention: a decoder that looks at a source while it writes."""

import streamlit as st

from ui import page

page.set_up("Cross-attention")  # first, so that the browser has something to fetch while torch is imported

from model.cross_attention.dates import DatesModel
from ui import controls, explain, models
from ui.cross_attention import drawing
from ui.cross_attention import lines as ours
from ui.markdown import escaped

controls.seed()
ours.seed()

with st.sidebar:
    wanted = controls.choose_model()
    found = st.empty()
with st.container():
    chosen = models.get_or_keep(wanted)
try:
    model = ours.model_of(chosen)
except models.TROUBLE as error:
    st.error(f"{escaped(str(error))}.")
    st.stop()
found.caption(explain.model_found(model))
if model is not chosen and chosen.name != "story":
    st.info(ours.instead_of(chosen))
elif model is not chosen:
    st.sidebar.caption(ours.instead_of(chosen))
with st.sidebar:
    text, targets = ours.choose_texts(model)
if not text.strip():
    st.info("Type a text on the left, one sequence a line, or take one of the examples.")
    st.stop()

title, switches = st.columns([1.4, 1], vertical_alignment="center")
with switches:
    spec = ours.choose_masks(model)
sentence_place, notes = st.container(), st.container()
try:
    with sentence_place, st.spinner(f"Reading and writing with {explain.title_of(model)} …", show_time=True):
        with st.sidebar:
            beside = ours.choose_beside(model, text)
        lines = ours.read(model, text, targets, beside)
        with st.sidebar:
            row = ours.choose_row(lines)
        parts = ours.run(model, lines, spec, row)
except models.TROUBLE as error:
    st.error(f"{escaped(str(error))}.")
    st.stop()
source = parts["cross"].now.trace.keys
title.markdown(f"### Cross-attention\u2002:small[{explain.title_of(model)} · {explain.size(source, row)}]")
for note in drawing.notes(model, lines, spec, row):
    notes.caption(note)

changed = spec != model.standard
if isinstance(model, DatesModel):
    sentence_place.html(drawing.verdict(model, lines, spec, row))
drawing.alignment(model, parts["cross"], changed=changed)
shown = ours.choose_shown(changed)
drawing.heatmaps(model, parts, shown)
if isinstance(model, DatesModel):
    drawing.what_breaks(model, lines, spec, row)
else:
    drawing.losses(parts["decoder"], changed=changed)
ours.keep(wanted)
