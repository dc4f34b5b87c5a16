"""Mask check: does a model obey its mask? Its own code with its own kernels, measured."""

import streamlit as st

from ui import page

page.set_up("Mask check")  # first, so that the browser has something to fetch while torch is imported

from i18n import N_, say
from mask_check.findings import DECISIVE, LAWS
from ui import controls, explain, link
from ui import mask_check as check
from ui.guard import guarded
from ui.heads import head as head_picture
from ui.markdown import escaped
from ui.widgets import one_of, select
from viz.mask_check import laws_table, mask_figure, named_pairs, sentence

check.CheckLink.restore()
with st.sidebar:
    what = one_of(say("Check"), check.WHATS, "what")
    number_type = st.selectbox(say("Number type"), check.TYPES, key="number_type")
notes = ""
if what == "patient":
    with st.sidebar:
        names = {key: sample.name for key, sample in check.SAMPLES.items()}
        sample = check.SAMPLES[select(say("Sample module"), names, "patient")]
        link.share(check.SampleLink.of_choices())
    with guarded(say("Checking {name} …", name=escaped(sample.name))):
        report = check.of_sample(sample, number_type)
    notes = check.of_what(sample, report)
else:
    model, text = controls.open_page()
    controls.ask_for_text(text, N_("Type a text on the left: the model reads its first line."))
    controls.share(check.CheckLink, model)
    with guarded(say("Checking {name} …", name=explain.title_of(model))):
        reading = check.read(model, text)
        report = check.of_model(model, reading, number_type)
    if reading.cut:
        notes = say("Only the first {count} tokens of the first line are read.", count=report.length)

st.markdown(page.heading(say("Mask check"), check.size(report)))
st.html(sentence(report))
for law, said in report.limits:
    if law == LAWS[DECISIVE]:  # other outputs than logits are compared
        st.markdown(say(said))
if notes:
    st.markdown(notes)
figure = mask_figure(report, dark=page.is_dark())
head_picture.show(figure, check.alt(report), room="two", key="obey_figure", on_pick=None)
marks = f"{check.key(report)}{named_pairs(report)}"
if marks:
    st.html(marks)
st.html(laws_table(report))
st.caption(check.numbers(report))
with st.expander(say("How it is measured")):
    st.markdown(say(check.HOW))
