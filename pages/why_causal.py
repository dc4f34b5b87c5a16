"""Why causal: two twins, one trained without the causal mask, and what that does to it."""

import streamlit as st

from ui import page

page.set_up("Why causal")  # first, so that the browser has something to fetch while torch is imported

from model.why_causal import twins
from model.why_causal.twins import COMBINATIONS, Combination
from ui import explain, models
from ui.markdown import escaped
from ui.why_causal import live_training
from ui.why_causal import twins as why_causal
from viz.head import head_figure, head_range
from viz.why_causal.charts import change_bars, loss_curves, token_losses
from viz.why_causal.tables import copies, four

why_causal.seed()
live_training.seed()

with st.sidebar:
    text = why_causal.choose_text()
try:
    with st.spinner("Loading the twins …", show_time=True):
        pair, training = why_causal.pair(), why_causal.curves()
    if not text.strip():
        st.info("Type a text on the left: the twins read it with the causal mask and without.")
        st.stop()
    batch = pair.encode(text)
    traces = {one: pair.run(batch, one) for one in COMBINATIONS}
    outcomes = {one: twins.outcome(pair.models[one.trained], trace) for one, trace in traces.items()}
    scores = {one: twins.copy_scores(trace) for one, trace in traces.items()}
except models.TROUBLE as error:
    st.error(f"{escaped(str(error))}.")
    st.stop()

size = f"two twins · {pair.models[True].describe().parameters / 1e6:.2f} M parameters each"
st.markdown(f"### Why causal\u2002:small[{size} · {int(batch.keep.sum())} tokens]")
unmasked = Combination(trained=False, run=False)
st.html(f'<p class="sentence">{why_causal.sentence(training, outcomes, scores[unmasked])}</p>')
if note := why_causal.cut_note(pair, batch):
    st.warning(note)

left, right = st.columns([1, 1.5], gap="large")
with left:
    st.markdown("##### How they were trained")
    figure = loss_curves(why_causal.training_lines(training), unit="nats a token", height=400)
    st.plotly_chart(figure, key="training_figure", config=page.CHART, alt=why_causal.training_alt(training))
    st.caption(why_causal.training_caption(training, pair.context))
with right:
    st.markdown("##### What they can do")
    seed = why_causal.choose_writing()
    with st.spinner("Writing …", show_time=True):
        cards = why_causal.cards(pair, batch, outcomes, seed)
    st.html(four(cards))
    st.caption(why_causal.WHAT_THE_MASK_CHANGES)

st.markdown("##### The heads that copy the answer")
one, (layer, head) = why_causal.choose_head(scores)
view = why_causal.head_view(pair, traces[one], one, (layer, head))
left, right = st.columns([2.2, 1], gap="large")
with left:
    st.html(f'<p class="sentence">{why_causal.head_sentence(scores, one, (layer, head))}</p>')
    figure = head_figure(view, dark=page.is_dark())
    alt = explain.head_alt(f"L{layer} H{head}", view, False)
    st.plotly_chart(figure, key="head_figure", config=page.CHART, alt=alt)
    st.html(explain.key([view], head_range(view)))
with right:
    st.markdown("Copy score: a head's mean weight on the token one to the right, t + 1")
    for other in COMBINATIONS:
        chosen = (layer, head) if other == one else None
        st.caption(f"trained {twins.with_or_without(other.trained)}, run {twins.with_or_without(other.run)}")
        st.html(copies(scores[other], chosen, blocked=other.run))
st.markdown("##### The loss of every token")
figure = token_losses(why_causal.loss_lines(outcomes), batch.pieces[0])
st.plotly_chart(figure, key="loss_figure", config=page.CHART, alt=why_causal.loss_alt(outcomes))

st.markdown("##### Train it yourself")
live_training.show()

st.markdown("##### Proof: change a later token")
trained, place, token = why_causal.choose_change(pair, batch)
model = pair.models[trained]
changes = {run: twins.change(model, batch, place, token, causal=run) for run in (True, False)}
same = token == int(batch.ids[0, place])
st.html(f'<p class="sentence">{why_causal.proof_sentence(changes, same)}</p>')
moved = {f"run {'with' if run else 'without'} the mask": change.logits for run, change in changes.items()}
figure = change_bars(moved, batch.pieces[0], place)
st.plotly_chart(figure, key="proof_figure", config=page.CHART, alt=why_causal.proof_alt(changes))
st.caption(why_causal.PROOF)
