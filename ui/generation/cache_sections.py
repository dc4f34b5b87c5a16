"""The sections about the key-value cache, one at a time: what it changes, what it saves, why it needs the mask."""

from dataclasses import dataclass, replace
from math import log10

import streamlit as st
import torch
from markupsafe import Markup
from torch import Tensor

from i18n import N_, large, say, say_count, together
from model import kv_cache
from model.base import Model
from model.hardware import precision_name, rounding
from model.kv_cache import CacheComparison, StepTiming, old_rows
from model.transformer import TransformerConfig
from serving.job import ModelRef, RunRef, digest
from ui import explain, page, results
from ui.generation.writing import Writing
from ui.guard import guarded
from ui.run_view import name_of
from ui.widgets import one_of
from viz import generation as pictures
from viz.heatmap import CachedFigure
from viz.numbers import number

SECTIONS = {
    "cache": N_("The cache on and off: the same numbers"),
    "cost": N_("What a step costs"),
    "lift": N_("Causal mask off: old rows change"),
}
NO_CACHE_NOTE = N_(
    "The key-value cache is shown for models that run on Unmask's Transformer: the story model, GPT-2 and folders in "
    "its layout. {model} runs on its own code here and computes every step in full."
)


def show(model: Model, writing: Writing, cache: bool, layer: int, head: int) -> None:
    """Draw the chosen section; the others are not computed, and none is while the text plays."""
    network = kv_cache.network_of(model)
    if network is None:
        st.caption(say(NO_CACHE_NOTE, model=explain.title_of(model)))
        return
    section = one_of(say("Section"), SECTIONS, "generation_section", label_visibility="collapsed")
    ids = writing.path.ids
    if writing.playing:
        st.caption(say("Pause to compute this section for the text so far."))
        return
    if len(ids) < 2:
        st.caption(say("The cache needs an earlier position: generate a token first."))
        return
    with guarded():
        if section == "cache":
            first = max(len(writing.path.prompt), len(ids) - MAX_COMPARED)
            show_on_and_off(model, network.config, ids, first, layer, head)
            on, off = say("The key-value cache is on."), say("The key-value cache is off.")
            st.caption(on if cache else off)
        elif section == "cost":
            show_cost(model, network.config, ids)
        else:
            show_lifted(model, ids)


EXACT = 1e-9  # the largest difference of a logit in float64 that counts as rounding
MAX_COMPARED = 8  # maximum number of cached steps compared, from the end
STEP = N_(
    "With the cache, the step to token {count} lets 1 query attend to {count:,} keys: a mask [1, {count}] with "
    "{open:,} of {count:,} cells open. Without it, the step recomputes a square mask [{count}, {count}], {blocked:,} "
    "of its {cells:,} cells blocked. The newest row of every head and the probabilities of the next token differ by at "
    "most {largest}."
)
ALT = N_(
    "The mask of the cached step, {open:,} of {keys:,} cells open, and below it the newest row of {head} from the "
    "cached step and from the full run: they differ by at most {apart}."
)
HOW = N_("""
A row of attention needs its own query, and the keys and values of all positions it may attend to. Under the causal mask
nothing that comes later can change those, so they are computed once and kept: the **key-value cache**. A step then
projects one token, appends its key and value, and lets **one** query attend: the mask is a rectangle [1, K] of K
positions, not a square [K, K], and as the newest position may attend to all before it, every cell is open. The
causal mask is still there, but has nothing left to block.
""")
WORK = N_(
    "The cache takes {size:,.2f} MB: every layer's keys and values of {kept} of {count} positions.\n\nA step to "
    "token {count} takes {one} multiply-adds with the cache (a multiplication and an addition each), {full} without."
)


def compared(model: Model, ids: tuple[int, ...], start: int, causal: bool = True) -> CacheComparison:
    return results.ask(kv_cache.compare, ModelRef.of(model), ids, start, model.standard.replace(causal=causal))


