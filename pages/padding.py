"""Padding: a batch of the reader's sentences, padded every way there is, beside each sentence alone."""

import streamlit as st

from ui import page

page.set_up("Padding")  # first, so that the browser has something to fetch while torch is imported

from ui import controls, explain, padding
from ui.guard import guarded
from ui.markdown import escaped
from viz.padding import words
from viz.padding.grid import amount, grid
from viz.padding.tables import texts_table, ways_table

model, text = controls.open_page()
if model.kind == "encoder-decoder":
    st.info(padding.ENCODER_DECODER.format(explain.title_of(model)))
    st.stop()

title = st.empty()
switches, sentence_place, notes = st.container(), st.empty(), st.container()
with guarded():
    lines = padding.lines(model, text)
    own = padding.own_positions(model, lines.texts)
with switches:
    choice, causal = padding.choose(model, own)
with guarded(f"Running {explain.title_of(model)} …"):
    by_themselves = padding.alone(model, lines.texts, causal)
    comparison = padding.compare(model, lines.texts, choice, causal)

texts = padding.padded_texts(model, lines, comparison, by_themselves, own)
shown = padding.way(model, lines.texts, choice, causal, own)
cells, tolerance = len(texts[0].pieces), by_themselves.tolerance
what = "logits" if model.predicts else "last states"
title.markdown(f"### Padding\u2002:small[{explain.title_of(model)} · {len(texts)} sentences · {cells} cells each]")
sentence = words.sentence(texts, shown, what)
sentence_place.html(f'<p class="sentence">{sentence}</p>')
with notes:
    for note in lines.notes:
        st.warning(note)
    if lines.ours:
        padding.offer_ours(lines)
    if what != "logits" or model.kind == "encoder":
        st.caption(padding.NO_PREDICTIONS["encoder" if model.predicts else "bare"])

st.html(grid(texts, choice.mask, tolerance, what))

left, right = st.columns([1.1, 1], gap="large")
with left:
    st.markdown("##### Each sentence against itself alone")
    st.html(texts_table(texts, tolerance))
    if texts[0].alone is not None:
        st.caption(escaped(words.reading(texts, choice.side)))
with right:
    st.markdown("##### Every way to pad, at once")
    with guarded("Running every other way to pad …"):
        ways = padding.ways(model, lines.texts, causal, own)
    st.html(ways_table(ways, shown, len(texts), cells))
    st.caption(
        f"The largest difference between any sentence's {what} in the batch and alone, under the same causal setting. "
        f"Correct: at most {amount(tolerance)}, a ten-thousandth of their largest size, {by_themselves.largest:.1f}. "
        "So much float32 may round when the same sums run in another order. Framed: the way shown above."
    )
sentence_place.html(f'<p class="sentence">{sentence} {words.advice(ways, shown, cells)}</p>')

st.markdown("##### Why")
st.html(words.listed(words.reasons(ways, causal=causal, cells=cells)))
padding.share(model)
