"""The page's steps, but for the training. What has choices of its own runs again alone."""

from dataclasses import dataclass

import streamlit as st
from markupsafe import Markup
from streamlit.delta_generator import DeltaGenerator

from i18n import say
from model.text import TokenBatch
from model.why_causal.twins import COMBINATIONS, Combination, Curves, TwinOutcome, TwinPair
from ui import explain, link, page
from ui.guard import guarded
from ui.heads import head as head_picture
from ui.results import cached_figure
from ui.run_view import RunView
from ui.why_causal import controls, sentences, twin_runs
from ui.why_causal.controls import WhyCausalLink, chosen_link
from viz.head import head_figure, head_range
from viz.why_causal.charts import change_bars, copies, four, loss_curves, token_losses

ABOVE = 358  # pixels over and under the head's picture that are others'
Outcomes = dict[Combination, TwinOutcome]


@dataclass(frozen=True)
class Beginning:
    """The containers of the first step that wait for the text."""

    sentence: DeltaGenerator
    caption: DeltaGenerator
    beside: DeltaGenerator


def trained(training: Curves) -> Beginning:
    sentence = st.empty()
    sentence.html(page.sentence(sentences.trained(training)))
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("#### " + say("How they were trained"))
        figure = cached_figure(loss_curves, sentences.training_lines(training), unit=say("nats/token"), height=300)
        page.chart(figure, "training_figure", sentences.training_alt(training))
        caption = st.empty()
    return Beginning(sentence, caption, right)


def losses(beginning: Beginning, training: Curves, pair: TwinPair, batch: TokenBatch, outcomes: Outcomes) -> None:
    with beginning.beside:
        st.markdown("#### " + say("The loss of every token"))
        figure = cached_figure(token_losses, sentences.loss_lines(outcomes), batch.pieces[0])
        page.chart(figure, "loss_figure", sentences.loss_alt(outcomes))
    said = sentences.sentence(training, outcomes, batch, vocabulary=len(pair.words()))
    beginning.sentence.html(page.sentence(said))
    beginning.caption.caption(sentences.training_caption(training, pair.context))


@st.fragment
def heads(pair: TwinPair, batch: TokenBatch, looks: dict[Combination, RunView], outcomes: Outcomes) -> None:
    WhyCausalLink.keep()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        one = controls.choose_combination()
        layer, head = controls.choose_head(one, outcomes)
    view = looks[one].head(layer, head)
    st.html(page.sentence(sentences.head_sentence(outcomes, one, (layer, head))))
    picture, beside = st.columns([2.2, 1], gap="large")
    with picture:
        alt = cached_figure(explain.head_alt, looks[one].name(layer, head), view, False)
        figure = cached_figure(head_figure, view, dark=page.is_dark())
        head_picture.show(figure, alt, room="one", above=ABOVE, on_pick=None)
        st.html(cached_figure(explain.key, [view], head_range(view)))
        st.caption(say(sentences.LABELS))
    with beside:
        st.markdown(say("Copy score: a head's mean weight on the next token, t + 1"))
        for other in sorted(COMBINATIONS, key=lambda one: one.run):  # under the mask all are 0
            chosen = (layer, head) if other == one else None
            st.caption(say(sentences.NAMES[other]))
            st.html(cached_figure(copies, outcomes[other].copies, chosen, blocked=other.run))
    link.write(chosen_link(pair, batch))


@st.fragment
def writing(pair: TwinPair, batch: TokenBatch, outcomes: Outcomes) -> None:
    WhyCausalLink.keep()
    seed = controls.choose_writing()
    with guarded(say("Writing …")):
        cards = twin_runs.cards(pair, batch, outcomes, seed)
    st.html(cached_figure(four, cards))
    st.caption(say(sentences.WHAT_THE_MASK_CHANGES))
    link.write(chosen_link(pair, batch))


@st.fragment
def proof(pair: TwinPair, batch: TokenBatch) -> None:
    WhyCausalLink.keep()
    trained, position, token = controls.choose_change(pair, batch)
    with guarded(say("Changing a token …")):
        changes = twin_runs.change(pair, batch, trained, position, token)
    sentence = sentences.proof_sentence(changes, token == int(batch.ids[0, position]))
    st.html(page.sentence(sentence))
    moved = {say(sentences.MOVED[run]): change.logits for run, change in changes.items()}
    figure = cached_figure(change_bars, moved, batch.pieces[0], position)
    page.chart(figure, "proof_figure", sentence.striptags())
    st.caption(say(sentences.PROOF))
    link.write(chosen_link(pair, batch))


def seen(pair: TwinPair, batch: TokenBatch, outcomes: Outcomes) -> None:
    with guarded(say("Changing a token …")):
        changes = twin_runs.change(pair, batch, True, *controls.changed(pair, batch))
    items = Markup().join(Markup("<li>{}</li>").format(line) for line in sentences.seen(outcomes, changes))
    st.markdown("#### " + say("What you have seen"))
    st.html(Markup("<ol>{}</ol>").format(items))