def show_on_and_off(
    model: Model, config: TransformerConfig, ids: tuple[int, ...], start: int, layer: int, head: int
) -> None:
    """Compare the cache on and off: the same numbers for different amounts of work. start: the first cached step."""
    start, count = min(start, len(ids) - 1), len(ids)
    with guarded(say("Running both ways …")):
        found, exact = compared(model, ids, start), float("nan")
        if kv_cache.fits_float64(model):
            exact = float(results.ask(kv_cache.compare_in_float64, ModelRef.of(model), ids, start).logits.max())
    kind = precision_name(model.hardware.dtype)
    cells = {"open": int(found.allowed.sum()), "blocked": int((~found.square).sum()), "cells": count**2}
    largest = max(float(found.rows.max()), float(found.probabilities.max()))
    st.html(page.sentence(say(STEP, count=count, **cells, largest=number(largest))))
    table, row = st.columns([1, 1.5], gap="large")
    with table:
        what = say_count("largest difference, newest step", "largest difference, last {count} steps", len(found.logits))
        rows = [
            (say("rows of every head"), [float(found.rows.max())]),
            (say("probabilities of the next token"), [float(found.probabilities.max())]),
            (say("logits, in {type} (they reach {size:.1f})", type=kind, size=found.size), [float(found.logits.max())]),
            (say("logits, in float64"), [exact]),
        ]
        st.html(pictures.differences_table((what, say("cache on − off")), rows))
        digits, why = round(-log10(torch.finfo(model.hardware.dtype).eps)), []
        if largest or found.logits.any():
            template = N_("{type} has about {digits} significant digits, and the summation order differs.")
            why = [say(template, type=kind, digits=digits)]
            if exact < EXACT:
                why = [say("In float64 it all but vanishes: it is rounding error from a different summation order.")]
        full, one = (large(kv_cache.multiply_adds(config, queries, count)) for queries in (count, 1))
        work = say(WORK, size=found.cache_bytes / 1e6, kept=count - 1, count=count, one=one, full=full)
        st.caption(together([*why, work]))
    with row:

        def draw() -> CachedFigure:
            rows = found.cached[layer, head].numpy(), found.full[layer, head].numpy()
            labels = [model.label(token) for token in ids]
            return pictures.cached_row_figure(*rows, found.allowed[0].numpy(), labels)

        figure = results.cached(("cached row", model.key, digest(ids), start, layer, head), draw)  # not shown
        about = {"open": cells["open"], "keys": count, "head": name_of(model, "self", layer, head)}
        page.chart(figure, "cached_row", say(ALT, **about, apart=number(float(found.rows.max()))))
        if count > pictures.MAX_KEYS:
            st.caption(say("Only the last {most} of {keys:,} keys are shown.", most=pictures.MAX_KEYS, keys=count))
    with st.expander(say("How a cached step works")):
        st.markdown(say(HOW))


COUNTED = N_(
    "Counted: the multiplications of all matrix products and of the last token's logits, from their shapes. Measured "
    "on this machine under its current load: the fastest of up to {rounds} runs at each length, in turn. Lengths "
    "measured: {lengths}, the longest {tokens:,} tokens."
)


@dataclass(frozen=True)
class MeasuredCost:
    """The measurements on one user's text. stopped: whether the user ended them early."""

    model: str
    ids: tuple[int, ...]
    tries: tuple[StepTiming, ...] = ()
    stopped: bool = False


def show_cost(model: Model, config: TransformerConfig, ids: tuple[int, ...]) -> None:
    measured, state = st.session_state.get("measured"), st.session_state
    if measured is None or measured.model != model.key or measured.ids != ids[: len(measured.ids)]:
        measured = state.measured = MeasuredCost(model.key, ids)
    sentence_slot, chart, status = st.container(), st.empty(), st.container()
    plan = kv_cache.plan(len(measured.ids))
    missing = plan[len(measured.tries) :]
    if missing and not measured.stopped:
        with status:
            stop = lambda: state.update(measured=replace(state.measured, stopped=True))  # noqa: E731
            st.button(say("Stop measuring"), icon=":material/stop:", key="stop_measuring", on_click=stop)
            bar = st.progress(0.0)
        ref = ModelRef.of(model)
        run = RunRef(ref, kv_cache.batch_of(model, measured.ids), model.standard)
        for done, length in enumerate(missing, len(measured.tries) + 1):
            measured_run = results.ask_anew(kv_cache.measure, ref, run, length)
            state.measured = replace(state.measured, tries=(*state.measured.tries, measured_run))
            bar.progress(done / len(plan), say("Run {number} of {count}", number=done, count=len(plan)))
        st.rerun()
    lengths, found = range(1, len(ids) + 1), kv_cache.costs(measured.tries)
    costs = pictures.Costs(
        [kv_cache.multiply_adds(config, length, length) for length in lengths],
        [kv_cache.multiply_adds(config, 1, length) for length in lengths],
        found,
        kv_cache.times_match_counts(found),
    )
    sentence = pictures.cost_sentence(costs)
    sentence_slot.html(page.sentence(sentence))
    with chart:
        page.chart(pictures.cost_figure(costs), "cost_figure", sentence)
    with status:
        longest = found[-1].length if found else 0
        how = say(COUNTED, rounds=kv_cache.ROUNDS, lengths=len(found), tokens=longest)
        st.caption(together([how, say("The measurement was stopped early.")]) if measured.stopped else how)
        anew = lambda: state.update(measured=None)  # noqa: E731
        st.button(say("Measure this text again"), icon=":material/timer:", key="measure", on_click=anew)


