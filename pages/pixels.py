"""Pixels: a small model that writes digits pixel by pixel, with the same attention and mask as for text."""

from typing import Any

import streamlit as st

from ui import page

page.set_up("Pixels")  # first, so that the browser has something to fetch while torch is imported

from i18n import N_, say
from ui import link, pixels
from ui.controls import SCOPE_HELP, SCOPES
from ui.guard import guarded
from ui.pixels import PARTS, PixelsLink
from ui.widgets import one_of
from viz.pixels import SIDE, sentence

PixelsLink.restore()
with st.sidebar:
    sidebar = st.container()
title, parts, switches = st.columns([0.32, 1, 1.3], vertical_alignment="center")
title.markdown(page.heading(say("Pixels")))
with parts:
    part = one_of(say("Part"), PARTS, "pixels_part", label_visibility="collapsed", width="content")
with guarded():
    model = pixels.the_model()
    with sidebar:
        if part == "look":
            levels, digit = pixels.choose_picture()
            layer, head = pixels.choose_head(model.num_layers, model.num_heads)
        elif part == "write":
            wanted = pixels.choose_class(say("Class"), "pixels_wanted", pixels.OWN, N_("all ten"))
            st.segmented_control(say("How many"), pixels.COUNTS, key="pixels_count", required=True)
            count = st.session_state.pixels_count
            classes = tuple(range(10)) * (count // 10) if wanted == pixels.OWN else (wanted,) * count
            draw = pixels.choose_sampling()
        else:
            pixels.choose_digit(pixels.count_of)
            state = st.session_state
            forget = {"pixels_drawing": None, "pixels_number": 0, "pixels_epoch": state.pixels_epoch + 1}
            look: Any = {
                "icon": ":material/content_copy:",
                "width": "stretch",
                "disabled": state.pixels_drawing is None,
            }
            st.button(say("Use this real digit"), on_click=state.update, kwargs=forget, **look)
            about_rows = say("The model reads these rows and writes the others.")
            rows = st.slider(say("Rows given"), 0, SIDE, key="pixels_rows", help=about_rows)
            draw = pixels.choose_sampling()
        found = model.describe()
        about = say(
            "The digits model: {layers} layers × {heads} heads, {parameters:,} parameters, a class token and 64 pixels "
            "of 8 grey levels, written row by row.",
            layers=found.layers["self"],
            heads=found.heads,
            parameters=found.parameters,
        )
        st.caption(about)
    if part == "look":
        look = {"horizontal_alignment": "right", "vertical_alignment": "center", "gap": "medium"}
        with switches, st.container(horizontal=True, **look):
            about_mask = say("On: no pixel sees a later one. Off: every pixel sees them all.")
            causal = st.toggle(say("Causal"), key="pixels_causal", help=about_mask, width="content")
            scopes: Any = {"disabled": causal, "width": "content", "help": say(SCOPE_HELP)}
            scope = one_of(say("When a mask is off:"), SCOPES, "pixels_scope", **scopes)
        now, standard = pixels.run_pair(model, levels, digit, causal, scope)
        st.html(page.sentence(sentence(now, standard, layer, head, causal=causal, layer_only=scope == "layer")))
        pixels.show(now, standard, layer, head)
    elif part == "write":
        pixels.show_sample(classes, draw)
    else:
        pixels.show_finish(rows, draw)
with st.sidebar:
    link.share(PixelsLink.of_choices())
