"""The page's sections that have choices of their own. No other depends on these: each runs again alone."""

import streamlit as st

from model.text import TokenBatch
from model.why_causal import twins
from model.why_causal.twins import COMBINATIONS, Combination, Outcome, Pair
from ui import explain, page
from ui import head as head_picture
from ui.drawn import drawn
from ui.guard import guarded
from ui.run_view import RunView
from ui.why_causal import choices, runs, words
from viz.head import head_figure, head_range
from viz.why_causal.charts import change_bars
from viz.why_causal.tables import copies, four

Outcomes = dict[Combination, Outcome]


@st.fragment
def heads(pair: Pair, batch: TokenBatch, looks: dict[Combination, RunView], outcomes: Outcomes) -> None:
    """The head that copies the answer, and every head's copy score."""
    choices.keep()
    one = choices.choose_combination()
    layer, head = choices.choose_head(one, outcomes)
    view = looks[one].head(layer, head)
    picture, beside = st.columns([2.2, 1], gap="large")
    with picture:
        st.html(words.paragraph(words.head_sentence(outcomes, one, (layer, head))))
        alt = drawn(explain.head_alt, f"L{layer} H{head}", view, False)
        head_picture.show(drawn(head_figure, view, dark=page.is_dark()), alt, room="one", on_pick=None)
        st.html(drawn(explain.key, [view], head_range(view)))
        st.caption(words.LABELS)
    with beside:
        st.markdown("Copy score: a head's mean weight on the token one to the right, t + 1")
        for other in COMBINATIONS:
            chosen = (layer, head) if other == one else None
            st.caption(f"trained {twins.with_or_without(other.trained)}, run {twins.with_or_without(other.run)}")
            st.html(drawn(copies, outcomes[other].copies, chosen, blocked=other.run))
    choices.write(pair, batch, outcomes)


@st.fragment
def proof(pair: Pair, batch: TokenBatch, outcomes: Outcomes) -> None:
    """What moves when a later token changes, with the mask and without."""
    choices.keep()
    trained, place, token = choices.choose_change(pair, batch)
    with guarded():
        changes = runs.change(pair, batch, trained, place, token)
    st.html(words.paragraph(words.proof_sentence(changes, token == int(batch.ids[0, place]))))
    moved = {f"run {twins.with_or_without(run)} the mask": change.logits for run, change in changes.items()}
    figure = drawn(change_bars, moved, batch.pieces[0], place)
    st.plotly_chart(figure, key="proof_figure", config=page.CHART, alt=words.proof_alt(changes))
    st.caption(words.PROOF)
    choices.write(pair, batch, outcomes)


@st.fragment
def writing(pair: Pair, batch: TokenBatch, outcomes: Outcomes) -> None:
    """What the four combinations make of the text, and write on."""
    choices.keep()
    seed = choices.choose_writing()
    with guarded("Writing …"):
        cards = runs.cards(pair, batch, outcomes, seed)
    st.html(drawn(four, cards))
    st.caption(words.WHAT_THE_MASK_CHANGES)
    choices.write(pair, batch, outcomes)
