"""Mask Lab: compose any mask, draw on it, watch one head obey it."""

import streamlit as st

from ui import page

page.set_up("Mask Lab")  # first, so that the browser has something to fetch while torch is imported

from ui import controls, explain, models, run_view
from ui.markdown import escaped
from ui.mask_lab import canvas, compose, sections
from viz.mask_lab.words import counts, formula
from viz.view import cropped

controls.seed()
compose.seed()

with st.sidebar:
    wanted = controls.choose_model()
    found = st.empty()
    text = controls.choose_text()
with st.container():
    model = models.get_or_keep(wanted)
found.caption(explain.model_found(model))
if not text.strip():
    st.info("Type a text on the left, one sequence a line, or take one of the examples.")
    st.stop()

with st.sidebar:
    targets = controls.choose_target(model)
try:
    with st.spinner(f"Reading with {explain.title_of(model)} …", show_time=True):
        reading = run_view.read(model, text, st.session_state.pad, targets)
except models.TROUBLE as error:
    st.error(f"{escaped(str(error))}.")
    st.stop()
with st.sidebar:
    row = controls.choose_row(reading.rows)
for note in explain.limits(model, reading):
    st.warning(note)

title, heads, where = st.columns([1.5, 1, 1.3], vertical_alignment="top", gap="medium")
with heads:
    attention = controls.choose_attention([name for name in model.attentions if name != "cross"])
    layer, head = controls.choose_head(model, *run_view.shape(model, attention))
name = f"L{layer} H{head}"
title.markdown(f"### Mask Lab\n{explain.title_of(model)} · {explain.size(reading.batch, row)} · {name}")
with where:
    held = compose.choose_where(run_view.shape(model, attention)[0], layer)
spec = compose.scoped(compose.choose(model), held, layer, head)
said = st.container()
sections.warn_of_a_changed_text(reading.batch)
try:
    with st.spinner(f"Running {explain.title_of(model)} …", show_time=True):
        now, standard = run_view.run_pair(model, reading.batch, spec, "model", row, attention)
except models.TROUBLE as error:
    st.error(f"{escaped(str(error))}.")
    st.stop()

views = now.head(layer, head), standard.head(layer, head)
mask = now.mask(layer, head)
said.html(sections.sentence(now, standard, layer, head) + formula(mask) + counts(views[0].blocked, mask))
with said:
    sections.notes(spec, now, layer)
part = controls.choose_positions(*views[0].weights.shape)
left, right = st.columns(2, gap="medium")
with left:
    canvas.show(mask, *part, compose.text_key(reading.batch))
with right:
    shown = sections.choose_shown()
    now_view, standard_view = (cropped(view, *part) for view in views)
    figure = sections.picture(shown, now_view, standard_view)
    alt = sections.alt(name, shown, now_view, standard_view)
    st.plotly_chart(figure, key="head_figure", config=page.CHART, height="stretch", alt=alt)

sections.show_section(now, standard, layer, head)
with st.sidebar:
    controls.share(wanted, model, compose.for_link(spec))
