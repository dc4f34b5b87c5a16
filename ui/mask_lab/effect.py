"""What the composed masks do to a run: the sentence above the pictures, and the section that shows its numbers."""

from dataclasses import replace
from functools import partial

import streamlit as st

from i18n import N_, say, together
from model.heads.reach import PathStep, answers_known, reach_of, ways_to
from ui import explain, page
from ui.heads import head as head_picture
from ui.heads import query
from ui.results import cached_figure
from ui.run_view import RowPredictions, RunView, layer_names
from viz.mask_lab.effect import (
    MOST_ANSWERS,
    MOST_CELLS,
    Effect,
    ReachView,
    after_query,
    answers_table,
    effect,
    losses_figure,
    no_predictions,
    reach_figure,
    reach_sentence,
    reach_table,
    standard_masks,
)
from viz.numbers import next_token_table


def sentence(now: RunView, standard: RunView, chosen: int) -> str:
    if now.masks == standard.masks:
        return standard_masks()
    found = effect_of(now, standard, chosen)
    return no_predictions() if found is None else effect(found)


def show(now: RunView, standard: RunView, chosen: int) -> None:
    predictions, others = _predictions(now, standard, chosen)
    found = effect_of(now, standard, chosen)
    if predictions is None or others is None or found is None:
        st.info(explain.no_predictions(now.model))
        return
    changed = now.masks != standard.masks
    curves = (predictions.losses, others.losses)
    left, right = st.columns(2, gap="medium")
    follows = cached_figure(next_token_table, predictions.candidates, others.candidates, changed=changed)
    left.html("".join([after_query(found), follows]))
    with right:
        st.caption(cached_figure(explain.loss_caption, *curves, changed=changed))
        figure = cached_figure(losses_figure, found, changed=changed)
        page.chart(figure, "loss_figure", cached_figure(explain.loss_alt, *curves))
    if found.known:
        st.html(cached_figure(answers_table, found))


def effect_of(now: RunView, standard: RunView, chosen: int) -> Effect | None:
    """None for a model that predicts no next token; remembered."""
    return now.kept(("effect", chosen), lambda: _effect_of(now, standard, chosen))


def _effect_of(now: RunView, standard: RunView, chosen: int) -> Effect | None:
    predictions, others = _predictions(now, standard, chosen)
    if predictions is None or others is None:
        return None
    position, last = query.predicting(now, chosen), now.run.batch.real(now.row).stop - 1
    ends = [view.predictions(last) or predictions for view in (standard, now)]
    found = Effect(
        now.run.batch.pieces[now.row],
        predictions.losses,
        others.losses,
        last if position is None else position,
        (others.candidates[0], predictions.candidates[0]),
        last,
        (ends[0].candidates[0], ends[1].candidates[0]),
    )
    before = set(_known(standard))
    found = replace(found, known=[token for token in _known(now) if token not in before])
    return replace(found, ways=_ways(now, found.ranked()[:MOST_ANSWERS]))


def _predictions(now: RunView, standard: RunView, chosen: int) -> tuple[RowPredictions | None, RowPredictions | None]:
    position = query.predicting(now, chosen)
    return now.predictions(position), standard.predictions(position)


def _known(view: RunView) -> list[int]:
    """The tokens of the predicted text that can know their own answer."""
    return list(_of_the_predicted_text(view).ask(answers_known))


def _ways(view: RunView, tokens: list[int]) -> dict[int, tuple[PathStep, ...]]:
    """How the answers of some of them get out, layers numbered as in the network."""
    if not tokens:
        return {}
    text = _of_the_predicted_text(view)
    number = partial(view.model.describe().layer_number, text.run.attention)
    found = text.ask(ways_to, tuple(tokens))
    return {token: tuple(replace(look, layer=number(look.layer)) for look in looks) for token, looks in found.items()}


def _of_the_predicted_text(view: RunView) -> RunView:
    """Of an encoder-decoder's attentions that of the decoder to its own text, whichever is shown."""
    return replace(view, run=replace(view.run, attention="decoder")) if "decoder" in view.model.attentions else view


HOW = N_("""
A token keeps its own state from layer to layer (the residual stream), and each layer adds information from the tokens
it may attend to. So after n layers it can depend on every token that a chain of at most n attention steps, one per
layer, leads to. As matrices: the boolean product of the n masks, each with its diagonal set to “may attend”. A sliding
window of W positions has then grown to n · (W − 1) + 1. (Jiang et al. 2023, *Mistral 7B*, section 2, which rounds this
to n · W.) This is what the masks allow, not what the model uses.
""")


def show_reach(now: RunView, layer: int, head: int, chosen: int) -> None:
    if now.run.attention == "cross":
        st.info(say("Reach is defined for self-attention: choose an attention other than “cross”."))
        return
    with st.spinner(say("Computing reach layer by layer …")):
        found = now.ask(reach_of, layer, head)
    view = ReachView(
        first=found.first,
        window=found.window,
        seen=found.seen,
        layer=layer,
        blocked=found.blocked,
        tokens=list(now.run.keys.pieces[now.row]),
        query=chosen,
        names=layer_names(now.model, now.run.attention),
    )
    sentence = reach_sentence(view)
    st.html(sentence)
    figure = reach_figure(view, dark=page.is_dark())
    head_picture.show(figure, sentence.striptags(), room="two", key="reach_figure")
    st.html("".join([page.note(_key(now, view)), reach_table(view)]))
    with st.expander(say("How reach is computed")):
        st.markdown(say(HOW))


def _key(now: RunView, view: ReachView) -> str:
    parts = [
        say("Left, yellow: the query may attend to the key. Right, colour: after how many layers it can depend on it.")
    ]
    if (view.first == 0).any():
        parts.append(say("Grey: never."))
    if now.masks.heads:
        parts.append(say("The heads' masks differ: a cell of a layer is open if at least one head may attend."))
    if now.model.describe().other_layers():
        parts.append(say("Layers without attention are not counted, although they may pass information on."))
    if len(view.tokens) > MOST_CELLS:
        step = -(-len(view.tokens) // MOST_CELLS)
        parts.append(say("Each cell shows the soonest of {step}\u00a0×\u00a0{step} pairs of tokens.", step=step))
    return together(parts)
