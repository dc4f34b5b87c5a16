"""Explore: a text in, every head out, masks on and off."""

import streamlit as st

from ui import page

page.set_up("Explore")  # first, so that the browser has something to fetch while torch is imported

from ui import controls, explain, models, overview, run_view
from ui.markdown import escaped
from viz.head import comparison_figure, head_figure, head_range
from viz.numbers import leak_table, loss_figure, next_token_table
from viz.overview import overview_packet
from viz.sentence import sentence
from viz.view import cropped

controls.seed()

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

with st.sidebar:
    targets = controls.choose_target(model)
try:
    with st.spinner(f"Reading with {explain.title_of(model)} …", show_time=True):
        reading = run_view.read(model, text, st.session_state.pad, targets)
except models.TROUBLE as error:
    st.error(f"{escaped(str(error))}.")
    st.stop()
batch = reading.batch
with st.sidebar:
    row = controls.choose_row(reading.rows)
notes = st.container()
for note in explain.limits(model, reading):
    notes.warning(note)

title, switches = st.columns([1, 1.8], vertical_alignment="center")
with switches:
    spec, scope = controls.choose_masks(model)
sentence_place = st.container()
left, right = st.columns([1, 2.6])
with left:
    attention = controls.choose_attention(model.attentions)
try:
    with sentence_place, st.spinner(f"Running {explain.title_of(model)} …", show_time=True):
        now, standard = run_view.run_pair(model, batch, spec, scope, row, attention)
        survey, standard_survey = now.survey(), standard.survey()
        predictions, standard_predictions = now.predictions(), standard.predictions()
except models.TROUBLE as error:
    st.error(f"{escaped(str(error))}.")
    st.stop()
with left:
    layer, head = controls.choose_head(model, now.trace.num_layers, now.trace.num_heads)
name = f"L{layer} H{head}"
title.markdown(f"### Unmask\u2002:small[{explain.title_of(model)} · {explain.size(batch, row)} · {name}]")

changed = spec != model.standard
views = [now.head(layer, head)] + ([standard.head(layer, head)] if changed else [])
sentence_place.html(f'<p class="sentence">{sentence(explain.scene(now, scope, name, views[0]))}</p>')
with left:
    overview.show(overview_packet(survey.thumbnails, survey.blocked, layer=layer, head=head))
    st.caption(explain.OVERVIEW)
with right:
    part = controls.choose_positions(*views[0].weights.shape)
    views = [cropped(view, *part) for view in views]
    draw = comparison_figure if changed else head_figure
    figure = draw(*views, dark=page.is_dark())
    st.plotly_chart(figure, key="head_figure", config=page.CHART, alt=explain.head_alt(name, views[0], changed))
    st.html(explain.key(views, head_range(*views), sharing=explain.sharing(now, layer, head)))
    with st.expander("How a cell is computed"):
        st.markdown(explain.FORMULA)

tokens, losses, leaks = st.columns([1.35, 1.25, 1])
if predictions is None or standard_predictions is None:
    tokens.info(explain.NO_PREDICTIONS.get(model.kind, explain.NO_PREDICTIONS["decoder"]))
else:
    tokens.html(next_token_table(predictions.candidates, standard_predictions.candidates, changed=changed))
    with losses:
        curves = (predictions.losses, standard_predictions.losses)
        figure = loss_figure(*curves, batch.pieces[row], changed=changed)
        st.caption(explain.loss_caption(*curves, changed=changed))
        st.plotly_chart(figure, key="loss_figure", config=page.CHART, alt=explain.loss_alt(*curves))
head_leaks = (survey.leak(layer, head), standard_survey.leak(layer, head))
leaks.html(leak_table(head_leaks, (survey.mean_leak(), standard_survey.mean_leak()), name, changed=changed))

with st.sidebar:
    controls.share(wanted, model)