NOTICED = 1e-5  # a larger change is not rounding
KEPT = N_(
    "Under the causal mask the newest token, “{newest}”, changes {changed} of the rows above it ({rows}): their "
    "weights differ by {weights}, the keys and values by {kept}. So the cached keys and values are still valid: a "
    "cached step's logits are within {logits} of the full run's."
)
CHANGED = N_(
    "Without the causal mask the newest token, “{newest}”, changes {changed} of the rows above it ({rows}): a weight "
    "by up to {weights}, the cached keys and values by up to {kept}. A cached step uses the old ones: its logits are "
    "off by {logits}, and it continues with “{cached}”; the full run continues with “{full}”."
)


def show_lifted(model: Model, ids: tuple[int, ...]) -> None:
    """Compare the rows above the newest in runs with and without its token, under the causal mask and without it."""
    switch, sentence = st.columns([1, 3.4], vertical_alignment="center")
    about = say("Applies only to this comparison; the text above is always generated with the causal mask.")
    causal = switch.toggle(say("Causal mask"), key="old_rows_causal", help=about)
    specs = {on: model.standard.replace(causal=on) for on in (True, False)}
    with st.spinner(say("Running with and without the newest token …"), show_time=True):
        changes = {on: results.ask(old_rows, ModelRef.of(model), ids, spec) for on, spec in specs.items()}
        comparisons = {on: compared(model, ids, len(ids) - 1, on) for on in specs}
    change, (cached, full) = changes[causal], map(model.label, comparisons[causal].guesses)
    text = Markup(say(KEPT if causal else CHANGED)).format(
        newest=model.label(ids[-1]),
        changed=int((change.rows > rounding(model.hardware.dtype, NOTICED)).sum()),
        rows=len(change.rows),
        weights=_most(change.rows),
        kept=_most(change.cache),
        logits=_most(comparisons[causal].logits),
        cached=cached,
        full=full,
    )
    sentence.html(page.sentence(text))
    chart, table = st.columns([1.5, 1], gap="large")
    labels = [model.label(token) for token in ids[:-1]]
    with chart:
        figure = pictures.old_rows_figure(change.rows.numpy(), labels, causal=causal)
        template = N_("The largest change of a weight in each old row ({rows}): up to {most}.")
        page.chart(figure, "old_rows", say(template, rows=len(labels), most=_most(change.rows)))
    with table:
        heading = say("when the newest token is added, largest"), say("mask on"), say("mask off")
        both = changes.values()
        rows = [
            (say("change of an old row's weight"), [float(one.rows.max()) for one in both]),
            (say("change of an old key or value, layer 0"), [float(one.cache[0]) for one in both]),
            (say("change of an old key or value, all layers"), [float(one.cache.max()) for one in both]),
            (say("change of an old position's logit"), [float(one.logits.max()) for one in both]),
            (say("error of the cached step's logits"), [float(step.logits.max()) for step in comparisons.values()]),
        ]
        st.html(pictures.differences_table(heading, rows))
    how = say(
        "The model runs on the text with and without its newest token, and the old rows of both runs are compared. A "
        "layer's keys and values are computed from the output of the layers before it: in layer 0 from the token and "
        "its position alone, in later layers from everything the old rows could see."
    )
    st.caption(how)


def _most(differences: Tensor) -> str:
    return number(float(differences.max()))
