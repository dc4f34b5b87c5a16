"""The sections below the text that is written: the cache on and off, what a step costs, and the causal mask lifted."""

import html
from dataclasses import dataclass, replace

import streamlit as st
from torch import Tensor

from model import kv_cache
from model.base import Model
from model.generation import step_cost
from model.generation.old_rows import OldRows, old_rows
from model.generation.step_cost import Cost
from model.kv_cache import Comparison
from ui import explain, page, results
from ui.generation.writing import Writing
from ui.guard import TROUBLE
from ui.markdown import escaped
from viz.generation.cache import (
    MOST_KEYS,
    CachedRow,
    Costs,
    cached_row_figure,
    cost_figure,
    cost_sentence,
    differences_table,
    old_rows_figure,
)
from viz.numbers import number

SECTIONS = {
    "cache": "The cache on and off: the same numbers",
    "cost": "What a step costs",
    "lift": "Lift the causal mask: old rows change",
}
NOTICED = 1e-5  # a change that is no rounding
EXACT = 1e-9  # of a logit in float64: rounding is less
MOST_COMPARED = 8  # cached steps, the last ones
NOT_OURS = (
    "The key-value cache is shown for models that run on our own Transformer: the story model, GPT-2 and folders in "
    "its layout. {} runs on its own code here, every step in full."
)
HOW = """
A row of attention needs its own query, and the keys and values of all positions it may look at. Under the causal mask
nothing that comes later can change those, so they are computed once and kept: the **key-value cache**. A step then
projects one token, appends its key and value, and lets **one** query attend: the mask is a rectangle [1, K] of K
positions, not a square [K, K], and as the newest position may look at all before it, every cell of it is open. The
causal mask is still there, but has nothing left to block.
"""


def show(model: Model, writing: Writing, cache: bool, layer: int, head: int) -> None:
    """One section, the one chosen; the others are not computed, and none while the text plays."""
    if kv_cache.network_of(model) is None:
        st.caption(NOT_OURS.format(explain.title_of(model)))
        return
    st.segmented_control("Section", list(SECTIONS), format_func=SECTIONS.__getitem__, key="generation_section",
                         required=True, label_visibility="collapsed")  # fmt: skip
    ids = writing.path.ids
    if writing.playing:
        st.caption("Pause, and this section is computed for the text as it is then.")
        return
    if len(ids) < 2:
        st.caption("A cache needs a position before the newest: write a token first.")
        return
    try:
        if st.session_state.generation_section == "cache":
            _cache(model, writing, cache, layer, head)
        elif st.session_state.generation_section == "cost":
            _cost(model, ids)
        else:
            _lift(model, ids)
    except TROUBLE as error:
        st.error(f"{escaped(str(error))}.")


