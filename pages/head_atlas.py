"""Head atlas: every head of a model measured over texts, as points to choose from."""

import streamlit as st

from i18n import N_, say, say_count, together
from ui import page

page.set_up(N_("Head atlas"))  # first, so that the browser has something to fetch while torch is imported

from dataclasses import replace

from model.atlas.progress import about
from model.atlas.unit import row_length
from ui import controls, explain
from ui.guard import guarded
from ui.head_atlas import choices, finder, runs, sections
from ui.results import cached_figure
from viz.head_atlas import tables
from viz.head_atlas.scatter import distances
from viz.head_atlas.tables import tokens_table

model, text = controls.open_page(choices.restore)
title = st.empty()
title.markdown(f"### {say('Head atlas')}")
texts, switches, axes = st.columns([1.9, 0.8, 1.6], vertical_alignment="bottom")
with texts:
    chosen = choices.choose_source()
with switches, st.container(horizontal=True):
    choices.choose_masks(model)
with axes:
    x, y = choices.choose_axes()
masks = replace(model.standard, **choices.lifted(model))
layer, head = choices.chosen(model)
choices.share(model, text)  # before what may end the page
with guarded(say("Measuring every head …")):
    texts_key, read = runs.source(model, chosen, text)
    atlas = runs.find(model, texts_key, read, masks)

size = say_count(
    "{heads} heads · {count} text · {tokens:,} tokens",
    "{heads} heads · {count} texts · {tokens:,} tokens",
    atlas.texts,
    heads=atlas.layers * atlas.heads,
    tokens=atlas.read,
)
title.markdown(f"### {say('Head atlas')}\u2002:small[{explain.title_of(model)} · {size}]")
st.html(tables.summary(atlas, random=chosen == "random"))
left, right = st.columns([1.35, 1], gap="large")
with left:
    drawable = choices.show(atlas, x, y, (layer, head))
    point = say("Each point is a head; click one. Dotted: uniform attention.") if drawable else ""
    st.caption(together(filter(None, [point, tables.naming(), tables.cut(atlas, row_length(model))])))
    if drawable:
        sections.offer(atlas, model, masks, chosen, x, y, (layer, head))
with right:
    controls.choose_head(model, atlas.layers, atlas.heads)
    st.html(tables.head_sentence(atlas, layer, head))
    figure = distances(atlas, layer, head)
    st.plotly_chart(figure, key="atlas_distances", config=page.CHART, alt=choices.distances_alt(atlas, layer, head))
    keys, queries = st.columns(2)
    keys.html(cached_figure(tokens_table, atlas.key_tokens(layer, head)[:6], say("most attended to")))
    sharp = cached_figure(tokens_table, atlas.query_tokens(layer, head)[:6], say("sharpest queries"), tables.no_token())
    queries.html(sharp)
    st.caption(tables.tokens())

section = choices.choose_section()
if section == "examples":
    sections.examples(atlas, layer, head)
elif section == "find":
    finder.show(model, text, atlas, masks)
else:
    sections.table(atlas, model, about(model, masks, row_length(model), atlas))
