"""Serving: the masks of inference engines and of packed training rows, run on the user's text and model."""

import streamlit as st

from i18n import N_, say
from ui import page

page.set_up(N_("Serving"))  # first, so that the browser has something to fetch while torch is imported

from ui import controls, explain, inference
from ui.guard import guarded
from ui.widgets import one_of

LARGER = """<style>  /* square pictures are as large as the window lets them be */
  :is(.st-key-calls_cells, .st-key-calls_kernel, .st-key-tree_mask, .st-key-cost_blocks) .chart {
    height: max(min(470px, 90vw), min(62dvh, 34vw)) !important; }
</style>"""

model, text = controls.open_page(inference.ServingLink.restore)
st.html(LARGER)
title = st.container()
section = one_of(say("Shown"), inference.SECTIONS, "serving", label_visibility="collapsed")
if section != "cost":
    with title:  # below the page's title, not below the sections
        controls.ask_for_text(text)
reading = None if section == "cost" else controls.open_text(model, text, limits=section != "streaming")
title.markdown(page.heading(say("Serving"), explain.title_of(model)))
sentence_slot = st.empty()
running = say("Running {model} …", model=explain.title_of(model))
with guarded(running, on_trouble=lambda: inference.share(model)):
    row = reading and inference.Row.of(model, *reading)
    shown = inference.SHOWN[section](row) if row else inference.show_cost()
    sentence_slot.html(page.sentence(shown.sentence()))
    inference.offer(shown)
inference.share(model)
