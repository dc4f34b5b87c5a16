"""Export: pictures for print, the numbers as files, a report, and an export opened again."""

import streamlit as st

from ui import page

page.set_up("Export")  # first, so that the browser has something to fetch while torch is imported

from i18n import say
from ui import controls, explain, run_view
from ui.export import export_files
from ui.export.export_files import ExportLink, ExportSubject
from ui.guard import guarded
from ui.widgets import bound, one_of

model, text = controls.open_page()
reading, row = controls.open_text(model, text)
title, switches = st.columns([1, 1.8], vertical_alignment="center")
with switches:
    spec, scope = controls.choose_masks(model)
attention = controls.choose_attention(model.attentions)
layers, heads = run_view.shape(model, attention)
with st.sidebar:
    layer, head = controls.choose_head(model, layers, heads, attention)
    by = controls.choose_by()
    controls.explain_by()
with guarded(say("Running {model} …", model=explain.title_of(model))):
    only_layer = layer if scope == "layer" else None
    pair = run_view.run_pair(model, reading.batch, spec, row, attention, only_layer=only_layer, by=by)
    standard = pair[1] if spec != model.standard else None
    subject = ExportSubject(pair[0], standard, layer, head, reading.rows[row])
    size = subject.views()[0].weights.shape
title.markdown(page.heading(say("Export"), explain.title_of(model), subject.name))
with st.sidebar:
    part = controls.choose_positions(*size)

sections = {name: name for name in export_files.SECTIONS}
chosen = st.session_state.get("section")  # the Mask Lab's sections have the same name in a link, and are kept there
shown = bound("section", chosen if chosen in sections else export_files.SECTIONS[0])
section = one_of(say("Export"), sections, **shown, label_visibility="collapsed")
if section == "Picture":
    from ui.export import pictures  # matplotlib takes a second, and no other part needs it

    pictures.show(subject, part)
elif section == "Numbers":
    export_files.numbers(subject)
elif section == "Report":
    export_files.report(subject)
else:
    export_files.opened()
controls.share(ExportLink, model)
