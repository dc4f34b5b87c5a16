"""Bug clinic: attention code as people get it wrong, beside the right version; and a game."""

import streamlit as st

from ui import page

page.set_up("Bug clinic")

from model.bug_clinic.lines import attention_for, masks_for
from ui import controls, explain, run_view
from ui.bug_clinic import choose, drawing, spot, words
from ui.examples import FIRST
from ui.guard import guarded

st.html(choose.STYLE)
model, text = controls.open_page(choose.restore)
if not text.strip():
    st.info("Type a text on the left, one sequence a line, or take one of the examples.")
    st.stop()

name_place, mode_place = st.columns([1.6, 1], vertical_alignment="center")
with mode_place:
    mode = choose.choose_mode()
with guarded(f"Running {explain.title_of(model)} …"):
    lines, reading = choose.read(model, text)
    with st.sidebar:
        row = controls.choose_row(reading.rows)
    now, _ = run_view.run_pair(model, reading.batch, masks_for(model), row, attention_for(model))
    asked = spot.ask(now) if mode == "spot" else None
    if mode == "spot" and asked is None:
        st.info("This text shows too few bugs apart; the puzzle is on an example.")
        lines, reading = choose.read(model, FIRST)
        now, _ = run_view.run_pair(model, reading.batch, masks_for(model), 0, attention_for(model))
        asked = spot.ask(now)
title = f"Bug clinic\u2002:small[{explain.title_of(model)} · {explain.size(now.run.batch, now.row)}]"
name_place.markdown(f"### {title}")
choose.say_notes(model, lines)

if mode == "spot":
    if asked is None:
        st.info(f"{explain.title_of(model)} shows too few bugs apart for this game: choose another model.")
        st.stop()
    with guarded():
        spot.play(now, asked)
else:
    left, right = st.columns([1, 2.6])
    with left:
        bug = choose.choose_bug()
        place = st.container()
    with guarded():
        found = words.examined(now, bug, choose.layer_of(now))
    choose.go_where_it_shows(now, bug, found)
    with place:
        layer, head = controls.choose_head(model, *run_view.shape_of(now))
    with right:
        st.html(words.sentence(bug))
        words.say_what_is_seen(found)
        on = choose.choose_side(found)
        drawing.show(now, bug, found, layer, head, on=on)
    said, laws = st.columns([1, 1.25], gap="large")
    with said:
        st.markdown("\n\n".join(words.effects(now, bug, found, layer, head)))
        st.code(words.code(bug), language="diff", wrap_lines=True)
    with laws:
        st.html(words.table(bug, found))
        st.caption(words.TABLE.format(layer=layer))

choose.share(model)
