"""Padding: a batch of the reader's sentences, padded every way there is, beside each sentence alone."""

import streamlit as st

from ui import page

page.set_up("Padding")  # first, so that the browser has something to fetch while torch is imported

from i18n import say, say_count
from ui import controls, explain
from ui.guard import guarded
from ui.markdown import escaped
from ui.padding import lines, runs
from ui.results import cached_figure
from ui.widgets import choices
from viz.html import amount
from viz.padding import words
from viz.padding.grid import LOGITS, STATES, grid
from viz.padding.tables import texts_table

model, text = controls.open_page()
if model.kind == "encoder-decoder":
    st.info(say(lines.ENCODER_DECODER, model=explain.title_of(model)))
    st.stop()

title = st.empty()
switches, sentence_place, noted = st.container(), st.empty(), st.container()
with guarded():
    found = lines.lines(model, text)
    own = runs.own_positions(model, found.texts)
with switches:
    choice, causal = lines.choose(model, own)
with guarded(say("Running {model} …", model=explain.title_of(model))):
    seen = runs.padded(model, found, choice, causal, own)
texts, shown, cells, tolerance = seen.texts, seen.way, seen.cells, seen.tolerance
what = LOGITS if model.predicts else STATES
size = [
    explain.title_of(model),
    say_count("{count} sentence", "{count} sentences", len(texts)),
    say_count("{count} cell each", "{count} cells each", cells),
]
title.markdown("### " + say("Padding") + f"\u2002:small[{' · '.join(size)}]")
sentence = cached_figure(words.sentence, texts, shown, what)
sentence_place.html(f'<p class="sentence">{sentence}</p>')
with noted:
    if found.ours:
        lines.offer_ours(found)
    choices.show([*map(escaped, found.notes), *lines.notes(model)])

st.html(cached_figure(grid, texts, choice.mask, tolerance, what))

left, right = st.columns([1.1, 1], gap="large")
with left:
    st.markdown("#### " + say("Each sentence compared with its run alone"))
    st.html(cached_figure(texts_table, texts, tolerance))
    if texts[0].alone is not None:
        st.caption(escaped(words.reading(texts, choice.side)))
with right:
    st.markdown("#### " + say("All padding settings"))
    with guarded(say("Running all other padding settings …")):
        every = runs.ways(model, found, causal, own)
    runs.show(every, shown, len(texts), cells)
    st.caption(
        say(
            "Click a setting to see it above. Its number is the largest difference between any sentence's {what} in "
            "the batch and alone. Up to {tolerance} it counts as correct: a different summation order in float32 "
            "causes about as much rounding. Framed: the setting shown.",
            what=say(what), tolerance=amount(tolerance),
        )
    )  # fmt: skip
sentence_place.html(f'<p class="sentence">{sentence} {words.advice(every, shown, cells)}</p>')

st.markdown("#### " + say("Why"))
st.html(words.listed(cached_figure(words.reasons, every, causal=causal, cells=cells)))
lines.share(model)
