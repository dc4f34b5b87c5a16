"""Pixels: not only text. A small model writes digits pixel by pixel; the same attention, the same mask."""

import streamlit as st

from ui import page

page.set_up("Pixels")  # first, so that the browser has something to fetch while torch is imported

from ui import models, pixels, pixels_look, pixels_write
from ui.markdown import escaped

pixels.seed()
with st.sidebar:
    controls = st.container()
title, parts, switches = st.columns([0.32, 1, 1.3], vertical_alignment="center")
title.markdown("### Pixels")
with parts:
    part = pixels.choose_part()
try:
    model = pixels.the_model()
    found = model.describe()
    with controls:
        if part == "look":
            levels, told = pixels_look.choose_picture()
            layer, head = pixels_look.choose_head(model)
        elif part == "write":
            classes, draw = pixels_write.choose_sample(), pixels_write.choose_draw()
        else:
            rows, draw = pixels_write.choose_start(), pixels_write.choose_draw()
        st.caption(
            f"The digits model: {found.layers['self']} layers × {found.heads} heads, {found.parameters:,} parameters, "
            "a class token and 64 pixels of 8 grey levels, written row by row."
        )
    if part == "look":
        with switches:
            causal, scope = pixels_look.choose_mask()
        now, standard = pixels_look.looks(model, levels, told, causal, scope)
        st.html(f'<p class="sentence">{pixels_look.words(now, standard, layer, head, scope)}</p>')
        pixels_look.show(now, standard, layer, head, pixels_look.picker(model.num_heads))
    elif part == "write":
        pixels_write.show_sample(classes, draw)
    else:
        pixels_write.show_finish(rows, draw)
except models.TROUBLE as error:
    st.error(f"{escaped(str(error))}.")
    st.stop()
pixels.keep_in_url()
