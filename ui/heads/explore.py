"""The content of Explore: mask switches, all heads, one large head, the predictions and the leaks."""

import math
from dataclasses import replace
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from i18n import say
from model.base import TokenizedText
from model.heads.view import HeadView, cropped
from ui import ask_first, controls, explain, link, page, run_view
from ui.guard import guarded
from ui.heads import head as head_picture
from ui.heads import overview, query
from ui.heads import views as head_views
from ui.markdown import escaped
from ui.results import cached_figure
from ui.run_view import RunView
from ui.sidebar import training_steps
from viz.head import comparison_figure, head_figure
from viz.html import signs
from viz.numbers import leak_shares, leak_table, loss_figure, next_token_table
from viz.palette import WIDE
from viz.sentence import loss_words, prediction_words, sentence, some_loss_worsened


def show(text: str, reading: TokenizedText, row: int) -> None:
    """Draw the heads, and the page's link in the sidebar; runs as a fragment. row: the index of the text shown."""
    model, batch = controls.keep(), reading.batch
    title, switches = st.columns([1, 1.8], vertical_alignment="center")
    with switches:
        spec, scope = controls.choose_masks(model)
    asked_slot, sentence_slot = st.container(), st.empty()
    left, right = st.columns([1, 3])
    with left:
        attention = controls.choose_attention(model.attentions)
        layer, head = controls.choose_head(model, *run_view.shape(model, attention), attention)
        by = controls.choose_by()
        controls.explain_by()
        overview_slot = st.container()
    name = run_view.name_of(model, attention, layer, head)
    title.markdown(page.heading("Unmask", explain.title_of(model), explain.size(batch, row), name))

    chosen = spec
    if scope == "model":
        with asked_slot, guarded(say("Running both …")):
            spec = ask_first.masks_to_show(model, batch, spec, row, attention, layer, head, by)

    hidden = spec != chosen  # while a question is open, as the standard run may be its answer
    changed = spec != model.standard and not hidden
    with sentence_slot, guarded(say("Running {model} …", model=explain.title_of(model))):
        only_layer = layer if scope == "layer" else None
        now, standard = run_view.run_pair(model, batch, spec, row, attention, only_layer=only_layer, by=by)
        standard = now if hidden else standard
        views = [now.head(layer, head)] + ([standard.head(layer, head)] if changed else [])
        of_tokens = replace(now, by="tokens").head(layer, head)
    # in a long text, draw the chosen head before all heads are surveyed; in a short one, both come together
    show_all = partial(overview.survey, overview_slot, (now, standard), layer, head)
    weights = math.prod(run_view.shape_of(now)) * views[0].weights.size
    surveys = show_all() if weights <= overview.QUICK_SURVEY_WEIGHTS else None
    scene = now.cached(("scene", scope, layer, head), lambda: explain.scene(now, scope, name, of_tokens, layer, head))
    seen = cached_figure(sentence, scene) if spec == chosen else say(ask_first.ASKING)
    sentence_slot.html(page.sentence(seen))
    with right:
        _show_head(now, views, layer, head, name)

    surveys = surveys or show_all()
    one, every = zip(*(leak_shares(survey.future, survey.padding, layer, head) for survey in surveys), strict=True)
    leaking = changed or any(shares != 0 for shares in (every[0].future, every[0].padding))
    tokens, losses, *leaks = st.columns([1.35, 1.25, 1] if leaking else [1.35, 2.25])
    more = _show_predictions(now, standard, tokens, losses)
    if more:
        sentence_slot.html(page.sentence(f"{seen} {more}"))
    for slot in leaks:  # no column of zeros
        slot.html(cached_figure(leak_table, one, every, name, changed=changed))
    training_steps.show(now, layer, head, name)
    with st.sidebar:
        ask_first.switch()
        controls.offer_page(
            model, text, spec, (layer, head), scope=scope, row=row, side=batch.pad_side, query=query.token(now)
        )
    controls.share(link.View, model)


def _show_head(now: RunView, whole: list[HeadView], layer: int, head: int, name: str) -> None:
    """Draw the chosen part of the head large, how to read it, and another view. whole: the head now and as standard."""
    changed, size = len(whole) > 1, whole[0].weights.shape
    part = controls.choose_positions(*size)
    picture_slot, below = st.container(), st.container()
    with below:
        if now.run.attention != "cross":
            part = head_picture.without_padding(part, now.keep(), masked=bool(now.masks.padding))
        rows, columns = head_picture.zoomed(*((part, part) if size[0] == size[1] else ((0, size[0]), (0, size[1]))))
    views = [cropped(view, rows, columns) for view in whole]
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
        head_picture.show(colours.recolour(figure, *views), alt, room="pair", zooms=True, moves=moves)
    sharing = explain.sharing(now, layer, head)
    with st.container(horizontal=True, wrap=False, gap="small"):
        st.html(cached_figure(explain.key, views, colours.top(*views), colours=colours, sharing=sharing))
        explain.show()
    with guarded():
        head_views.show(now, whole, layer, head, name, part)
    st.caption(escaped(signs(views[0].queries + views[0].keys)))
    with st.expander(say("How a cell is computed")):
        st.markdown(say(explain.FORMULA))


def _show_predictions(now: RunView, standard: RunView, tokens: DeltaGenerator, losses: DeltaGenerator) -> str:
    """Draw the likeliest next tokens in one column, the losses in another. Returns sentences about the losses."""
    changed = now.run.spec != standard.run.spec  # masks of one layer change no prediction
    with tokens, guarded(say("Predicting …")):
        chosen = query.choose(now)
        text_position = query.predicting(now, chosen)
        predictions, standard_predictions = now.predictions(text_position), standard.predictions(text_position)
    if predictions is None or standard_predictions is None:
        tokens.info(explain.no_predictions(now.model))
        return ""
    candidates = predictions.candidates, standard_predictions.candidates
    tokens.html(cached_figure(next_token_table, *candidates, changed=changed))
    batch, row, curves = now.run.batch, now.row, (predictions.losses, standard_predictions.losses)
    pieces = batch.pieces[row]
    with losses:
        figure = cached_figure(loss_figure, *curves, pieces, changed=changed)
        explain.show_losses(figure, curves, changed=changed, about=say(explain.NATS))
    if not changed:
        return ""
    last = batch.real(row).stop - 1
    token, position = (pieces[last], last) if text_position is None else (now.tokens[chosen], chosen)
    moved = prediction_words(token, position, candidates[1][0], candidates[0][0])
    if moved:
        tokens.html(page.note(moved))
    with losses:
        if some_loss_worsened(*curves):
            st.caption(say(explain.OFF_DISTRIBUTION_NOTE))
        if now.model.kind == "decoder" and now.model.standard.causal and not now.masks.causal:
            page.link_to("pages/why_causal.py", say(explain.WHY_CAUSAL))
    return loss_words(*curves, pieces)
