"""Explore: a text in, every head out, masks on and off."""

from dataclasses import replace
from functools import partial

import streamlit as st

from ui import page

page.set_up("Explore")  # first, so that the browser has something to fetch while torch is imported

from i18n import say
from model.heads.view import cropped
from ui import ask_first, controls, explain, link, run_view
from ui.guard import guarded
from ui.heads import head as head_picture
from ui.heads import overview, query
from ui.heads import views as head_views
from ui.lessons import shelves
from ui.markdown import escaped
from ui.results import cached_figure
from ui.sidebar import training_steps
from viz.head import comparison_figure, head_figure
from viz.html import signs, tag
from viz.numbers import leak_table, loss_figure, next_token_table
from viz.palette import WIDE
from viz.sentence import loss_words, misled, prediction_words, sentence

model, text = controls.open_page()
shelves.show(model.name)
reading, row = controls.open_text(model, text)
batch = reading.batch

title, switches = st.columns([1, 1.8], vertical_alignment="center")
with switches:
    spec, scope = controls.choose_masks(model)
asked_slot, sentence_slot = st.container(), st.empty()
left, right = st.columns([1, 3])
with left:
    attention = controls.choose_attention(model.attentions)
    layer, head = controls.choose_head(model, *run_view.shape(model, attention))
    by = controls.choose_by()
    controls.explain_by()
    overview_slot = st.container()
name = run_view.name_of(model, attention, layer, head)
title.markdown(f"### Unmask\u2002:small[{explain.title_of(model)} · {explain.size(batch, row)} · {name}]")

chosen = spec
if scope == "model":
    with asked_slot, guarded(say("Running both …")):
        spec = ask_first.masks_to_show(model, batch, spec, row, attention, layer, head)

changed = spec != model.standard
with sentence_slot, guarded(say("Running {model} …", model=explain.title_of(model))):
    only_layer = controls.only(scope, layer)
    now, standard = run_view.run_pair(model, batch, spec, row, attention, only_layer=only_layer, by=by)
    views = whole = [now.head(layer, head)] + ([standard.head(layer, head)] if changed else [])
# of a long text the chosen head stands on the page before all are surveyed; of a short one they come together
show_all = partial(overview.survey, overview_slot, (now, standard), layer, head)
surveys = show_all() if overview.takes_a_moment(now, views[0]) else None
of_tokens = replace(now, by="tokens").head(layer, head)
scene = now.kept(("scene", scope, layer, head), lambda: explain.scene(now, scope, name, of_tokens, layer, head))
seen = cached_figure(sentence, scene) if spec == chosen else say(ask_first.ASKING)
sentence_slot.html(f'<p class="sentence">{seen}</p>')
with right:
    part = controls.choose_positions(*views[0].weights.shape)
    picture_slot, below = st.container(), st.container()
    if attention != "cross":
        with below:
            part = head_picture.without_padding(part, now.keep(), masked=bool(spec.padding))
    size = views[0].weights.shape
    with below:
        rows, columns = head_picture.zoomed(*((part, part) if size[0] == size[1] else ((0, size[0]), (0, size[1]))))
    views = [cropped(view, rows, columns) for view in views]
    dark = page.is_dark()
    framed, colours = query.picked(), head_views.colours()
    figure = (
        cached_figure(comparison_figure, *views, dark=dark, query=framed)
        if changed
        else cached_figure(head_figure, views[0], dark=dark, wide=WIDE, query=framed)
    )
    with picture_slot:
        alt = cached_figure(explain.head_alt, name, views[0], changed)
        moves = query.moves(now, part)
        head_picture.show(colours.given_to(figure, *views), alt, room="pair", zooms=True, moves=moves)
    sharing = explain.sharing(now, layer, head)
    with st.container(horizontal=True, wrap=False, gap="small"):
        st.html(cached_figure(explain.key, views, colours.top(*views), colours=colours, sharing=sharing))
        explain.show()
    with guarded():
        head_views.show(now, whole, layer, head, name, part)
    st.caption(escaped(signs(views[0].queries + views[0].keys)))
    with st.expander(say("How a cell is computed")):
        st.markdown(say(explain.FORMULA))

surveys = surveys or show_all()
tokens, losses, leaks = st.columns([1.35, 1.25, 1])
with tokens, guarded(say("Predicting …")):
    asked = query.predicting(now, query.choose(now))
    predictions, standard_predictions = now.predictions(asked), standard.predictions(asked)
if predictions is None or standard_predictions is None:
    tokens.info(explain.no_predictions(model))
else:
    tokens.html(
        cached_figure(next_token_table, predictions.candidates, standard_predictions.candidates, changed=changed)
    )
    with losses:
        curves = (predictions.losses, standard_predictions.losses)
        figure = cached_figure(loss_figure, *curves, batch.pieces[row], changed=changed)
        st.caption(cached_figure(explain.loss_caption, *curves, changed=changed), help=say(explain.NATS))
        page.chart(figure, "loss_figure", cached_figure(explain.loss_alt, *curves))
    if now.masks != standard.masks and scope == "model":
        position = batch.real(row).stop - 1 if asked is None else asked
        pieces = batch.pieces[row]
        sentence_slot.html(f'<p class="sentence">{seen} {loss_words(*curves, pieces)}</p>')
        firsts = standard_predictions.candidates[0], predictions.candidates[0]
        moved = prediction_words(pieces[position], position, *firsts)
        if moved:
            tokens.html(tag("p", moved, class_="key"))
        if misled(*curves):
            losses.caption(say(explain.MISLED))
        if explain.lifts_the_causal_mask(now):
            with losses:
                page.link_to("pages/why_causal.py", say(explain.WHY_CAUSAL))
one, every = zip(*(explain.leaks(survey, layer, head) for survey in surveys), strict=True)
leaks.html(cached_figure(leak_table, one, every, name, changed=changed))
training_steps.show(now, layer, head, name)
with st.sidebar:
    ask_first.switch()
    controls.offer_page(model, text, spec, (layer, head))
controls.share(link.View, model, masks=None)
