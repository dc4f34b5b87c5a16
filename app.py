"""The page Explore: a text is run, every head is drawn, and masks are switched on and off."""

from ui import page

page.set_up("Explore")  # first, so that the browser has something to fetch while torch is imported

from ui import controls
from ui.heads import explore
from ui.lessons import shelves

model, text = controls.open_page()
shelves.show(model.name)
page.fragment(explore.show)(text, *controls.open_text(model, text))
