"""The cache on and off: the same numbers, from another amount of work."""

import streamlit as st
from markupsafe import Markup

from i18n import N_, large, say, say_count, together
from model import kv_cache, step_cost
from model.base import Model
from model.kv_cache import CacheComparison
from serving.job import ModelRef, digest
from ui import page, results
from ui.generation.writing import Writing
from ui.guard import guarded
from ui.run_view import name_of
from viz.generation.cache import MOST_KEYS, CachedRow, cached_row_figure, differences_table
from viz.heatmap import CachedFigure
from viz.numbers import number


def compared(model: Model, ids: tuple[int, ...], start: int, causal: bool = True) -> CacheComparison:
    return results.ask(kv_cache.compare, ModelRef.of(model), ids, start, model.standard.replace(causal=causal))


def compared_exactly(model: Model, ids: tuple[int, ...], start: int) -> CacheComparison | None:
    """As compared, in float64; None for a model that is too large for that."""
    if not kv_cache.fits_float64(model):
        return None
    return results.ask(kv_cache.compare_in_float64, ModelRef.of(model), ids, start)


NOTICED = 1e-5  # a difference that is no rounding
EXACT = 1e-9  # of a logit in float64: rounding is less
MOST_COMPARED = 8  # cached steps, the last ones
SAME = N_(
    "With the cache, the step to token {count} lets 1 query attend to {count} keys: a mask [1, {count}] with {open} of "
    "{count} cells open. Without it, the step recomputes a square mask [{count}, {count}], {blocked:,} of its "
    "{cells:,} cells blocked. The newest row of every head and the probabilities of the next token are the same to "
    "within {largest}."
)
DIFFERENT = N_(
    "With the cache, the step to token {count} lets 1 query attend to {count} keys: a mask [1, {count}] with {open} of "
    "{count} cells open. Without it, the step recomputes a square mask [{count}, {count}], {blocked:,} of its "
    "{cells:,} cells blocked. The newest row of every head and the probabilities of the next token differ, by up to "
    "{largest}."
)
ALT = N_(
    "The mask of the cached step, {open} of {keys} cells open, and below it the newest row of {head} from the cached "
    "step and from the full run: they differ by at most {apart}."
)
HOW = N_("""
A row of attention needs its own query, and the keys and values of all positions it may attend to. Under the causal mask
nothing that comes later can change those, so they are computed once and kept: the **key-value cache**. A step then
projects one token, appends its key and value, and lets **one** query attend: the mask is a rectangle [1, K] of K
positions, not a square [K, K], and as the newest position may attend to all before it, every cell is open. The
causal mask is still there, but has nothing left to block.
""")


def show(model: Model, writing: Writing, cache: bool, layer: int, head: int) -> None:
    ids = writing.path.ids
    start = max(min(len(writing.path.prompt), len(ids) - 1), len(ids) - MOST_COMPARED)
    with guarded(say("Running both ways …")):
        found = compared(model, ids, start)
        exact = compared_exactly(model, ids, start)
    st.html(page.sentence(_sentence(found, len(ids))))
    table, row = st.columns([1, 1.5], gap="large")
    with table:
        st.html(_table(model, found, exact))
        switched = say("The switch above is on.") if cache else say("The switch above is off.")
        st.caption(together([_rounding(exact), _work(model, found, len(ids)), switched]))
    with row:
        name = name_of(model, "self", layer, head)
        key = ("cached row", model.key, digest(ids), start, layer, head)  # not shown
        figure = results.kept(key, lambda: _figure(model, found, ids, layer, head))
        apart = number(float(found.rows.max()))
        page.chart(figure, "cached_row", say(ALT, open=int(found.allowed.sum()), keys=len(ids), head=name, apart=apart))
        if len(ids) > MOST_KEYS:
            st.caption(say("Only the last {most} of {keys} keys are shown.", most=MOST_KEYS, keys=len(ids)))
    with st.expander(say("How a cached step works")):
        st.markdown(say(HOW))


def _sentence(found: CacheComparison, count: int) -> str:
    largest = max(float(found.rows.max()), float(found.probabilities.max()))
    cells = {"open": int(found.allowed.sum()), "blocked": int((~found.square).sum()), "cells": count**2}
    return say(SAME if largest < NOTICED else DIFFERENT, count=count, **cells, largest=number(largest))


def _table(model: Model, found: CacheComparison, exact: CacheComparison | None) -> Markup:
    steps, heads = len(found.logits), model.num_layers * model.num_heads
    what = say_count("largest difference, newest step", "largest difference, last {count} steps", steps)
    rows = [
        (say("rows of all {count} heads", count=heads), [float(found.rows.max())]),
        (say("probabilities of the next token"), [float(found.probabilities.max())]),
        (say("logits, in float32 (they reach {size:.1f})", size=found.size), [float(found.logits.max())]),
        (say("logits, in float64"), [float("nan") if exact is None else float(exact.logits.max())]),
    ]
    return differences_table((what, say("cache on − off")), rows)


def _rounding(exact: CacheComparison | None) -> str:
    if exact is not None and float(exact.logits.max()) < EXACT:
        return say("In float64 it all but vanishes: it is rounding error from a different summation order.")
    return say("float32 holds about 7 digits, and the summation order differs.")


def _work(model: Model, found: CacheComparison, count: int) -> str:
    config = kv_cache.network_of(model).config  # type: ignore[union-attr]  # sections.show has looked
    full, one = (step_cost.multiply_adds(config, queries, count) for queries in (count, 1))
    words = N_(
        "The cache holds {size:,.2f} MB: keys and values of {kept} positions in every layer.\n\nA step to token "
        "{count} takes {one} multiply-adds with the cache (a multiplication and an addition each), {full} without."
    )
    return say(words, size=found.cache_bytes / 1e6, kept=count - 1, count=count, one=large(one), full=large(full))


def _figure(model: Model, found: CacheComparison, ids: tuple[int, ...], layer: int, head: int) -> CachedFigure:
    rows = (found.cached[layer, head].numpy(), found.full[layer, head].numpy())
    return cached_row_figure(CachedRow(*rows, found.allowed[0].numpy(), [model.label(token) for token in ids]))
