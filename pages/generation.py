"""Generation: a model writes one token at a time, and every step adds a row."""

import streamlit as st

from ui import page

page.set_up("Generation")  # first, so that the browser has something to fetch while torch is imported

from i18n import N_, say
from ui import controls, explain
from ui.generation import cache_sections, steps, writing
from ui.guard import guarded

model, text = controls.open_page(writing.GenerationLink.restore)
if model.kind != "decoder":
    controls.refuse(model, writing.GenerationLink, say(writing.NO_DECODER, model=explain.title_of(model)))
if not model.predicts:
    controls.refuse(
        model, writing.GenerationLink, say(controls.CHOOSE_ANOTHER_MODEL, why=explain.no_predictions(model))
    )
controls.ask_for_text(
    text, N_("Type the beginning of a text on the left, or choose an example: the model continues it.")
)

title, pressed, heads = st.columns([1, 1.7, 1.1], vertical_alignment="bottom")
title.markdown(page.heading(say("Generation"), explain.title_of(model)))
with heads:
    layer, head = controls.choose_head(model, model.num_layers, model.num_heads)
sampling, cache = writing.choose_sampling(model)
with guarded(say("Running {model} …", model=explain.title_of(model)), on_trouble=writing.halt):
    notes = writing.begin(model, text)
    now = writing.advance(model, sampling, cache)
    writing.run_of_text(model, now.path, cache)
with pressed:
    writing.buttons(model, now)
for note in notes:
    st.caption(note)
steps.show(model, sampling, cache, layer, head)
cache_sections.show(model, now, cache, layer, head)
controls.share(writing.GenerationLink, model)
