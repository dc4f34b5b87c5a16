"""Mask Lab: compose any mask, draw on it, and see its effect on one head."""

from i18n import N_
from ui import page

page.set_up(N_("Mask Lab"))  # first, so that the browser has something to fetch while torch is imported

from ui import controls
from ui.mask_lab import compose, lab

model, text = controls.open_page(compose.LabLink.restore)
page.fragment(lab.show)(*controls.open_text(model, text))
