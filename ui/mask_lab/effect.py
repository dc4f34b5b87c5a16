"""What the composed masks do to a run: the sentence above the pictures, and the section that shows its numbers."""

from dataclasses import replace
from functools import partial

import streamlit as st

from model.heads.reach import PathStep, answers_known, ways_to
from ui import explain, page
from ui.drawn import cached_figure
from ui.heads import query
from ui.run_view import RowPredictions, RunView
from viz.mask_lab.effect import (
    MOST_ANSWERS,
    Effect,
    after_query,
    answers_table,
    effect,
    losses_figure,
    no_predictions,
    standard_masks,
)
from viz.numbers import next_token_table


def sentence(now: RunView, standard: RunView, chosen: int) -> str:
    """What to notice, in HTML."""
    if now.masks == standard.masks:
        return standard_masks()
    found = effect_of(now, standard, chosen)
    return no_predictions() if found is None else effect(found)


def show(now: RunView, standard: RunView, chosen: int) -> None:
    """What follows the chosen query, every token's loss, and the answers that are given away."""
    predictions, others = _predictions(now, standard, chosen)
    found = effect_of(now, standard, chosen)
    if predictions is None or others is None or found is None:
        st.info(explain.NO_PREDICTIONS.get(now.model.kind, explain.NO_PREDICTIONS["decoder"]))
        return
    changed = now.masks != standard.masks
    curves = (predictions.losses, others.losses)
    left, right = st.columns(2, gap="medium")
    follows = cached_figure(next_token_table, predictions.candidates, others.candidates, changed=changed)
    left.html(after_query(found, changed=changed) + follows)
    with right:
        st.caption(cached_figure(explain.loss_caption, *curves, changed=changed))
        figure = cached_figure(losses_figure, found, changed=changed)
        st.plotly_chart(figure, key="loss_figure", config=page.CHART, alt=cached_figure(explain.loss_alt, *curves))
    if found.known:
        st.html(cached_figure(answers_table, found))


def effect_of(now: RunView, standard: RunView, chosen: int) -> Effect | None:
    """None for a model that predicts no next token; remembered."""
    return now.kept(("effect", chosen), lambda: _effect_of(now, standard, chosen))


def _effect_of(now: RunView, standard: RunView, chosen: int) -> Effect | None:
    predictions, others = _predictions(now, standard, chosen)
    if predictions is None or others is None:
        return None
    place, last = query.predicting(now, chosen), now.run.batch.real(now.row).stop - 1
    ends = [view.predictions(last) or predictions for view in (standard, now)]
    found = Effect(
        now.run.batch.pieces[now.row],
        predictions.losses,
        others.losses,
        last if place is None else place,
        (others.candidates[0], predictions.candidates[0]),
        last,
        (ends[0].candidates[0], ends[1].candidates[0]),
    )
    before = set(_known(standard))
    found = replace(found, known=[token for token in _known(now) if token not in before])
    return replace(found, ways=_ways(now, found.ranked()[:MOST_ANSWERS]))


def _predictions(now: RunView, standard: RunView, chosen: int) -> tuple[RowPredictions | None, RowPredictions | None]:
    place = query.predicting(now, chosen)
    return now.predictions(place), standard.predictions(place)


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
