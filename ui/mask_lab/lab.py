"""The content of the Mask Lab: a row of masks, the mask as a canvas, one head beside it, notes, and one section (the
effect of the composed masks on a run, in a sentence and in numbers; reach; one head, step by step; …)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from i18n import N_, say, together
from model.base import Model, TokenizedText
from model.heads.reach import leaked_tokens, paths_to, reach_of
from model.heads.view import HeadSteps, HeadView, RowSteps, coarser_words, cropped, head_steps, mask_view
from model.masks import NATIVE, MaskSpec
from model.text import TokenBatch
from ui import ask_first, controls, explain, page, run_view
from ui.guard import guarded
from ui.heads import head as head_picture
from ui.heads import query
from ui.markdown import escaped
from ui.mask_lab import compose, notes
from ui.results import cached_figure
from ui.run_view import RowPredictions, RunView, layer_names
from ui.widgets import bound, one_of, show_notes
from viz.head import difference_figure, head_figure
from viz.mask_lab import effect as effects
from viz.mask_lab.canvas import counts, formula
from viz.mask_lab.steps import MAX_KEYS, drawn_values, steps_figure, steps_sentence, steps_table, values_figure
from viz.numbers import next_token_table, percent


def show(reading: TokenizedText, row: int) -> None:
    """Draw the Mask Lab, and its link in the sidebar; runs as a fragment. row: the index of the text that is shown."""
    model, batch = controls.keep(), reading.batch
    compose.LabLink.keep()
    top = st.container(key="lab_top", gap="xsmall")
    title, where = top.columns([1, 2.4], vertical_alignment="bottom", gap="medium")
    with where, st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        attention = controls.choose_attention([name for name in model.attentions if name != "cross"])
        with st.container(width=190):
            layer, head = controls.choose_head(model, *run_view.shape(model, attention), attention)
        query_slot = st.container(width=150)
        scope = compose.choose_where(run_view.layer_names(model, attention), layer)
    title.markdown(page.heading(say("Mask Lab"), explain.title_of(model), explain.size(batch, row)))
    with top:
        spec = compose.choose(model)
        if scope == "head":
            spec = replace(spec, layers=(layer,), heads=(head,))
        elif scope == "layers":
            spec = replace(spec, layers=tuple(sorted(st.session_state.mask_layers)))
        sentence_slot = st.container()
    warn_of_a_changed_text(batch)
    with guarded(say("Running both …")):
        composed, spec = spec, ask_first.masks_to_show(model, batch, spec, row, attention, layer, head)
    asking = spec != composed
    with guarded(say("Running {model} …", model=explain.title_of(model))):
        now, standard = run_view.run_pair(model, batch, spec, row, attention)
        view, _ = now.head(layer, head), standard.head(layer, head)  # both run under this spinner
    compared = None if asking else standard  # the question may be about this run
    with query_slot:
        chosen = query.choose(now)
    part = controls.choose_positions(*view.weights.shape)
    part = head_picture.without_padding(part, now.run.keys.keep[row].numpy(), masked=bool(spec.padding))
    part = compose.drawable(*part, chosen)
    rows, columns = head_picture.zoomed(part, part)
    with st.container(key="mask_and_head"):
        left, right = st.columns(2, gap="small", vertical_alignment="bottom")  # rows are level, whatever is above
    with right, guarded():  # drawn first: the canvas itself shows a stroke at once
        show_head((now, compared), (layer, head), (rows, columns), query.moves(now, part))
    with left, guarded():
        mask, text = now.ask(mask_view, layer, head), compose.text_key(batch)
        in_scope = not spec.layers or layer in spec.layers
        compose.show_canvas(mask, rows, columns, text, chosen, in_scope=in_scope)
    controls.explain_by(say("Masks are drawn on tokens; the query and the sections below count tokens, too."))
    with sentence_slot, guarded(say("Computing what each token can depend on …")):
        summary = say(ask_first.ASKING) if asking else sentence(now, standard, chosen)
        sentence_slot.html(summary)
    st.html("".join([cached_figure(formula, mask), cached_figure(counts, view.blocked, mask)]))
    show_notes(notes.notes(now, layer, head, mask, view))

    with st.sidebar:
        ask_first.switch()
    with guarded(on_trouble=partial(share, model, composed)):
        show_section(now, compared, layer, head, chosen)
    share(model, composed)  # the chosen masks, even while the run before them is shown


def share(model: Model, spec: MaskSpec) -> None:
    off = compose.drawing()[1]  # links also contain a drawing that is switched off
    spec = replace(spec, drawn=off or spec.drawn)
    linked = compose.for_link(spec, model.standard)
    controls.share(compose.LabLink, model, masks=linked, mask_drawn_on=not off, **dict.fromkeys(NATIVE))
    compose.note_drawing(spec.drawn)


def sentence(now: RunView, standard: RunView, chosen: int) -> str:
    if now.masks == standard.masks:
        return effects.standard_masks()
    found = effect_of(now, standard, chosen)
    return effects.no_predictions() if found is None else effects.effect(found)


def show_effect(now: RunView, standard: RunView, chosen: int) -> None:
    predictions, others = _predictions(now, standard, chosen)
    found = effect_of(now, standard, chosen)
    if predictions is None or others is None or found is None:
        st.info(explain.no_predictions(now.model))
        return
    changed = now.masks != standard.masks
    curves = (predictions.losses, others.losses)
    left, right = st.columns(2, gap="medium")
    follows = cached_figure(next_token_table, predictions.candidates, others.candidates, changed=changed)
    left.html("".join([effects.next_token_sentence(found), follows]))
    with right:
        explain.show_losses(cached_figure(effects.losses_figure, found, changed=changed), curves, changed=changed)
    if found.known:
        st.html(cached_figure(effects.leaked_tokens_table, found))


def effect_of(now: RunView, standard: RunView, chosen: int) -> effects.Effect | None:
    """Return the effect of the masks, cached; None for a model that predicts no next token."""

    def make() -> effects.Effect | None:
        predictions, others = _predictions(now, standard, chosen)
        if predictions is None or others is None:
            return None
        position, last = query.predicting(now, chosen), now.run.batch.real(now.row).stop - 1
        ends = [view.predictions(last) or predictions for view in (standard, now)]
        found = effects.Effect(
            now.run.batch.pieces[now.row],
            predictions.losses,
            others.losses,
            last if position is None else position,
            (others.candidates[0], predictions.candidates[0]),
            last,
            (ends[0].candidates[0], ends[1].candidates[0]),
        )
        # for an encoder-decoder, the decoder's self-attention, whichever attention is shown
        attention = "decoder" if "decoder" in now.model.attentions else now.run.attention
        text, before = (replace(view, run=replace(view.run, attention=attention)) for view in (now, standard))
        earlier = set(before.ask(leaked_tokens))
        found = replace(found, known=[token for token in text.ask(leaked_tokens) if token not in earlier])
        shown = tuple(found.ranked()[: effects.MAX_LEAKED_TOKENS])
        number = partial(now.model.describe().layer_number, attention)  # as in the network
        ways = text.ask(paths_to, shown) if shown else {}
        named = {
            token: tuple(replace(look, layer=number(look.layer)) for look in looks) for token, looks in ways.items()
        }
        return replace(found, ways=named)

    return now.cached(("effect", chosen), make)


def _predictions(now: RunView, standard: RunView, chosen: int) -> tuple[RowPredictions | None, RowPredictions | None]:
    position = query.predicting(now, chosen)
    return now.predictions(position), standard.predictions(position)


HOW = N_("""
A token keeps its own state from layer to layer (the residual stream), and each layer adds information from the tokens
it may attend to. So after n layers it can depend on every token that a chain of at most n attention steps, one per
layer, leads to. As matrices: the boolean product of the n masks, each with its diagonal set to “may attend”. A sliding
window of W positions has then grown to n · (W − 1) + 1. (Jiang et al. 2023, *Mistral 7B*, section 2, which rounds this
to n · W.) This is what the masks allow, not what the model uses.
""")


def show_reach(now: RunView, layer: int, head: int, chosen: int) -> None:
    if now.run.attention == "cross":
        st.info(say("Reach is defined for self-attention: choose an attention other than “cross”."))
        return
    with st.spinner(say("Computing reach layer by layer …")):
        found = now.ask(reach_of, layer, head)
    view = effects.ReachView(
        found,
        layer,
        tokens=list(now.run.keys.pieces[now.row]),
        query=chosen,
        names=layer_names(now.model, now.run.attention),
        keep=now.run.keys.keep[now.row].numpy(),
    )
    sentence = effects.reach_sentence(view)
    st.html(sentence)
    figure = effects.reach_figure(view, dark=page.is_dark())
    head_picture.show(figure, sentence.striptags(), room="two", key="reach_figure")
    parts = [
        say("Left, yellow: the query may attend to the key. Right, colour: after how many layers it can depend on it.")
    ]
    if (found.first == 0).any():
        parts.append(say("Grey: never."))
    if now.masks.heads:
        parts.append(say("The heads' masks differ: a cell of a layer is open if at least one head may attend."))
    if now.model.describe().other_layers():
        parts.append(say(explain.NOT_COUNTED))
    if len(view.tokens) > effects.MAX_CELLS:
        step = -(-len(view.tokens) // effects.MAX_CELLS)
        parts.append(say("Each cell: among {step}\u00a0×\u00a0{step} pairs, the fewest layers needed.", step=step))
    st.html("".join([page.note(together(parts)), effects.reach_table(view)]))
    with st.expander(say("How reach is computed")):
        st.markdown(say(HOW))


def show_steps(now: RunView, layer: int, head: int, chosen: int) -> None:
    found = now.ask(head_steps, layer, head, chosen)
    row = found.row
    st.html(steps_sentence(row))
    page.chart(steps_figure(found, dark=page.is_dark()), "steps_figure", _steps_alt(found, now.name(layer, head)))
    colours = say("Scores, values and output: blue is below 0, red above. Zoom in one panel and the others follow.")
    st.html(page.note(together(filter(None, [colours, coarser_words(found.head)]))))
    numbers, values = st.columns([1.7, 1], gap="medium")
    numbers.html("".join([steps_table(row), page.note(_about_the_table(row))]))
    with values:
        drawn = drawn_values(row)
        about = say("Every weight is 0: nothing is added, and all numbers of the output are 0.")
        if drawn:
            words = N_(
                "Pale: the value v of {count} of the {free:,} keys that are not blocked, those with the largest "
                "weights ({share} of the weight). Red: weight × value, what it adds. Below: the sum over all keys."
            )
            every = N_(
                "Pale: the value v of each key that is not blocked. Red: weight × value, what it adds. Below: the sum "
                "over all keys."
            )
            share = percent(float(row.weights[drawn].sum() / (row.weights.sum() or 1)))  # a sink has the rest
            count, free = len(drawn), int(row.free.sum())
            about = say(every) if count == free else say(words, count=count, free=free, share=share)
        st.html(page.note(about))
        heavy = say(", ").join(f"{row.keys[key]} {row.weights[key]:.3f}" for key in drawn)
        words = N_("Bars: the values of the keys with their weights ({weights}), and their weighted sum, the output.")
        page.chart(values_figure(row), "values_figure", say(words, weights=heavy) if drawn else about)


def _about_the_table(row: RowSteps) -> str:
    template = N_("The largest unblocked score is subtracted before the exponential to avoid overflow.")
    if row.sink == row.top:
        template = N_("The sink's score, the largest, is subtracted before the exponential to avoid overflow.")
    parts = [say(template)]
    parts.append(say("A weight is its e^… divided by the sum. Values are shown rounded but summed unrounded."))
    if row.arithmetic.softcap is not None:
        parts.append(say("This model caps its scores: {cap:g}·tanh(score / {cap:g}).", cap=row.arithmetic.softcap))
    if row.bias is not None:
        parts.append(say("This model adds its own bias to the scores, shown in the next column."))
        if np.isneginf(row.bias).any():
            parts.append(say("Where it is −∞, the model itself blocks the cell, whatever the masks allow."))
    if row.sink is not None:
        parts.append(say("The sink takes part in the sum and has no value: the keys' weights sum to less than 1."))
    if len(row.raw) > MAX_KEYS:
        most = N_("Of {count:,} keys, the {most} with the largest weights are listed.")
        parts.append(say(most, count=len(row.raw), most=MAX_KEYS))
    return together(parts)


def _steps_alt(found: HeadSteps, name: str) -> str:
    queries, keys = found.raw.shape
    raw, scaled = found.raw, found.head.scaled
    scores = {"raw_least": raw.min(), "raw_most": raw.max(), "least": scaled.min(), "most": scaled.max()}
    weights = {"blocked": int(found.head.any_blocked().sum()), "weight": found.head.weights.max()}
    template = N_(
        "{head} step by step, {queries} × {keys} (queries × keys): q·k from {raw_least:.2f} to {raw_most:.2f}, scaled "
        "from {least:.2f} to {most:.2f}, {blocked:,} cells blocked, weights up to {weight:.3f}, the keys' values, and "
        "for each query an output of {width} numbers. Query {query} ({token}) is framed."
    )
    framed = {"width": found.values.shape[1], "query": found.row.position, "token": found.row.query}
    return say(template, head=name, queries=queries, keys=keys, **scores, **weights, **framed)


SHOWN = {"now": N_("this mask"), "standard": N_("standard"), "change": N_("change")}
SECTIONS = {
    "effect": N_("What it does"),
    "reach": N_("Reach"),
    "steps": N_("Step through this head"),
    "hand": N_("Compute by hand"),
    "fill": N_("Masking value (−∞, −1e9, …)"),
    "name": N_("Name a mask"),
    "code": N_("Export the mask"),
}


def warn_of_a_changed_text(batch: TokenBatch) -> None:
    """Warn if the text under the drawing has changed, or if the link's masks are invalid. A drawing does not move."""
    if "mask_wrong" in st.session_state:
        problem = escaped(st.session_state.pop("mask_wrong"))
        st.warning(say("The link's masks could not be read ({problem}).", problem=problem))
    state, text = st.session_state, compose.text_key(batch)
    if state.mask_drawn and state.mask_text is None:
        state.mask_text = text  # a drawing from a link or a file belongs to the first text shown
    if not state.mask_drawn_on or state.mask_text == text:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        longest = max(one.ids.shape[1] for one in (batch, batch.source) if one is not None)
        covers = any(max(one.query, one.key) < longest for one in st.session_state.mask_drawn)
        other = N_("The text has changed under the drawn mask: its cells now cover other tokens.")
        none = N_("The text has changed under the drawn mask, and is too short for any of its cells.")
        st.warning(say(other if covers else none))
        st.button(say("Clear the drawing"), on_click=compose.set_drawing, args=((),))
        keep = partial(compose.take_drawing, st.session_state.mask_drawn, text, st.session_state.mask_number)
        st.button(say("Keep it"), on_click=keep)


