"""Why causal: two twins, one trained without the causal mask, and what that does to it."""

import streamlit as st

from ui import page

page.set_up("Why causal")  # first, so that the browser has something to fetch while torch is imported

from model.why_causal import twins
from model.why_causal.twins import COMBINATIONS
from ui import explain
from ui import head as head_picture
from ui.drawn import drawn
from ui.guard import guarded
from ui.why_causal import choices, live_training, runs, words
from viz.head import head_figure, head_range
from viz.why_causal.charts import change_bars, loss_curves, token_losses
from viz.why_causal.tables import copies, four

choices.restore()
with st.sidebar:
    text = choices.choose_text()
title, sentence, notes = st.empty(), st.empty(), st.container()
title.markdown("### Why causal")

with guarded():
    training = runs.curves()
sentence.html(words.paragraph(words.trained(training)))
left, right = st.columns([1, 1.5], gap="large")
with left:
    st.markdown("#### How they were trained")
    figure = drawn(loss_curves, words.training_lines(training), unit="nats a token", height=400)
    st.plotly_chart(figure, key="training_figure", config=page.CHART, alt=words.training_alt(training))
    training_caption = st.empty()

heads, losses = st.container(), st.container()  # drawn once the text is read: what needs no text is there before
st.markdown("#### Train it yourself")
live_training.show()
if not text.strip():
    right.info("Type a text on the left: the twins read it with the causal mask and without.")
    choices.share_choices({"why_head": None, "why_place": None, "why_token": None})
    st.stop()

with right, guarded("Reading with the twins …"):
    pair = runs.pair()
    batch = pair.encode(text)
    looks = runs.run_all(pair, batch)
    outcomes = {one: runs.outcome(look) for one, look in looks.items()}
size = f"two twins · {pair.models[True].describe().parameters / 1e6:.2f} M parameters each"
title.markdown(f"### Why causal\u2002:small[{size} · {int(batch.keep.sum())} tokens]")
sentence.html(words.paragraph(words.sentence(training, outcomes, batch, vocabulary=len(pair.words()))))
training_caption.caption(words.training_caption(training, pair.context))
if note := words.cut_note(pair, batch):
    notes.warning(note)

with right:
    st.markdown("#### What they can do")
    seed = choices.choose_writing()
    written = st.container()

with heads:
    st.markdown("#### The heads that copy the answer")
    one = choices.choose_combination()
    first = choices.first_choices(pair, batch, outcomes)
    layer, head = choices.choose_head(one, outcomes)
    view = looks[one].head(layer, head)
    picture, beside = st.columns([2.2, 1], gap="large")
    with picture:
        st.html(words.paragraph(words.head_sentence(outcomes, one, (layer, head))))
        alt = explain.head_alt(f"L{layer} H{head}", view, False)
        head_picture.show(drawn(head_figure, view, dark=page.is_dark()), alt, room="one", on_pick=None)
        st.html(drawn(explain.key, [view], head_range(view)))
        st.caption(words.LABELS)
    with beside:
        st.markdown("Copy score: a head's mean weight on the token one to the right, t + 1")
        for other in COMBINATIONS:
            chosen = (layer, head) if other == one else None
            st.caption(f"trained {twins.with_or_without(other.trained)}, run {twins.with_or_without(other.run)}")
            st.html(copies(outcomes[other].copies, chosen, blocked=other.run))

with losses:
    st.markdown("#### The loss of every token")
    figure = drawn(token_losses, words.loss_lines(outcomes), batch.pieces[0])
    st.plotly_chart(figure, key="loss_figure", config=page.CHART, alt=words.loss_alt(outcomes))

st.markdown("#### Proof: change a later token")
trained, place, token = choices.choose_change(pair, batch, first)
with guarded():
    changes = runs.change(pair, batch, trained, place, token)
st.html(words.paragraph(words.proof_sentence(changes, token == int(batch.ids[0, place]))))
moved = {f"run {twins.with_or_without(run)} the mask": change.logits for run, change in changes.items()}
figure = drawn(change_bars, moved, batch.pieces[0], place)
st.plotly_chart(figure, key="proof_figure", config=page.CHART, alt=words.proof_alt(changes))
st.caption(words.PROOF)
choices.share_choices(first)

with written:  # last: it takes the longest
    with guarded("Writing …"):
        cards = runs.cards(pair, batch, outcomes, seed)
    st.html(four(cards))
    st.caption(words.WHAT_THE_MASK_CHANGES)
