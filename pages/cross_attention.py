"""Cross-attention: a decoder that looks at a source while it writes."""

import streamlit as st

from ui import page

page.set_up("Cross-attention")  # first, so that the browser has something to fetch while torch is imported

from i18n import say
from model.cross_attention.dates import DatesModel
from ui import controls, explain
from ui.cross_attention import controls as ours
from ui.cross_attention import figures
from ui.guard import guarded
from ui.widgets import one_of

chosen = controls.open_model(ours.DatesLink.restore)
with guarded():
    model = ours.model_of(chosen)
if model is not chosen:
    tell = st.sidebar.caption if chosen.name == "story" else st.info
    tell(say(ours.NO_SOURCE, model=explain.title_of(chosen)))
with st.sidebar:
    text, targets = ours.choose_texts(model)
controls.ask_for_text(text)

title, switches = st.columns([1.4, 1], vertical_alignment="center")
with switches:
    spec = ours.choose_masks(model)
sentence_slot, notes = st.container(), st.container()
with st.sidebar:
    beside = ours.choose_beside(model, text)
with sentence_slot, guarded(say("Encoding and decoding with {model} …", model=explain.title_of(model))):
    lines = ours.read(model, text, targets, beside)
    with st.sidebar:
        row = controls.choose_row(lines.own_rows, "cross_row")
    parts = figures.run(model, lines, spec, row)
source = parts["cross"][0].run.keys
title.markdown(page.heading(say("Cross-attention"), explain.title_of(model), explain.size(source, row)))
for note in figures.notes(model, lines, spec, row):
    notes.caption(note)

changed = spec != model.standard
figures.alignment(model, parts["cross"], changed=changed)
if isinstance(model, DatesModel):
    with sentence_slot, guarded(say("Writing …")):
        st.html(figures.verdict(model, lines, spec, parts["decoder"][0]))
shown = one_of(say("Masks of the heatmaps"), ours.SHOWN, "cross_shown") if changed else "now"
figures.heatmaps(model, parts, shown)
if isinstance(model, DatesModel):
    with guarded(say("Writing {count} held-out dates …", count=figures.SAMPLE)):
        figures.what_breaks(model, lines, spec, parts["decoder"][1])
else:
    figures.losses(parts["decoder"], changed=changed)
ours.share(model, text)
