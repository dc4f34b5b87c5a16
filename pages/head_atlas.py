"""Head atlas: every head of a model measured over texts, as points to choose from."""

from dataclasses import replace
from typing import Any

import streamlit as st

from i18n import N_, say, say_count, together
from ui import page

page.set_up(N_("Head atlas"))  # first, so that the browser has something to fetch while torch is imported

from model.atlas.progress import about as about_atlas
from model.atlas.result import EVERY_MEASURE, OF_WEIGHTS
from model.atlas.unit import row_length
from model.circuits.ov_qk import copying_scores, strongest_reads
from serving.job import ModelRef
from ui import controls, explain, results
from ui.guard import guarded
from ui.head_atlas import controls as atlas_controls
from ui.head_atlas import examples
from ui.head_atlas.controls import SECTIONS, SOURCES, AtlasLink
from ui.results import cached_figure
from ui.widgets import one_of
from viz.heads import atlas as tables
from viz.heads.atlas import distance_names, distances, tokens_table
from viz.numbers import percent, token_count

model, text = controls.open_page(AtlasLink.restore)
title = st.empty()
title.markdown(page.heading(say("Head atlas")))
texts, axes = st.columns([2.7, 1.6], vertical_alignment="bottom")
with texts, st.container(horizontal=True, vertical_alignment="bottom"):
    chosen = one_of(say("Texts"), SOURCES, "atlas_source", width="content", help=say(atlas_controls.HELP))
    # padding is always masked here
    masks = controls.switch_masks(model, [name for name in model.describe().masks if name != "padding"])
with axes, st.container(key="select_pair", horizontal=True, wrap=False):
    across, up = (atlas_controls.words(st.session_state[name]) for name in ("atlas_x", "atlas_y"))
    look: Any = {"options": list(EVERY_MEASURE), "format_func": atlas_controls.title}
    x = st.selectbox(say("X axis"), key="atlas_x", help=across, **look)
    y = st.selectbox(say("Y axis"), key="atlas_y", help=up, **look)
layer, head = controls.nearest_head(model, model.num_layers, model.num_heads)
atlas_controls.share(model, text)  # called before anything may end the page
with guarded(say("Measuring every head …")):
    texts_key, read = atlas_controls.source(model, chosen, text)
    atlas, resume = atlas_controls.find(model, texts_key, read, masks)
    ways = {"copying_scores": copying_scores, "strongest_reads": strongest_reads}
    of_weights = {name: results.ask(ways[name], ModelRef.of(model)) for name in (x, y) if name in OF_WEIGHTS}
    atlas = replace(atlas, of_weights=of_weights)

size = (
    say_count("{count} head", "{count} heads", atlas.layers * atlas.heads),
    say_count("{count} text", "{count} texts", atlas.texts),
    token_count(atlas.read),
)
title.markdown(page.heading(say("Head atlas"), explain.title_of(model), *size))
st.html(tables.summary(atlas, random=chosen == "random"))
left, right = st.columns([1.35, 1], gap="large")
with left:
    drawable = atlas_controls.show(atlas, x, y, (layer, head))
    points = [say("Each point is a head; click one."), tables.dotted(atlas, x, y)] if drawable else []
    st.caption(together(filter(None, [*points, tables.naming(), tables.cut(atlas, row_length(model))])))
    if drawable:
        examples.offer(atlas, model, masks, chosen, x, y, (layer, head))
with right:
    controls.choose_head(model, atlas.layers, atlas.heads)
    st.html(tables.head_sentence(atlas, layer, head))
    names, shares = distance_names(atlas), atlas.spread[layer, head]
    most = int(shares[: len(names)].argmax())
    alt = N_("Attention of {head} by distance in tokens. The largest share, {share}: {distance}.")
    about = {"head": atlas.name((layer, head)), "share": percent(shares[most]), "distance": names[most]}
    page.chart(distances(atlas, layer, head), "atlas_distances", say(alt, **about))
    keys, queries = st.columns(2)
    keys.html(cached_figure(tokens_table, atlas.key_tokens(layer, head)[:6], say("most attended to")))
    sharp = cached_figure(tokens_table, atlas.query_tokens(layer, head)[:6], say("sharpest queries"), tables.no_token())
    queries.html(sharp)
    st.caption(tables.tokens())

section = one_of(say("Below"), SECTIONS, "atlas_section", label_visibility="collapsed")
if section == "examples":
    examples.examples(atlas, layer, head)
elif section == "find":
    left, right = st.columns([1, 1.35], gap="large")
    with left:
        examples.by_distance(atlas)
    with right:
        examples.by_marks(model, text, atlas, masks)
else:
    examples.table(atlas, model, about_atlas(model, masks, row_length(model), atlas))
resume()