def show_head(
    both: tuple[RunView, RunView | None], head: tuple[int, int], part: Sequence[tuple[int, int]], moves: query.Moves
) -> None:
    """Draw the head under these masks, under the standard ones, or the change; above it, the choices of that and of
    merging. both: the run under these masks, and the standard run, if that may be shown. part: its rows and its
    columns, each [begin, end), in tokens, as are moves."""
    shown = "now"
    with st.container(horizontal=True, gap="small"):
        if both[1] is not None:
            shown = one_of(say("Masks of the head"), SHOWN, "shown", label_visibility="collapsed")
        by = controls.choose_by(width="content")
    pair = [replace(one or both[0], by=by) for one in both]
    now = pair[0]
    rows, columns = ((now.position_of(begin), now.position_of(end - 1) + 1) for begin, end in part)
    view, standard = (cropped(one.head(*head), rows, columns) for one in pair)
    look: Any = {"dark": page.is_dark(), "query": now.position_of(moves.query)}
    if shown == "change":
        figure = cached_figure(difference_figure, view, standard, **look)
    else:
        figure = cached_figure(head_figure, view if shown == "now" else standard, **look)
    text = cached_figure(alt, now.name(*head), shown, view, standard)
    pick = lambda row, _: head_picture.choose_query(now.last_token(row), None)  # noqa: E731
    hears: Any = {"moves": moves, "zooms": True} if now.by == "tokens" else {"on_pick": pick}
    head_picture.show(figure, text, room="one", above=compose.ABOVE, **hears)


def alt(name: str, shown: str, now: HeadView, standard: HeadView) -> str:
    if shown != "change":
        return explain.head_alt(name, now if shown == "now" else standard, False)
    return explain.change_alt(name, now, standard)


def show_section(now: RunView, standard: RunView | None, layer: int, head: int, chosen: int) -> None:
    """Draw the chosen section; the others are not computed. standard: None while a question is asked."""
    chosen_section = st.session_state.section if st.session_state.section in SECTIONS else "effect"
    section = one_of(say("Section"), SECTIONS, **bound("section", chosen_section), label_visibility="collapsed")
    if section == "effect":
        if standard is None:
            st.info(say(ask_first.ASKING))
        else:
            show_effect(now, standard, chosen)
    elif section == "reach":
        show_reach(now, layer, head, chosen)
    elif section == "steps":
        show_steps(now, layer, head, chosen)
    else:
        from ui.mask_lab import by_hand, mask_export

        if section == "hand":
            by_hand.show()
        elif section == "fill":
            by_hand.show_fills(now, layer, head)
        elif section == "name":
            mask_export.show_named(now, compose.load)
        else:
            mask_export.show(now, layer, head, compose.load)
