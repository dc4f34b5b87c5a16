"""Mask check: measures whether a model's own code, with its own kernels, obeys its mask."""

import streamlit as st

from ui import page

page.set_up("Mask check")  # first, so that the browser has something to fetch while torch is imported

from i18n import N_, say, together
from mask_check.findings import DOES_NOT_APPLY
from ui import controls, explain, link
from ui import mask_check as check
from ui.guard import guarded
from ui.markdown import escaped
from ui.widgets import one_of, select

check.CheckLink.restore()
with st.sidebar:
    what = one_of(say("Check"), check.WHATS, "what")
    number_type = st.selectbox(say("dtype"), check.TYPES, key="number_type")
notes = ""
if what == "patient":
    with st.sidebar:
        names = {key: sample.name for key, sample in check.SAMPLES.items()}
        sample = check.SAMPLES[select(say("Sample module"), names, "patient")]
        link.share(check.SampleLink.of_choices())
    with guarded(say("Checking {name} …", name=escaped(sample.name))):
        report = check.check_sample(sample, number_type)
    parts = [escaped(say(sample.said))]  # what it is, where it was reported, how to try its law if this page does not
    parts += [say("Reported in {place}.", place=escaped(say(sample.reported)))] if sample.reported else []
    if any(found.law == sample.law and found.verdict == DOES_NOT_APPLY for found in report.findings):
        command = N_("This page does not try it: run `python -m unmask check sample:{key} --thorough`.")
        parts.append(say(command, key=sample.key))
    notes = together(parts)
else:
    model, text = controls.open_page()
    controls.ask_for_text(text, N_("Type a text on the left: the model reads its first line."))
    controls.share(check.CheckLink, model)
    with guarded(say("Checking {name} …", name=explain.title_of(model))):
        reading = check.read(model, text)
        report = check.check_model(model, reading, number_type)
    if reading.cut:
        notes = say("Only the first {count} tokens of the first line are read.", count=report.length)

check.show(report, notes)
