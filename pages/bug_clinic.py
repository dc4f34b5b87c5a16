"""Bug clinic: attention code as people get it wrong, beside the right version; and a game."""

import streamlit as st

from ui import page

page.set_up("Bug clinic")

from model.bug_clinic.clinic import attention_for, masks_for
from ui import controls, explain, models, run_view
from ui.bug_clinic import clinic, spot
from ui.examples import FIRST
from ui.markdown import escaped

controls.seed()
clinic.seed()

with st.sidebar:
    wanted = controls.choose_model()
    found = st.empty()
    text = controls.choose_text()
with st.container():  # its own place, so that what follows keeps its own whatever is said here
    model = models.get_or_keep(wanted)
found.caption(explain.model_found(model))
if not text.strip():
    st.info("Type a text on the left, one sequence a line, or take one of the examples.")
    st.stop()

name_place, mode_place = st.columns([1.6, 1], vertical_alignment="center")
with mode_place:
    mode = clinic.choose_mode()
try:
    with st.spinner(f"Running {explain.title_of(model)} …", show_time=True):
        lines, reading = clinic.read(model, text)
        with st.sidebar:
            row = controls.choose_row(reading.rows)
        now, _ = run_view.run_pair(model, reading.batch, masks_for(model), "model", row, attention_for(model))
        asked = spot.ask(now) if mode == "spot" else None
        if mode == "spot" and asked is None:
            st.info("This text shows too few bugs apart; the puzzle is on an example.")
            lines, reading = clinic.read(model, FIRST)
            now, _ = run_view.run_pair(model, reading.batch, masks_for(model), "model", 0, attention_for(model))
            asked = spot.ask(now)
except models.TROUBLE as error:
    st.error(f"{escaped(str(error))}.")
    st.stop()
for note in clinic.notes(model, lines):
    st.caption(note)
title = f"Bug clinic\u2002:small[{explain.title_of(model)} · {explain.size(now.trace.batch, now.row)}]"
name_place.markdown(f"### {title}")

if mode == "spot":
    if asked is None:
        st.info(f"{explain.title_of(model)} shows too few bugs apart for this game: choose another model.")
        st.stop()
    spot.play(now, asked)
else:
    left, right = st.columns([1, 2.6])
    with left:
        bug = clinic.choose_bug()
        layer, head = controls.choose_head(model, now.trace.num_layers, now.trace.num_heads)
    result = clinic.examined(now, bug, layer)
    wrong, healthy = clinic.views(now, bug, result, layer, head)
    with right:
        st.html(f'<p class="sentence">{clinic.sentence(bug)}</p>')
        on = clinic.choose_side(result)
        clinic.draw(wrong, healthy, compare=on, nan=result.has_nan())
        shown = [view for view in (wrong, healthy) if view is not None] if on else [healthy]
        st.html(clinic.key(shown, nan=on and result.has_nan()))
    words, laws = st.columns([1, 1.25], gap="large")
    with words:
        st.markdown("\n\n".join(clinic.effects(now, bug, result, layer)))
        st.code(clinic.code(bug), language="diff", wrap_lines=True)
    with laws:
        st.html(clinic.table(bug, result))
        st.caption(clinic.TABLE.format(layer=layer))

clinic.write_url(wanted)