def _cache(model: Model, writing: Writing, cache: bool, layer: int, head: int) -> None:
    ids = writing.path.ids
    start = max(min(len(writing.path.prompt), len(ids) - 1), len(ids) - MOST_COMPARED)
    with st.spinner("Running both ways …", show_time=True):
        found = _compared(model, ids, start)
        exact = _compared_exactly(model, ids, start)
    count, size = len(ids), f"{found.cache_bytes / 1e6:,.2f} MB"
    open_cells, blocked = int(found.allowed.sum()), int((~found.square).sum())
    largest = max(float(found.rows.max()), float(found.probabilities.max()))
    st.html(
        f'<p class="sentence">With the cache, the newest step lets 1 query attend to {count} keys: a mask [1, {count}] '
        f"with {open_cells} of {count} cells open. Without it, the step computes a square [{count}, {count}] again, "
        f"{blocked:,} of its {count**2:,} cells blocked. The newest row of every head and the probabilities of the "
        f"next token {'are the same, to' if largest < NOTICED else 'differ, by up to'} {number(largest)}.</p>"
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
        st.caption(f"{rounding} The cache holds {size}: keys and values of {count - 1} positions in every layer.")
        config = kv_cache.network_of(model).config  # type: ignore[union-attr]  # show has looked
        full, one = (step_cost.multiply_adds(config, queries, count) for queries in (count, 1))
        st.caption(
            f"The switch is {'on' if cache else 'off'}: this step took {(one if cache else full) / 1e6:,.1f} million "
            f"multiply-adds, with the cache {'off' if cache else 'on'} it takes {(full if cache else one) / 1e6:,.1f}."
        )
    with row:
        keys = [model.label(token) for token in ids]
        rows = (found.cached[layer, head].numpy(), found.full[layer, head].numpy())
        figure = cached_row_figure(CachedRow(*rows, found.allowed[0].numpy(), keys))
        alt = (
            f"The mask of the cached step, {open_cells} of {count} cells open, and under it the newest row of "
            f"L{layer} H{head} by the cached step and by the full run: at most {number(float(found.rows.max()))} apart."
        )
        st.plotly_chart(figure, key="cached_row", config=page.CHART, alt=alt)
        if count > MOST_KEYS:
            st.caption(f"Shown are the last {MOST_KEYS} of {count} keys.")
    with st.expander("How a cached step works"):
        st.markdown(HOW)


@dataclass(frozen=True)
class Measured:
    """What was measured of one reader's text. stopped: by the reader, before all was."""

    model: str
    ids: tuple[int, ...]
    costs: tuple[Cost, ...] = ()
    stopped: bool = False


def _cost(model: Model, ids: tuple[int, ...]) -> None:
    """Counted at every length of the text, measured at some of them; measured once, and again when asked."""
    measured = st.session_state.get("measured")
    if measured is None or measured.model != model.key or measured.ids != ids[: len(measured.ids)]:
        measured = st.session_state.measured = Measured(model.key, ids)
    words, chart, status = st.container(), st.empty(), st.container()
    wanted = step_cost.lengths_to_measure(len(measured.ids))
    missing = [length for length in wanted if length not in {cost.length for cost in measured.costs}]
    if missing and not measured.stopped:
        with status:
            st.button("Stop measuring", icon=":material/stop:", key="stop_measuring", on_click=_stop)
            bar = st.progress(0.0)
        for cost in step_cost.measure(model, measured.ids, missing):
            measured = replace(measured, costs=(*measured.costs, cost))
            st.session_state.measured = measured
            bar.progress(len(measured.costs) / len(wanted), f"{cost.length} of {len(measured.ids)} tokens")
        st.rerun()
    config = kv_cache.network_of(model).config  # type: ignore[union-attr]  # show has looked
    lengths = range(1, len(ids) + 1)
    ordered = sorted(measured.costs, key=lambda cost: cost.length)
    costs = Costs(
        [step_cost.multiply_adds(config, length, length) for length in lengths],
        [step_cost.multiply_adds(config, 1, length) for length in lengths],
        [cost.length for cost in ordered],
        [cost.full for cost in ordered],
        [cost.cached for cost in ordered],
    )
    words.html(f'<p class="sentence">{cost_sentence(costs)}</p>')
    alt = cost_sentence(costs)
    chart.plotly_chart(cost_figure(costs), key="cost_figure", config=page.CHART, alt=alt)
    with status:
        st.caption(
            "Counted: the multiplications of all matrix products and of the last token's logits, from their shapes. "
            f"Measured on this machine, whatever else it is doing: medians of 5 at {len(ordered)} lengths of the first "
            f"{len(measured.ids):,} tokens{', stopped early' if measured.stopped else ''}."
        )
        st.button("Measure this text again", icon=":material/timer:", key="measure", on_click=_measure_anew)


def _stop() -> None:
    st.session_state.measured = replace(st.session_state.measured, stopped=True)


def _measure_anew() -> None:
    st.session_state.pop("measured", None)


def _lift(model: Model, ids: tuple[int, ...]) -> None:
    switch, words = st.columns([1, 3.4], vertical_alignment="center")
    causal = switch.toggle("Causal mask", key="old_rows_causal",
                           help="Of this comparison alone; the text above is always written with it.")  # fmt: skip
    with st.spinner("Running with and without the newest token …", show_time=True):
        changes = {on: _changes(model, ids, on) for on in (True, False)}
        apart = {on: _compared(model, ids, len(ids) - 1, on) for on in (True, False)}
    words.html(f'<p class="sentence">{_lift_sentence(model, ids, changes[causal], apart[causal], causal)}</p>')
    chart, table = st.columns([1.5, 1], gap="large")
    labels = [model.label(token) for token in ids[:-1]]
    with chart:
        figure = old_rows_figure(changes[causal].rows.numpy(), labels, causal=causal)
        alt = f"The largest change of a weight in each of {len(labels)} old rows: up to {_most(changes[causal].rows)}."
        st.plotly_chart(figure, key="old_rows", config=page.CHART, alt=alt)
    with table:
        both = (True, False)
        st.html(differences_table(
            ("when the newest token is added, largest", "mask on", "mask lifted"),
            [
                ("change of an old row's weight", [float(changes[on].rows.max()) for on in both]),
                ("change of an old key or value, layer 0", [float(changes[on].kept[0]) for on in both]),
                ("change of an old key or value, all layers", [float(changes[on].kept.max()) for on in both]),
                ("change of an old position's logit", [float(changes[on].logits.max()) for on in both]),
                ("error of the cached step's logits", [float(apart[on].logits.max()) for on in both]),
            ],
        ))  # fmt: skip
    st.caption(
        "Two runs, one of the text without its newest token and one with it, and the old rows of both compared. A "
        "layer's keys and values are made of what the layers before gathered: in layer 0 that is the token and its "
        "position alone, in later layers everything the old rows could see."
    )


def _lift_sentence(model: Model, ids: tuple[int, ...], change: OldRows, apart: Comparison, causal: bool) -> str:
    newest, rows = _quoted(model, ids[-1]), len(change.rows)
    changed = int((change.rows > NOTICED).sum())
    if causal:
        return (
            f"Under the causal mask the newest token, {newest}, changes {changed} of the {rows} rows above it: their "
            f"weights differ by {_most(change.rows)}, the keys and values by {_most(change.kept)}. So what a cache "
            f"kept is still right: a cached step's logits are within {_most(apart.logits)} of the full run's."
        )
    ours, theirs = apart.guesses
    guess = (
        f"it would go on with {_quoted(model, ours)} where the full run goes on with {_quoted(model, theirs)}"
        if ours != theirs
        else f"both would still go on with {_quoted(model, theirs)}"
    )
    return (
        f"Without the causal mask the newest token, {newest}, changes {changed} of the {rows} rows above it: a weight "
        f"by up to {_most(change.rows)}, the keys and values that a cache had kept by up to {_most(change.kept)}. A "
        f"cached step goes by the old ones: its logits are off by {_most(apart.logits)}; {guess}."
    )


def _compared(model: Model, ids: tuple[int, ...], start: int, causal: bool = True) -> Comparison:
    spec = replace(model.standard, causal=causal)
    key = ("cached", model.key, ids, start, causal)
    return results.shared().get(key, lambda: kv_cache.compare(model, ids, start, spec))


def _compared_exactly(model: Model, ids: tuple[int, ...], start: int) -> Comparison | None:
    """As _compared, in float64; None for a model that is too large for that."""
    if not kv_cache.fits_float64(model):
        return None
    key = ("cached in float64", model.key, ids, start)
    return results.shared().get(key, lambda: kv_cache.compare(kv_cache.in_float64(model), ids, start))


def _changes(model: Model, ids: tuple[int, ...], causal: bool) -> OldRows:
    spec = replace(model.standard, causal=causal)
    return results.shared().get(("old rows", model.key, ids, causal), lambda: old_rows(model, ids, spec))


def _quoted(model: Model, token: int) -> str:
    return f"“{html.escape(model.label(token))}”"


def _most(differences: Tensor) -> str:
    return number(float(differences.max()))
