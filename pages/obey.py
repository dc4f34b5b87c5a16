"""Obey: does a model obey its mask? Its own code with its own kernels, measured."""

import streamlit as st

from ui import page

page.set_up("Obey")  # first, so that the browser has something to fetch while torch is imported

from ui import controls, explain, models, obey
from ui.markdown import escaped
from unmask.views import view_of
from viz.obey import laws_table, mask_figure, named_pairs, sentence

controls.seed()
obey.seed()

with st.sidebar:
    what = obey.choose_what()
    number_type = obey.choose_type()
try:
    if what == "patient":
        with st.sidebar:
            patient = obey.choose_patient()
        with st.spinner(f"Checking {escaped(patient.title)} …", show_time=True):
            report = obey.of_patient(patient, number_type)
    else:
        with st.sidebar:
            wanted = controls.choose_model()
            found = st.empty()
            text = controls.choose_text()
        model = models.get_or_keep(wanted)
        found.caption(explain.model_found(model))
        if not text.strip():
            st.info("Type a text on the left: its first line is what the model reads.")
            st.stop()
        reading = obey.read(model, text)
        with st.spinner(f"Checking {explain.title_of(model)} …", show_time=True):
            report = obey.of_model(model.name, reading, number_type)
        with st.sidebar:
            controls.share(wanted, model)
except models.TROUBLE as error:
    st.error(f"{escaped(str(error).rstrip('.'))}.")
    st.stop()

view = view_of(report)
st.markdown(f"### Obey\u2002:small[{obey.size(report)}]")
st.html(sentence(view))
if what == "patient":
    st.markdown(obey.of_what(patient))
elif reading.cut:
    st.caption(f"The first {report.length} tokens of the first line are read.")
figure = mask_figure(view, dark=page.is_dark())
st.plotly_chart(figure, key="obey_figure", config=page.CHART, alt=obey.alt(report))
st.html(obey.key(report) + named_pairs(view))
st.html(laws_table(view))
st.caption(obey.numbers(report))
with st.expander("How it is measured"):
    st.markdown(obey.HOW)
