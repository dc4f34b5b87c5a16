"""Explore: a text in, every head out, masks on and off."""

import streamlit as st

from ui import page

page.set_up("Explore")  # first, so that the browser has something to fetch while torch is imported

from ui import controls
from ui.heads import explore
from ui.lessons import shelves

model, text = controls.open_page()
shelves.show(model.name)
# what a mask or a head changes runs again alone: neither the sidebar nor the text is read, sent and drawn anew
st.fragment(explore.show)(text, *controls.open_text(model, text))
