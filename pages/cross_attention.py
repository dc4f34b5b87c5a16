"""Cross-attention: a decoder that attends to a source while it generates."""

import streamlit as st

from ui import page

page.set_up("Cross-attention")  # first, so that the browser has something to fetch while torch is imported

from i18n import say, together
from model.cross_attention.dates import DatesModel
from model.text import rows_of
from ui import controls, explain, run_view
from ui import cross_attention as ours
from ui.guard import guarded
from ui.sidebar import models
from ui.widgets import one_of

chosen = controls.open_model(ours.DatesLink.restore)
with guarded():
    model = chosen if chosen.kind == "encoder-decoder" else models.get("dates")
if model is not chosen:
    tell = st.sidebar.caption if chosen.name == "story" else st.info
    more = [] if models.settings().models else [say(ours.FROM_THE_HUB)]
    tell(together([say(ours.NO_SOURCE, model=explain.title_of(chosen)), *more]))
with st.sidebar:
    if isinstance(model, DatesModel):
        state = st.session_state
        typed = lambda: state.update(written_date_text=state.date_text)  # noqa: E731
        st.text_area(say("Dates in English, one per line"), key="date_text", height=100, on_change=typed)
        take = lambda example: state.update(date_text=example)  # noqa: E731
        controls.choose_example(ours.EXAMPLES, "date_example", "date_text", take)
        text, targets = controls.read(st.session_state.date_text), None
    else:
        text = controls.choose_text()
        targets = controls.choose_target(model, text)
controls.ask_for_text(text)

title, switches = st.columns([1.4, 1], vertical_alignment="center")
with switches, st.container(horizontal=True, horizontal_alignment="right", gap="medium"):
    later = say("On: no output token sees a later one.")
    causal = st.toggle(say("Causal (decoder)"), key="cross_causal", width="content", help=later)
    short = say("On: no token attends to the padding of a short source.")
    padding = st.toggle(say("Padding (source)"), key="cross_padding", width="content", help=short)
    spec = model.standard.replace(causal=causal, padding=padding)
sentence_slot, notes = st.container(), st.container()
with st.sidebar:
    added = ours.choose_added_line(model, text)
with sentence_slot, guarded(say("Encoding and decoding with {model} …", model=explain.title_of(model))):
    if added is None:
        lines = ours.SourceTexts(run_view.tokenize(model, text, "right", targets), 0)
    else:  # the last row is the one added by the page
        both = f"{rows_of(text, 1)[0][0]}\n{added}"
        reading = run_view.tokenize(model, both, "right", targets and [targets[0], targets[0]])
        lines = ours.SourceTexts(reading, 1)
    with st.sidebar:
        row = controls.choose_row(lines.own_rows, "cross_row")
    parts = {part: run_view.run_pair(model, lines.reading.batch, spec, row, part) for part in ours.PARTS}
source = parts["cross"][0].run.keys
title.markdown(page.heading(say("Cross-attention"), explain.title_of(model), explain.size(source, row)))
for note in ours.notes(model, lines, row):
    notes.caption(note)

changed = spec != model.standard
with guarded():
    ours.alignment(model, parts["cross"], changed=changed)
if isinstance(model, DatesModel):
    with sentence_slot, guarded(say("Writing …")):
        st.html(ours.verdict(model, lines, spec, parts["decoder"][0]))
shown = one_of(say("Masks of the heatmaps"), ours.SHOWN, "cross_shown") if changed else "now"
with guarded():
    ours.heatmap(model, "cross", parts["cross"], shown)
    for column, part in zip(st.columns(2, gap="medium"), ("encoder", "decoder"), strict=True):
        with column:
            ours.heatmap(model, part, parts[part], shown)
if isinstance(model, DatesModel):
    with guarded(say("Writing {count} held-out dates …", count=ours.SAMPLE)):
        ours.show_accuracy_by_mask(model, lines, spec, parts["decoder"][1])
else:
    with guarded():
        ours.losses(parts["decoder"], changed=changed)
if isinstance(model, DatesModel):
    controls.share(ours.DatesLink, model, text=None, target="")
else:
    controls.share(ours.CrossLink, model)
