"""What the Mask Lab shows of a text: a row of masks, the mask as a canvas, one head beside it, and a section below."""

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from i18n import say
from model.base import Model, TokenizedText
from model.heads.view import mask_view
from model.masks import MaskSpec
from ui import ask_first, controls, explain, page, run_view, widgets
from ui.guard import guarded
from ui.heads import head as head_picture
from ui.heads import query
from ui.mask_lab import compose, sections
from ui.results import cached_figure
from ui.run_view import RunView
from ui.widgets import one_of
from viz.mask_lab.canvas import counts, formula


def show(reading: TokenizedText, row: int) -> None:
    """Draw it, and the page's link in the sidebar; a part of the page that runs again alone. row: of the texts, that
    which is looked at."""
    model, batch = controls.keep(), reading.batch
    compose.LabLink.keep()
    spec, attention, (layer, head), query_slot, said = _choose(model, reading, row)
    sections.warn_of_a_changed_text(batch)
    with guarded(say("Running both …")):
        composed, spec = spec, ask_first.masks_to_show(model, batch, spec, row, attention, layer, head)
    with guarded(say("Running {model} …", model=explain.title_of(model))):
        now, standard = run_view.run_pair(model, batch, spec, row, attention)
        views = now.head(layer, head), standard.head(layer, head)
    with query_slot:
        chosen = query.choose(now)
    part = controls.choose_positions(*views[0].weights.shape)
    part = head_picture.without_padding(part, now.run.keys.keep[row].numpy(), masked=bool(spec.padding))
    part = compose.drawable(*part, chosen)
    rows, columns = head_picture.zoomed(part, part)
    with st.container(key="mask_and_head"):
        left, right = st.columns(2, gap="small")
    with right:  # first: the canvas beside it has shown a stroke at once
        _show_head((now, standard), (layer, head), (rows, columns), query.moves(now, part))
    with left, guarded():
        mask, text = now.ask(mask_view, layer, head), compose.text_key(batch)
        in_scope = not spec.layers or layer in spec.layers
        compose.show_canvas(mask, rows, columns, text, chosen, in_scope=in_scope)
    with said, guarded(say("Computing what each token can depend on …")):
        told = sections.sentence(now, standard, chosen) if spec == composed else say(ask_first.ASKING)
        said.html(told)
    st.html("".join([cached_figure(formula, mask), cached_figure(counts, views[0].blocked, mask)]))
    widgets.show_notes(sections.notes(spec, now, layer, mask, views[0]))

    with st.sidebar:
        ask_first.switch()
    sections.show_section(now, standard, layer, head, chosen)
    compose.share(model, spec)


def _choose(
    model: Model, reading: TokenizedText, row: int
) -> tuple[MaskSpec, str, tuple[int, int], DeltaGenerator, DeltaGenerator]:
    """The controls above the pictures: the masks, the attention and the head; and where the query and a sentence go."""
    top = st.container(key="lab_top", gap="xsmall")
    title, where = top.columns([1, 2.4], vertical_alignment="bottom", gap="medium")
    with where, st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        attention = controls.choose_attention([name for name in model.attentions if name != "cross"])
        with st.container(width=190):
            layer, head = controls.choose_head(model, *run_view.shape(model, attention))
        query_slot = st.container(width=150)
        held = compose.choose_where(run_view.layer_names(model, attention), layer)
    size = explain.size(reading.batch, row)
    title.markdown(page.heading(say("Mask Lab"), explain.title_of(model), size))
    with top:
        spec = compose.scoped(compose.choose(model), held, layer, head)
        return spec, attention, (layer, head), query_slot, st.container()


def _show_head(
    pair: tuple[RunView, RunView], head: tuple[int, int], part: Sequence[tuple[int, int]], moves: query.Moves
) -> None:
    """The head under these masks, under the standard ones, or the change; above it, which, and what its tokens are
    merged into. part, moves: see sections.show_head."""
    with st.container(horizontal=True, gap="small"):
        shown = one_of(say("Masks of the head"), sections.SHOWN, "shown", label_visibility="collapsed")
        by = controls.choose_by(width="content")
    merged = replace(pair[0], by=by), replace(pair[1], by=by)
    sections.show_head(shown, merged, head, part, moves)
    controls.explain_by(say("Masks are drawn on tokens; the query and the sections below count tokens, too."))
