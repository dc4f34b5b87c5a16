"""Bug clinic: attention code as people get it wrong, beside the right version; and a game."""

import streamlit as st

from ui import page

page.set_up("Bug clinic")  # not shown

from i18n import say
from model.bug_clinic.comparison import attention_for, masks_for, prepared
from ui import controls, explain, run_view
from ui.bug_clinic import choose, drawing, spot, words
from ui.guard import guarded
from ui.sidebar.models import FIRST

model, text = controls.open_page(choose.restore)
controls.ask_for_text(text)

name_place, mode_place = st.columns([1.6, 1], vertical_alignment="center")
with mode_place:
    mode = choose.choose_mode()
with guarded(say("Running {model} …", model=explain.title_of(model))):
    with st.sidebar:
        row_place = st.container()
        controls.choose_pad_side("\n".join(prepared(model, text).lines))
    lines, reading = choose.read(model, text)
    with row_place:
        row = controls.choose_row(reading.rows)
    now, _ = run_view.run_pair(model, reading.batch, masks_for(model), row, attention_for(model))
    asked = spot.ask(now) if mode == "spot" else None
    if mode == "spot" and asked is None:
        st.info(say("This text distinguishes too few bugs; the puzzle uses an example."))
        lines, reading = choose.read(model, FIRST)
        now, _ = run_view.run_pair(model, reading.batch, masks_for(model), 0, attention_for(model))
        asked = spot.ask(now)
title = say("Bug clinic") + f"\u2002:small[{explain.title_of(model)} · {explain.size(now.run.batch, now.row)}]"
name_place.markdown(f"### {title}")
if mode == "spot":
    if asked is None:
        st.info(say("{model} distinguishes too few bugs for this game: choose another model.",
                    model=explain.title_of(model)))  # fmt: skip
        st.stop()
    with guarded():
        spot.play(now, asked)
else:
    bugs, heads, side = st.columns([2.6, 1.2, 0.8], vertical_alignment="bottom")
    with bugs:
        bug = choose.choose_bug()
    with guarded():
        pair = words.compared(now, bug, choose.layer_of(now))
    choose.go_where_it_shows(now, bug, pair)
    with heads:
        layer, head = controls.choose_head(model, *run_view.shape_of(now))
    with side:
        on = choose.choose_side(pair)
    st.html(words.sentence(bug))
    picture, told = st.columns([1.65, 1], gap="medium")
    with picture:
        drawing.show(now, bug, pair, layer, head, on=on)
    with told, guarded():
        found = words.examined(now, bug, layer)  # by every law, which takes longer than the picture
        drawing.show_beside(now, bug, pair, found, layer, head)
    drawing.show_laws(now, bug, found, layer)

choose.say_notes(model, lines)
choose.share(model)
