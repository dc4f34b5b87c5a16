"""Why causal: two equal models, one trained without the causal mask, and what that does to it, in five steps."""

import streamlit as st

from i18n import N_, large, say, say_count
from ui import page

page.set_up(N_("Why causal"))  # first, so that the browser has something to fetch while torch is imported

from model.text import beginning as cut_from
from ui import link
from ui.guard import guarded
from ui.markdown import escaped
from ui.why_causal import controls, live_training, steps
from ui.why_causal.controls import WhyCausalLink

WhyCausalLink.restore()
with st.sidebar:
    text = controls.choose_text()
title = st.empty()
title.markdown(page.heading(say("Why causal")))
step = controls.choose_step()
notes = st.container()
with guarded():
    training = controls.curves()
beginning = steps.trained(training) if step == controls.LOSS else None  # draw what needs no text before the rest
if step == controls.TRAINING:
    live_training.show()
else:
    live_training.keep_training_alive()

slot = beginning.right if beginning else st.container()
if not text.strip():
    slot.info(say("Type a text on the left: both models read it, with and without the causal mask."))
    with st.sidebar:
        link.share(WhyCausalLink.of_choices(why_head=None, why_place=None, why_token=None))
    st.stop()
with slot, guarded(say("Running both models …")):
    pair = controls.pair()
    batch = pair.encode(text)
    looks = controls.run_all(pair, batch)
    outcomes = controls.outcomes(looks) if step != controls.PROOF else {}
parameters = say("two models · {count} parameters each", count=large(pair.models[True].describe().parameters))
tokens = say_count("{count} token", "{count} tokens", int(batch.keep.sum()))
title.markdown(page.heading(say("Why causal"), parameters, tokens))
if cut := batch.cut[0]:
    note = say_count(
        "These models read at most {most} tokens. The text's last character is cut: “{beginning}”.",
        "These models read at most {most} tokens. The text's last {count} characters are cut, from “{beginning}” on.",
        len(cut), most=pair.context, beginning=escaped(cut_from(cut)),
    )  # fmt: skip
    notes.warning(note)

if beginning:
    steps.losses(beginning, training, pair, batch, outcomes)
elif step == controls.HEADS:
    steps.heads(pair, batch, looks, outcomes)
elif step == controls.WRITTEN:
    steps.writing(pair, batch, outcomes)
elif step == controls.PROOF:
    steps.proof(pair, batch)
else:
    steps.seen(pair, batch, outcomes)
with st.sidebar:
    link.share(controls.chosen_link(pair, batch))
