"""Obey: does a model obey its mask? Its own code with its own kernels, measured."""

import streamlit as st

from ui import page

page.set_up("Obey")  # first, so that the browser has something to fetch while torch is imported

from model.language import N_, say
from ui import controls, explain, obey
from ui import head as head_picture
from ui.guard import guarded
from ui.markdown import escaped
from viz.obey import laws_table, mask_figure, named_pairs, sentence, view_of

obey.restore()
with st.sidebar:
    what = obey.choose_what()
    number_type = obey.choose_type()
notes = ""
if what == "patient":
    with st.sidebar:
        patient = obey.choose_patient()
    obey.share_patient()
    with guarded(say("Checking {name} …", name=escaped(patient.name))):
        report = obey.of_patient(patient, number_type)
    notes = obey.of_what(patient)
else:
    model, text = controls.open_page()
    controls.ask_for_text(text, N_("Type a text on the left: its first line is what the model reads."))
    obey.share(model)
    with guarded(say("Checking {name} …", name=explain.title_of(model))):
        reading = obey.read(model, text)
        report = obey.of_model(model, reading, number_type)
    if reading.cut:
        notes = say("The first {count} tokens of the first line are read.", count=report.length)

view = view_of(report)
st.markdown("### " + say("Obey") + f"\u2002:small[{obey.size(report)}]")
st.html(sentence(view))
if notes:
    st.markdown(notes)
figure = mask_figure(view, dark=page.is_dark())
head_picture.show(figure, obey.alt(report), room="two", key="obey_figure", on_pick=None)
st.html(obey.key(report) + named_pairs(view))
st.html(laws_table(view))
st.caption(obey.numbers(report))
with st.expander(say("How it is measured")):
    st.markdown(say(obey.HOW))
