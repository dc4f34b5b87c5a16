"""Padding: a batch of the reader's sentences, padded every way there is, beside each sentence alone."""

import streamlit as st

from ui import page

page.set_up("Padding")  # first, so that the browser has something to fetch while torch is imported

from ui import controls, explain, notes
from ui.drawn import drawn
from ui.guard import guarded
from ui.markdown import escaped
from ui.padding import choosing, lines, runs, ways
from viz.formats import amount
from viz.padding import words
from viz.padding.grid import grid
from viz.padding.tables import texts_table

model, text = controls.open_page()
if model.kind == "encoder-decoder":
    st.info(choosing.ENCODER_DECODER.format(explain.title_of(model)))
    st.stop()

title = st.empty()
switches, sentence_place, noted = st.container(), st.empty(), st.container()
with guarded():
    found = lines.lines(model, text)
    own = runs.own_positions(model, found.texts)
with switches:
    choice, causal = choosing.choose(model, own)
with guarded(f"Running {explain.title_of(model)} …"):
    seen = runs.padded(model, found, choice, causal, own)
texts, shown, cells, tolerance = seen.texts, seen.way, seen.cells, seen.tolerance
what = "logits" if model.predicts else "last states"
title.markdown(f"### Padding\u2002:small[{explain.title_of(model)} · {len(texts)} sentences · {cells} cells each]")
sentence = drawn(words.sentence, texts, shown, what)
sentence_place.html(f'<p class="sentence">{sentence}</p>')
with noted:
    if found.ours:
        lines.offer_ours(found)
    notes.show([*map(escaped, found.notes), *choosing.notes(model)])

st.html(drawn(grid, texts, choice.mask, tolerance, what))

left, right = st.columns([1.1, 1], gap="large")
with left:
    st.markdown("#### Each sentence against itself alone")
    st.html(drawn(texts_table, texts, tolerance))
    if texts[0].alone is not None:
        st.caption(escaped(words.reading(texts, choice.side)))
with right:
    st.markdown("#### Every way to pad, at once")
    with guarded("Running every other way to pad …"):
        every = runs.ways(model, found, causal, own)
    ways.show(every, shown, len(texts), cells)
    st.caption(
        f"Press a way to see it above. Its number is the largest difference between any sentence's {what} in the batch "
        f"and alone. Up to {amount(tolerance)} it counts as correct: float32 rounds about as much when the same sums "
        "run in another order. Framed: the way shown."
    )
sentence_place.html(f'<p class="sentence">{sentence} {words.advice(every, shown, cells)}</p>')

st.markdown("#### Why")
st.html(words.listed(drawn(words.reasons, every, causal=causal, cells=cells)))
choosing.share(model)
