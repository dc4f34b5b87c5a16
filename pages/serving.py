"""Serving: the masks of inference engines and of packed training rows, run on the reader's text and model."""

import streamlit as st

from i18n import N_, say
from ui import page

page.set_up(N_("Serving"))  # first, so that the browser has something to fetch while torch is imported

from ui import controls, explain, inference
from ui.guard import guarded

model, text = controls.open_page(inference.ServingLink.restore)
st.markdown(page.heading(say("Serving"), explain.title_of(model)))
section = inference.choose_section()
sentence_place = st.empty()
running = say("Running {model} …", model=explain.title_of(model))
with guarded(running, on_trouble=lambda: inference.share(model)):
    if section == "cost":
        sentence = inference.show_cost()
    else:
        row = inference.Row.of(model, *controls.open_text(model, text))
        sentence = inference.SHOWN[section](row)
    sentence_place.html(f'<p class="sentence">{sentence}</p>')
inference.share(model)
