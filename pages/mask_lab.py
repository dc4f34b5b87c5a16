"""Mask Lab: compose any mask, draw on it, watch one head obey it."""

import streamlit as st

from ui import page

page.set_up("Mask Lab")  # first, so that the browser has something to fetch while torch is imported

from model.masks import NATIVE
from ui import controls, explain, link, run_view
from ui import head as head_picture
from ui.guard import guarded
from ui.mask_lab import canvas, compose, sections
from viz.mask_lab.words import counts, formula
from viz.view import cropped

model, text = controls.open_page(compose.seed)
reading, row = controls.open_text(model, text)

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
with guarded(f"Running {explain.title_of(model)} …"):
    now, standard = run_view.run_pair(model, reading.batch, spec, row, attention)
    views = now.head(layer, head), standard.head(layer, head)
    mask = now.mask(layer, head)
said.html(sections.sentence(now, standard, layer, head) + formula(mask) + counts(views[0].blocked, mask))
with said:
    sections.notes(spec, now, layer)
part = controls.choose_positions(*views[0].weights.shape)
part = head_picture.without_padding(part, now.trace.keys.keep[row].numpy(), masked=spec.padding)
part = canvas.drawable(*part)
left, right = st.columns(2, gap="medium")
with left:
    canvas.show(mask, *part, compose.text_key(reading.batch))
with right:
    shown = sections.choose_shown()
    now_view, standard_view = (cropped(view, *part) for view in views)
    figure = sections.picture(shown, now_view, standard_view)
    alt = sections.alt(name, shown, now_view, standard_view)
    head_picture.show(figure, alt, room="one")

sections.show_section(now, standard, layer, head)
controls.share(link.View, model, masks=compose.for_link(spec), **dict.fromkeys(NATIVE))
