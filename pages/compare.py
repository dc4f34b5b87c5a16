"""Compare: one head of two models, of two texts, or under two masks, side by side."""

from i18n import N_
from ui import page

page.set_up(N_("Compare"))  # first, so that the browser has something to fetch while torch is imported

from ui import compare, controls

model, text = controls.open_page(compare.CompareLink.restore)
page.fragment(compare.show)(text, *controls.open_text(model, text))
