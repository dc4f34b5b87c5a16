"""Padding: a batch of the user's sentences under all padding settings, beside each sentence alone."""

import streamlit as st

from ui import page

page.set_up("Padding")  # first, so that the browser has something to fetch while torch is imported

from i18n import say, say_all, say_count, together
from ui import controls, explain, padding, widgets
from ui.guard import guarded
from ui.markdown import escaped
from ui.results import cached_figure
from viz.html import amount
from viz.padding import words
from viz.padding.tables import LOGITS, STATES, grid, texts_table

model, text = controls.open_page()
if model.kind == "encoder-decoder":
    refused = say(padding.ENCODER_DECODER, model=explain.title_of(model))
    controls.refuse(model, padding.PaddingLink, refused)

title = st.empty()
switches, sentence_slot, noted = st.container(), st.empty(), st.container()
with guarded():
    found = padding.padded_texts(model, text)
own = not model.takes_positions
with switches:
    choice, causal = padding.choose(model, own)
with guarded(say("Running {model} …", model=explain.title_of(model))):
    runs = padding.PaddingRuns(model, found, causal, own)
    seen = runs.padded(choice)
texts, shown, cells, tolerance = seen.texts, seen.way, seen.cells, seen.tolerance
what = LOGITS if model.predicts else STATES
sentences = say_count("{count} sentence", "{count} sentences", len(texts))
size = say_count("{count} cell each", "{count} cells each", cells)
title.markdown(page.heading(say("Padding"), explain.title_of(model), sentences, size))
sentence = cached_figure(words.sentence, texts, shown, what)
sentence_slot.html(page.sentence(sentence))
with noted:
    if found.ours:
        shown_lines = say_all([f"“{text}”" for text in padding.OURS])
        words_of = [say(padding.ADDED_LINES_NOTE, lines=shown_lines), say("Type your own on the left, one per line.")]
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(together(words_of), width=720)
            st.button(say("Edit these lines"), on_click=st.session_state.update, kwargs={"text": found.whole})
    widgets.show_notes([*map(escaped, found.notes), *padding.notes(model)])

st.html(cached_figure(grid, texts, choice.mask, tolerance, what))

left, right = st.columns([1.1, 1], gap="large")
with left:
    st.markdown("#### " + say("Each sentence compared with its run alone"))
    st.html(cached_figure(texts_table, texts, tolerance))
    if texts[0].alone is not None:
        st.caption(escaped(words.reading(texts, choice.side, attention_alone=not model.describe().other_layers())))
with right:
    st.markdown("#### " + say("All padding settings"))
    with guarded(say("Running all other padding settings …")):
        every = runs.ways()
    padding.show_ways(every, shown, len(texts), cells)
    about = say(
        "Click a setting to see it above. Its number is the largest difference between any sentence's {what} in the "
        "batch and alone. Up to {tolerance} it counts as correct: a different summation order in float32 causes about "
        "as much rounding. Framed: the setting shown.",
        what=say(what),
        tolerance=amount(tolerance),
    )
    st.caption(about)
sentence_slot.html(page.sentence(f"{sentence} {words.advice(every, shown, cells)}"))

st.markdown("#### " + say("Why"))
local = padding.is_local(model)
why = cached_figure(words.reasons, every, causal=causal, cells=cells, tolerance=tolerance, local=local)
st.html(words.listed(why))
controls.share(padding.PaddingLink, model)
