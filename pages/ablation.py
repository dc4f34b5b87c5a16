"""Heads off: what a model predicts without some of its heads."""

import streamlit as st

from model.language import N_, say
from ui import page

page.set_up(N_("Heads off"))  # first, so that the browser has something to fetch while torch is imported

from model.heads.ablation import HeadsOff, following, outcome
from model.jobs.job import ModelRef
from ui import controls, explain, query, results, run_view
from ui.ablation import choosing, ranking
from ui.drawn import drawn
from ui.guard import guarded
from viz import ablation
from viz.loss_words import loss_words
from viz.numbers import Candidate, loss_figure, next_token_table

model, text = controls.open_page(choosing.restore)
reading, row = controls.open_text(model, text)
batch = reading.batch
if model.kind == "encoder" or not model.predicts:
    st.info(explain.NO_PREDICTIONS["encoder" if model.kind == "encoder" else "decoder"])
    st.stop()

spec = controls.open_masks(say("Heads off"), model, batch, row)
sentence_place = st.empty()
with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
    attention = controls.choose_attention([name for name in model.attentions if name != "cross"])
    layers, heads = run_view.shape(model, attention)
    with st.container(width=420):
        chosen = choosing.choose_heads(model, attention, layers, heads)
    way, mask = choosing.choose_way(spec)
    query_place = st.container(width=170)
off = HeadsOff(chosen, way, mask, attention)
predicting = "decoder" if "decoder" in model.attentions else attention
with guarded(say("Running {model} …", model=explain.title_of(model))):
    now, _ = run_view.run_pair(model, batch, spec, row, predicting)
with query_place:
    place = query.choose(now)
choosing.share(model)

with guarded(say("Running it with these heads off …")):
    all_on = HeadsOff((), attention=attention)
    follows = following(batch, row, place)
    asked_of = (outcome, ModelRef.of(model), batch, spec, row, place)
    whole = results.ask(*asked_of, all_on, follows)
    without = results.ask(*asked_of, off, whole.target)
pieces = batch.pieces[row]
asked = ablation.Asked(whole.label, pieces[place], place, follows is not None)
names = run_view.layer_names(model, attention)
sentence = ablation.sentence(
    [f"{names[layer]} H{head}" for layer, head in chosen], choosing.in_words(off), asked,
    whole.log_probability, without.log_probability,
)  # fmt: skip
moved = loss_words(without.losses, whole.losses, list(pieces)) if chosen else ""
sentence_place.html(f'<p class="sentence">{sentence} {moved}</p>')

both = (say("heads off"), say("all heads"))
tokens, losses = st.columns([1, 1.4], gap="large")
with tokens:
    lists = [[Candidate(*one) for one in some.candidates] for some in (without, whole)]
    st.html(drawn(next_token_table, *lists, changed=bool(chosen), names=both))
with losses:
    curves = (without.losses, whole.losses)
    st.caption(say("Loss per token, with heads off and with all heads"), help=say(explain.NATS))
    figure = drawn(loss_figure, *curves, pieces, changed=bool(chosen), names=both)
    st.plotly_chart(figure, key="loss_figure", config=page.CHART, alt=drawn(explain.loss_alt, *curves))

st.markdown("#### " + say("Which head does most?"))
st.caption(
    say("Each head off alone, in the way chosen above: what the loss rises by, of {token}. Colours go with the square "
        "root of that.", token=ablation.what_is_asked(asked))
)  # fmt: skip
with guarded():
    ranking.show(now, batch, place, whole.target, off, names, heads)
