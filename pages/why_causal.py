"""Why causal: two twins, one trained without the causal mask, and what that does to it."""

import streamlit as st

from ui import page

page.set_up("Why causal")  # first, so that the browser has something to fetch while torch is imported

from ui.drawn import drawn
from ui.guard import guarded
from ui.why_causal import choices, live_training, runs, sections, words
from viz.why_causal.charts import loss_curves, token_losses

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
    choices.share()
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
    written = st.container()

with heads:
    st.markdown("#### The heads that copy the answer")
    sections.heads(pair, batch, looks, outcomes)

with losses:
    st.markdown("#### The loss of every token")
    figure = drawn(token_losses, words.loss_lines(outcomes), batch.pieces[0])
    st.plotly_chart(figure, key="loss_figure", config=page.CHART, alt=words.loss_alt(outcomes))

st.markdown("#### Proof: change a later token")
sections.proof(pair, batch, outcomes)

with written:  # last: it takes the longest
    sections.writing(pair, batch, outcomes)
choices.share_choices(pair, batch, outcomes)
