"""Cross-attention: a decoder that looks at a source while it writes."""

import streamlit as st

from ui import page

page.set_up("Cross-attention")  # first, so that the browser has something to fetch while torch is imported

from i18n import say
from model.cross_attention.dates import DatesModel
from ui import controls, explain
from ui.cross_attention import drawing, runs
from ui.cross_attention import lines as ours
from ui.guard import guarded

chosen = controls.open_model(ours.restore)
with guarded():
    model = ours.model_of(chosen)
if model is not chosen and chosen.name != "story":
    st.info(ours.instead_of(chosen))
elif model is not chosen:
    st.sidebar.caption(ours.instead_of(chosen))
with st.sidebar:
    text, targets = ours.choose_texts(model)
controls.ask_for_text(text)

title, switches = st.columns([1.4, 1], vertical_alignment="center")
with switches:
    spec = ours.choose_masks(model)
sentence_place, notes = st.container(), st.container()
with st.sidebar:
    beside = ours.choose_beside(model, text)
with sentence_place, guarded(say("Encoding and decoding with {model} …", model=explain.title_of(model))):
    lines = ours.read(model, text, targets, beside)
    with st.sidebar:
        row = ours.choose_row(lines)
    parts = runs.run(model, lines, spec, row)
source = parts["cross"].now.run.keys
title.markdown(f"### {say('Cross-attention')}\u2002:small[{explain.title_of(model)} · {explain.size(source, row)}]")
for note in drawing.notes(model, lines, spec, row):
    notes.caption(note)

changed = spec != model.standard
drawing.alignment(model, parts["cross"], changed=changed)
if isinstance(model, DatesModel):
    with sentence_place, guarded(say("Writing …")):
        st.html(drawing.verdict(model, lines, spec, parts["decoder"].now))
drawing.heatmaps(model, parts, ours.choose_shown(changed))
if isinstance(model, DatesModel):
    with guarded(say("Writing {count} held-out dates …", count=runs.SAMPLE)):
        drawing.what_breaks(model, lines, spec, parts["decoder"].standard)
else:
    drawing.losses(parts["decoder"], changed=changed)
ours.share(model, text)
