"""Mask Lab: compose any mask, draw on it, watch one head obey it."""

import streamlit as st

from i18n import N_
from ui import page

page.set_up(N_("Mask Lab"))  # first, so that the browser has something to fetch while torch is imported

from ui import controls
from ui.mask_lab import compose, lab

model, text = controls.open_page(compose.LabLink.restore)
# what a mask, a stroke or a head changes runs again alone: the sidebar and the text are not read, sent and drawn anew
st.fragment(lab.show)(*controls.open_text(model, text))
