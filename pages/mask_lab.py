"""Mask Lab: compose any mask, draw on it, watch one head obey it."""

from dataclasses import replace

import streamlit as st

from i18n import N_, say
from ui import page

page.set_up(N_("Mask Lab"))  # first, so that the browser has something to fetch while torch is imported

from model.heads.view import mask_view
from ui import ask_first, controls, explain, run_view
from ui.guard import guarded
from ui.heads import head as head_picture
from ui.heads import query
from ui.mask_lab import compose, sections
from ui.results import cached_figure
from ui.widgets import choices
from ui.widgets.choices import one_of
from viz.mask_lab.canvas import counts, formula

model, text = controls.open_page(compose.LabLink.restore)
reading, row = controls.open_text(model, text)

top = st.container(key="lab_top", gap="xsmall")
title, where = top.columns([1, 2.4], vertical_alignment="bottom", gap="medium")
with where, st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
    attention = controls.choose_attention([name for name in model.attentions if name != "cross"])
    with st.container(width=190):
        layer, head = controls.choose_head(model, *run_view.shape(model, attention))
    query_slot = st.container(width=150)
    held = compose.choose_where(run_view.layer_names(model, attention), layer)
size = explain.size(reading.batch, row)
title.markdown(page.heading(say("Mask Lab"), explain.title_of(model), size))
with top:
    spec = compose.scoped(compose.choose(model), held, layer, head)
    said = st.container()
in_scope = not spec.layers or layer in spec.layers
sections.warn_of_a_changed_text(reading.batch)
with guarded(say("Running both …")):
    composed, spec = spec, ask_first.masks_to_show(model, reading.batch, spec, row, attention, layer, head)
with guarded(say("Running {model} …", model=explain.title_of(model))):
    now, standard = run_view.run_pair(model, reading.batch, spec, row, attention)
    views = now.head(layer, head), standard.head(layer, head)
with query_slot:
    chosen = query.choose(now)
part = controls.choose_positions(*views[0].weights.shape)
part = head_picture.without_padding(part, now.run.keys.keep[row].numpy(), masked=bool(spec.padding))
part = compose.drawable(*part, chosen)
rows, columns = head_picture.zoomed(part, part)
with st.container(key="mask_and_head"):
    left, right = st.columns(2, gap="small")
with right:  # first: the canvas beside it has shown a stroke at once
    with st.container(horizontal=True, gap="small"):
        shown = one_of(say("Masks of the head"), sections.SHOWN, "shown", label_visibility="collapsed")
        by = controls.choose_by(width="content")
    pair = replace(now, by=by), replace(standard, by=by)
    sections.show_head(shown, pair, (layer, head), (rows, columns), query.moves(now, part))
    controls.explain_by(say("Masks are drawn on tokens; the query and the sections below count tokens, too."))
with left, guarded():
    mask = now.ask(mask_view, layer, head)
    compose.show_canvas(mask, rows, columns, compose.text_key(reading.batch), chosen, in_scope=in_scope)
with said, guarded(say("Computing what each token can depend on …")):
    told = sections.sentence(now, standard, chosen) if spec == composed else say(ask_first.ASKING)
    said.html(told)
st.html("".join([cached_figure(formula, mask), cached_figure(counts, views[0].blocked, mask)]))
choices.show(sections.notes(spec, now, layer, mask, views[0]))

with st.sidebar:
    ask_first.switch()
sections.show_section(now, standard, layer, head, chosen)
compose.share(model, spec)
