"""Ablation: what a model predicts without some of its heads."""

import streamlit as st

from i18n import N_, say
from ui import page

page.set_up(N_("Ablation"))  # first, so that the browser has something to fetch while torch is imported

from model.heads.ablation import AblatedHeads, answer, next_token_id, outcome
from serving.job import ModelRef
from ui import controls, explain, results, run_view
from ui.ablation import METHOD_PHRASES, METHOD_PHRASES_PLURAL, AblationLink, choose_heads, choose_way, mask_name, show
from ui.guard import guarded
from ui.heads import query
from ui.results import cached_figure
from viz import ablation
from viz.numbers import Candidate, loss_figure, next_token_table

model, text = controls.open_page(AblationLink.restore)
reading, row = controls.open_text(model, text)
batch = reading.batch
if model.kind == "encoder" or not model.predicts:
    controls.refuse(model, AblationLink, say(controls.CHOOSE_ANOTHER_MODEL, why=explain.no_predictions(model)))

spec = controls.open_masks(say("Ablation"), model, batch, row)
sentence_slot = st.empty()
with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
    attention = controls.choose_attention([name for name in model.attentions if name != "cross"])
    layers, heads = run_view.shape(model, attention)
    with st.container(width=420):
        chosen = choose_heads(model, attention, layers, heads)
    way, mask = choose_way(spec, attention)
    query_slot = st.container(width=170)
off = AblatedHeads(chosen, way, mask, attention)
predicting = "decoder" if "decoder" in model.attentions else attention
with guarded(say("Running {model} …", model=explain.title_of(model))):
    now, _ = run_view.run_pair(model, batch, spec, row, predicting)
with query_slot:
    position = query.choose(now)
controls.share(AblationLink, model)

with guarded(say("Running with these heads off …")):
    follows = next_token_id(batch, row, position)
    predicted = now.predictions(position)
    answered = results.ask(answer, ModelRef.of(model), now.run, row, position, follows)
    assert predicted is not None
    without = results.ask(outcome, ModelRef.of(model), batch, spec, row, position, off, answered.target)
pieces = batch.pieces[row]
target = ablation.PredictionTarget(answered.label, pieces[position], position, follows is not None)
names = [run_view.name_of(model, attention, *head) for head in chosen]
chances = answered.log_probability, without.log_probability
templates = METHOD_PHRASES_PLURAL if len(chosen) > 1 else METHOD_PHRASES
off_words = say(templates[way], what=say(mask_name(st.session_state.mask_off, spec, attention)))
sentence = ablation.sentence(names, off_words, target, *chances)
candidates = [Candidate(*one) for one in without.candidates]
changed = run_view.RowPredictions(without.losses, candidates)
moved = explain.describe_change(pieces, position, changed, predicted, target.target) if chosen else ""
sentence_slot.html(page.sentence(f"{sentence} {moved}"))

both = (say("heads off"), say("all heads"))
tokens, losses = st.columns([1, 1.4], gap="large")
with tokens:
    st.html(cached_figure(next_token_table, candidates, predicted.candidates, changed=bool(chosen), names=both))
with losses:
    curves = (without.losses, predicted.losses)
    caption = say("Loss per token, with heads off and with all heads") if chosen else ""
    figure = cached_figure(loss_figure, *curves, pieces, changed=bool(chosen), names=both)
    explain.show_losses(figure, curves, changed=bool(chosen), names=both, caption=caption, about=say(explain.NATS))

st.markdown("#### " + say("Which head matters most?"))
about = say(
    "Each cell: the increase in the loss of {token} when that head alone is turned off, as chosen above. Colours "
    "follow the square root.",
    token=ablation.target_description(target),
)
st.caption(about)
with guarded():
    show(now, batch, position, answered.target, off)
