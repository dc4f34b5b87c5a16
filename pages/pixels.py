"""Pixels: not only text. A small model writes digits pixel by pixel; the same attention, the same mask."""

import streamlit as st

from ui import page

page.set_up("Pixels")  # first, so that the browser has something to fetch while torch is imported

from i18n import say
from ui.guard import guarded
from ui.pixels import choices, look, pictures, write

choices.restore()
with st.sidebar:
    controls = st.container()
title, parts, switches = st.columns([0.32, 1, 1.3], vertical_alignment="center")
title.markdown("### " + say("Pixels"))
with parts:
    part = choices.choose_part()
with guarded():
    model = pictures.the_model()
    with controls:
        if part == "look":
            levels, told = look.choose_picture()
            layer, head = choices.choose_head(model.num_layers, model.num_heads)
        elif part == "write":
            classes, draw = choices.choose_sample(), choices.choose_draw()
        else:
            rows, draw = write.choose_start(), choices.choose_draw()
        found = model.describe()
        st.caption(
            say(
                "The digits model: {layers} layers × {heads} heads, {parameters:,} parameters, a class token and 64 "
                "pixels of 8 grey levels, written row by row.",
                layers=found.layers["self"], heads=found.heads, parameters=found.parameters,
            )
        )  # fmt: skip
    if part == "look":
        with switches:
            causal, scope = look.choose_mask()
        now, standard = look.run_pair(model, levels, told, causal, scope)
        st.html(f'<p class="sentence">{look.words(now, standard, layer, head, scope)}</p>')
        look.show(now, standard, layer, head, look.picker(model.num_heads))
    elif part == "write":
        write.show_sample(classes, draw)
    else:
        write.show_finish(rows, draw)
choices.share()
