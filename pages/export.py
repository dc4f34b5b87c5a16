"""Export: the picture for print, the numbers as files, and an export opened again."""

from dataclasses import asdict

import streamlit as st

from ui import page

page.set_up("Export")  # first, so that the browser has something to fetch while torch is imported

from model.version import version
from ui import controls, explain, link, run_view
from ui.export import report, sections
from ui.guard import guarded
from viz.export.data import About, Export, fits, hash_of
from viz.export.words import caption, masks_said
from viz.view import cropped

model, text = controls.open_page()
reading, row = controls.open_text(model, text)
title, switches = st.columns([1, 1.8], vertical_alignment="center")
with switches:
    spec, scope = controls.choose_masks(model)
attention = controls.choose_attention(model.attentions)
layers, heads = run_view.shape(model, attention)
with st.sidebar:
    layer, head = controls.choose_head(model, layers, heads)
number = model.describe().layer_number(attention, layer)
title.markdown(f"### Export\u2002:small[{explain.title_of(model)} · L{number} H{head}]")
with guarded(f"Running {explain.title_of(model)} …"):
    now, standard = run_view.run_pair(
        model, reading.batch, spec, row, attention, only_layer=controls.only(scope, layer)
    )
    whole = [now.head(layer, head)] + ([standard.head(layer, head)] if spec != model.standard else [])
with st.sidebar:
    part = controls.choose_positions(*whole[0].weights.shape)
views = [cropped(view, part, part) if view.weights.shape[0] == view.weights.shape[1] else view for view in whole]
names = [name for name in ("causal", "padding", *model.describe().masks) if hasattr(spec, name)]
on, lifted = ([name for name in dict.fromkeys(names) if getattr(spec, name) is state] for state in (True, False))
lifted = [name for name in lifted if getattr(model.standard, name)]
said = masks_said(on, lifted, only_layer=scope == "layer")
plain, sha256 = explain.plain_title(model), hash_of(reading.rows[row])


def exported(which: list[tuple[int, int]]) -> Export:
    """The chosen head and others of this text as they are now, whole."""
    about = About(
        unmask=version(), model=plain, attention=attention, layer=layer, head=head, text_sha256=sha256,
        masks=asdict(now.masks), queries=tuple(whole[0].queries), keys=tuple(whole[0].keys),
    )  # fmt: skip
    return Export(about, {place: now.head(*place) for place in which})


section = sections.choose()
if section == "Picture":
    words = caption(model=plain, number=number, head=head, view=views[0], masks=said, sha256=sha256,
                    version=version())  # fmt: skip
    sections.picture(views[0], views[1] if len(views) > 1 else None, f"{plain} · L{number} H{head}", words)
elif section == "Numbers":
    every = [(one, other) for one in range(layers) for other in range(heads)]
    room = fits(whole[0], len(every))
    name = f"unmask-L{number}H{head}"
    sections.numbers(exported([(layer, head)]), (lambda: exported(every)) if room else None, name)
elif section == "Report":
    given = {"text": reading.rows[row], "masks": said, "version": version(), "link": sections.link_to_explore()}
    sections.report(lambda: report.report(now, standard if spec != model.standard else None, (layer, head), **given))
else:
    sections.opened()
controls.share(link.View, model, masks=None)
