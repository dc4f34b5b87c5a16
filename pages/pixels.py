"""Pixels: not only text. A small model writes digits pixel by pixel; the same attention, the same mask."""

import streamlit as st

from ui import page

page.set_up("Pixels")  # first, so that the browser has something to fetch while torch is imported

from i18n import say
from ui import link
from ui.guard import guarded
from ui.pixels import canvases, controls, look, write
from ui.pixels.controls import PARTS, PixelsLink
from ui.widgets.choices import one_of

PixelsLink.restore()
with st.sidebar:
    sidebar = st.container()
title, parts, switches = st.columns([0.32, 1, 1.3], vertical_alignment="center")
title.markdown(page.heading(say("Pixels")))
with parts:
    part = one_of(say("Part"), PARTS, "pixels_part", label_visibility="collapsed", width="content")
with guarded():
    model = canvases.the_model()
    with sidebar:
        if part == "look":
            levels, told = look.choose_picture()
            layer, head = controls.choose_head(model.num_layers, model.num_heads)
        elif part == "write":
            classes, draw = controls.choose_sample(), controls.choose_sampling()
        else:
            rows, draw = write.choose_start(), controls.choose_sampling()
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
        with switches:
            causal, scope = look.choose_mask()
        now, standard = look.run_pair(model, levels, told, causal, scope)
        st.html(page.sentence(look.sentence(now, standard, layer, head, scope)))
        look.show(now, standard, layer, head)
    elif part == "write":
        write.show_sample(classes, draw)
    else:
        write.show_finish(rows, draw)
with st.sidebar:
    link.share(PixelsLink.of_choices())
