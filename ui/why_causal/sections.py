"""The page's steps, but for the training. What has choices of its own runs again alone."""

from dataclasses import dataclass

import streamlit as st
from markupsafe import Markup
from streamlit.delta_generator import DeltaGenerator

from i18n import say
from model.text import TokenBatch
from model.why_causal.twins import COMBINATIONS, Combination, Curves, TwinOutcome, TwinPair
from ui import explain, page
from ui.guard import guarded
from ui.heads import head as head_picture
from ui.results import cached_figure
from ui.run_view import RunView
from ui.why_causal import choices, runs, words
from viz.head import head_figure, head_range
from viz.why_causal.charts import change_bars, copies, four, loss_curves, token_losses

ABOVE = 358  # pixels over and under the head's picture that are others'
Outcomes = dict[Combination, TwinOutcome]


@dataclass(frozen=True)
class Beginning:
    """The places of the first step that wait for the text."""

    sentence: DeltaGenerator
    caption: DeltaGenerator
    beside: DeltaGenerator


def trained(training: Curves) -> Beginning:
    """How the twins were trained, which needs no text."""
    sentence = st.empty()
    sentence.html(words.paragraph(words.trained(training)))
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("#### " + say("How they were trained"))
        figure = cached_figure(loss_curves, runs.training_lines(training), unit=say("nats/token"), height=300)
        st.plotly_chart(figure, key="training_figure", config=page.CHART, alt=runs.training_alt(training))
        caption = st.empty()
    return Beginning(sentence, caption, right)


def losses(beginning: Beginning, training: Curves, pair: TwinPair, batch: TokenBatch, outcomes: Outcomes) -> None:
    """The loss of every token of the text under the four combinations, and what follows from it."""
    with beginning.beside:
        st.markdown("#### " + say("The loss of every token"))
        figure = cached_figure(token_losses, runs.loss_lines(outcomes), batch.pieces[0])
        st.plotly_chart(figure, key="loss_figure", config=page.CHART, alt=runs.loss_alt(outcomes))
    said = words.sentence(training, outcomes, batch, vocabulary=len(pair.words()))
    beginning.sentence.html(words.paragraph(said))
    beginning.caption.caption(runs.training_caption(training, pair.context))


@st.fragment
def heads(pair: TwinPair, batch: TokenBatch, looks: dict[Combination, RunView], outcomes: Outcomes) -> None:
    """The head that copies the answer, and every head's copy score."""
    choices.keep()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        one = choices.choose_combination()
        layer, head = choices.choose_head(one, outcomes)
    view = looks[one].head(layer, head)
    st.html(words.paragraph(words.head_sentence(outcomes, one, (layer, head))))
    picture, beside = st.columns([2.2, 1], gap="large")
    with picture:
        alt = cached_figure(explain.head_alt, looks[one].name(layer, head), view, False)
        head_picture.show(
            cached_figure(head_figure, view, dark=page.is_dark()), alt, room="one", above=ABOVE, on_pick=None
        )
        st.html(cached_figure(explain.key, [view], head_range(view)))
        st.caption(say(words.LABELS))
    with beside:
        st.markdown(say("Copy score: a head's mean weight on the next token, t + 1"))
        for other in sorted(COMBINATIONS, key=lambda one: one.run):  # under the mask all are 0
            chosen = (layer, head) if other == one else None
            st.caption(say(runs.NAMES[other]))
            st.html(cached_figure(copies, outcomes[other].copies, chosen, blocked=other.run))
    choices.write(pair, batch)


@st.fragment
def writing(pair: TwinPair, batch: TokenBatch, outcomes: Outcomes) -> None:
    """What the four combinations make of the text, and write on."""
    choices.keep()
    seed = choices.choose_writing()
    with guarded(say("Writing …")):
        cards = runs.cards(pair, batch, outcomes, seed)
    st.html(cached_figure(four, cards))
    st.caption(say(words.WHAT_THE_MASK_CHANGES))
    choices.write(pair, batch)


@st.fragment
def proof(pair: TwinPair, batch: TokenBatch) -> None:
    """What moves when a later token changes, with the mask and without."""
    choices.keep()
    trained, position, token = choices.choose_change(pair, batch)
    with guarded(say("Changing a token …")):
        changes = runs.change(pair, batch, trained, position, token)
    st.html(words.paragraph(words.proof_sentence(changes, token == int(batch.ids[0, position]))))
    moved = {say(words.MOVED[run]): change.logits for run, change in changes.items()}
    figure = cached_figure(change_bars, moved, batch.pieces[0], position)
    st.plotly_chart(figure, key="proof_figure", config=page.CHART, alt=words.proof_alt(changes))
    st.caption(say(words.PROOF))
    choices.write(pair, batch)


def seen(pair: TwinPair, batch: TokenBatch, outcomes: Outcomes) -> None:
    """What the steps have shown, in three lines."""
    with guarded(say("Changing a token …")):
        changes = runs.change(pair, batch, True, *choices.changed(pair, batch))
    items = Markup().join(Markup("<li>{}</li>").format(line) for line in words.seen(outcomes, changes))
    st.markdown("#### " + say("What you have seen"))
    st.html(Markup("<ol>{}</ol>").format(items))
