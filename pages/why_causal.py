"""Why causal: two twins, one trained without the causal mask, and what that does to it, in five steps."""

import streamlit as st

from i18n import N_, say
from ui import page

page.set_up(N_("Why causal"))  # first, so that the browser has something to fetch while torch is imported

from ui.guard import guarded
from ui.why_causal import choices, live_training, runs, sections, words

choices.restore()
with st.sidebar:
    text = choices.choose_text()
title = st.empty()
title.markdown("### " + say("Why causal"))
step = choices.choose()
notes = st.container()
with guarded():
    training = runs.curves()
beginning = sections.trained(training) if step == choices.LOSS else None  # what needs no text is there before the rest
if step == choices.TRAINING:
    live_training.show()
else:
    live_training.go_on_elsewhere()

slot = beginning.beside if beginning else st.container()
if not text.strip():
    slot.info(say("Type a text on the left: the twins read it with and without the causal mask."))
    choices.share()
    st.stop()
with slot, guarded(say("Running both twins …")):
    pair = runs.pair()
    batch = pair.encode(text)
    looks = runs.run_all(pair, batch)
    outcomes = runs.outcomes(looks) if step != choices.PROOF else {}
title.markdown(f"### {say('Why causal')}\u2002:small[{words.size(pair, batch)}]")
if note := words.cut_note(pair, batch):
    notes.warning(note)

if beginning:
    sections.losses(beginning, training, pair, batch, outcomes)
elif step == choices.HEADS:
    sections.heads(pair, batch, looks, outcomes)
elif step == choices.WRITTEN:
    sections.writing(pair, batch, outcomes)
elif step == choices.PROOF:
    sections.proof(pair, batch)
else:
    sections.seen(pair, batch, outcomes)
choices.share_choices(pair, batch)
