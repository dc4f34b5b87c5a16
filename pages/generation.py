"""Generation: a model writes one token at a time, and every step adds a row."""

import streamlit as st

from ui import page

page.set_up("Generation")  # first, so that the browser has something to fetch while torch is imported

from i18n import N_, say
from ui import controls, explain
from ui.generation import sections, steps
from ui.generation import writing as generation
from ui.generation import writing as run
from ui.guard import guarded

model, text = controls.open_page(generation.restore)
generation.guard(model)
controls.ask_for_text(
    text, N_("Type the beginning of a text on the left, or choose an example: the model continues it.")
)

title, pressed, heads = st.columns([1, 1.7, 1.1], vertical_alignment="bottom")
title.markdown(f"### {say('Generation')}\u2002:small[{explain.title_of(model)}]")
with heads:
    layer, head = controls.choose_head(model, model.num_layers, model.num_heads)
sampling, cache = generation.choose_sampling(model)
with guarded(say("Running {model} …", model=explain.title_of(model)), on_trouble=generation.halt):
    notes = generation.begin(model, text)
    writing = run.advance(model, sampling, cache)
    run.look_at(model, writing.path, cache)
with pressed:
    generation.buttons(model, writing)
for note in notes:
    st.caption(note)
steps.show(model, sampling, cache, layer, head)
sections.show(model, writing, cache, layer, head)
generation.share(model)
