"""Bug clinic: common bugs in attention code beside the correct version; and a game."""

import streamlit as st

from ui import page

page.set_up("Bug clinic")  # not shown

from i18n import N_, say
from model.bug_clinic.comparison import attention_for, compare, examine, masks_for, prepare_text
from ui import controls, explain, results, run_view, widgets
from ui.bug_clinic import controls as clinic
from ui.bug_clinic import explanations
from ui.guard import guarded
from ui.sidebar.models import FIRST
from ui.widgets import one_of
from viz.html import tag

model, text = controls.open_page(clinic.ClinicLink.restore)
controls.ask_for_text(text)

title, modes = st.columns([1.6, 1], vertical_alignment="center")
with modes, st.container(horizontal=True, horizontal_alignment="right"):
    mode = one_of(say("Mode"), clinic.MODES, "mode", label_visibility="collapsed", width="content")
with guarded(say("Running {model} …", model=explain.title_of(model))):
    with st.sidebar:
        row_slot = st.container()
        controls.choose_pad_side("\n".join(prepare_text(model, text).lines))
    lines, reading = clinic.read(model, text)
    with row_slot:
        row = controls.choose_row(reading.rows)
    now, _ = run_view.run_pair(model, reading.batch, masks_for(model), row, attention_for(model))
    puzzle = clinic.ask(now) if mode == "spot" else None
    if mode == "spot" and puzzle is None:
        st.info(say("This text distinguishes too few bugs; the puzzle uses an example."))
        lines, reading = clinic.read(model, FIRST)
        now, _ = run_view.run_pair(model, reading.batch, masks_for(model), 0, attention_for(model))
        puzzle = clinic.ask(now)
size = explain.size(now.run.batch, now.row)
title.markdown(page.heading(say("Bug clinic"), explain.title_of(model), size))
if mode == "spot":
    if puzzle is None:
        too_few = N_("{model} distinguishes too few bugs for this game: choose another model.")
        st.info(say(too_few, model=explain.title_of(model)))
        st.stop()
    with guarded():
        clinic.play(now, puzzle)
else:
    bugs, heads, side = st.columns([2.6, 1.2, 0.8], vertical_alignment="bottom")
    with bugs:
        bug = clinic.choose_bug()
    with guarded():
        of = now.run.model, now.run, now.row, bug.key
        pair = results.ask(compare, *of, controls.nearest_head(model, *run_view.shape_of(now))[0])
        clinic.choose_head_showing_bug(now, bug, pair)
    with heads:
        layer, head = controls.choose_head(model, *run_view.shape_of(now), now.run.attention)
    with side:
        # no toggle if the heatmaps are the same
        on = pair.shows_in_heatmap() and st.toggle(
            say("Bug on"), key="bug_on", help=say("Off: only the correct version.")
        )
    st.html(page.sentence(tag("b", say("{name}.", name=bug.name)) + " " + say(bug.signs)))
    picture, details = st.columns([1.65, 1], gap="medium")
    with picture, guarded():
        explanations.show(now, bug, pair, layer, head, on=on)
    with details, guarded():
        found = results.ask(examine, *of, layer)  # checks every property, which takes longer than the picture
        explanations.show_explanation(now, bug, pair, found, layer, head)
    explanations.show_laws(now, bug, found, layer)

widgets.show_notes(clinic.notes(model, lines))
# the link always names the head: without one, the page chooses a head that shows the bug
own = {"puzzle": None, "layer": layer, "head": head} if puzzle is None else clinic.NO_ANSWER | {"puzzle": puzzle.number}
controls.share(clinic.ClinicLink, model, **own)
