"""The cache on and off: the same numbers, from another amount of work."""

import streamlit as st

from model import kv_cache
from model.base import Model
from model.generation import step_cost
from model.jobs.job import digest
from model.kv_cache import Comparison
from ui import page, results
from ui.generation.compared import compared, compared_exactly
from ui.generation.writing import Writing
from ui.guard import guarded
from viz.generation.cache import MOST_KEYS, CachedRow, cached_row_figure, differences_table
from viz.heatmap import Picture
from viz.numbers import number

NOTICED = 1e-5  # a difference that is no rounding
EXACT = 1e-9  # of a logit in float64: rounding is less
MOST_COMPARED = 8  # cached steps, the last ones
HOW = """
A row of attention needs its own query, and the keys and values of all positions it may look at. Under the causal mask
nothing that comes later can change those, so they are computed once and kept: the **key-value cache**. A step then
projects one token, appends its key and value, and lets **one** query attend: the mask is a rectangle [1, K] of K
positions, not a square [K, K], and as the newest position may look at all before it, every cell of it is open. The
causal mask is still there, but has nothing left to block.
"""


def show(model: Model, writing: Writing, cache: bool, layer: int, head: int) -> None:
    """The newest row by a cached step and by a full run, and all their differences."""
    ids = writing.path.ids
    start = max(min(len(writing.path.prompt), len(ids) - 1), len(ids) - MOST_COMPARED)
    with guarded("Running both ways …"):
        found = compared(model, ids, start)
        exact = compared_exactly(model, ids, start)
    count, size = len(ids), f"{found.cache_bytes / 1e6:,.2f} MB"
    open_cells, blocked = int(found.allowed.sum()), int((~found.square).sum())
    largest = max(float(found.rows.max()), float(found.probabilities.max()))
    same = "are the same, to" if largest < NOTICED else "differ, by up to"
    st.html(
        f'<p class="sentence">With the cache, the step to token {count} lets 1 query attend to {count} keys: a mask '
        f"[1, {count}] with {open_cells} of {count} cells open. Without it, it computes a square [{count}, {count}] "
        f"again, {blocked:,} of its {count**2:,} cells blocked. The newest row of every head and the probabilities of "
        f"the next token {same} {number(largest)}.</p>"
    )
    table, row = st.columns([1, 1.5], gap="large")
    steps = "newest step" if len(found.logits) == 1 else f"last {len(found.logits)} steps"
    with table:
        st.html(differences_table(
            (f"largest difference, {steps}", "cache on − off"),
            [
                (f"rows of all {model.num_layers * model.num_heads} heads", [float(found.rows.max())]),
                ("probabilities of the next token", [float(found.probabilities.max())]),
                (f"logits, in float32 (they reach {found.size:.1f})", [float(found.logits.max())]),
                ("logits, in float64", [float("nan") if exact is None else float(exact.logits.max())]),
            ],
        ))  # fmt: skip
        rounding = "float32 holds about 7 digits, and the sums run in another order."
        if exact is not None and float(exact.logits.max()) < EXACT:
            rounding = "With numbers of twice the length it all but vanishes: it is rounding, of sums in another order."
        config = kv_cache.network_of(model).config  # type: ignore[union-attr]  # show has looked
        full, one = (step_cost.multiply_adds(config, queries, count) for queries in (count, 1))
        st.caption(
            f"{rounding} The cache holds {size}: keys and values of {count - 1} positions in every layer.\n\n"
            f"A step to token {count} takes {one / 1e6:,.1f} million multiply-adds with the cache (a multiplication "
            f"and an addition each), {full / 1e6:,.1f} million without. The switch above is "
            f"{'on' if cache else 'off'}."
        )
    with row:
        key = ("cached row", model.key, digest(ids), start, layer, head)
        figure = results.shared().get(key, lambda: _figure(model, found, ids, layer, head))
        alt = (
            f"The mask of the cached step, {open_cells} of {count} cells open, and under it the newest row of "
            f"L{layer} H{head} by the cached step and by the full run: at most {number(float(found.rows.max()))} apart."
        )
        st.plotly_chart(figure, key="cached_row", config=page.CHART, alt=alt)
        if count > MOST_KEYS:
            st.caption(f"Shown are the last {MOST_KEYS} of {count} keys.")
    with st.expander("How a cached step works"):
        st.markdown(HOW)


def _figure(model: Model, found: Comparison, ids: tuple[int, ...], layer: int, head: int) -> Picture:
    rows = (found.cached[layer, head].numpy(), found.full[layer, head].numpy())
    return cached_row_figure(CachedRow(*rows, found.allowed[0].numpy(), [model.label(token) for token in ids]))
