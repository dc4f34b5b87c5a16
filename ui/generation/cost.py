"""What a step costs: counted at every length of the text, measured at some of them."""

from dataclasses import dataclass, replace

import streamlit as st

from i18n import N_, say
from model import kv_cache
from model.base import Model
from model.generation import step_cost
from model.generation.step_cost import Try
from serving.job import ModelRef, RunRef
from ui import page, results
from viz.generation.cache import Costs, cost_figure, cost_sentence

COUNTED = N_(
    "Counted: the multiplications of all matrix products and of the last token's logits, from their shapes. Measured "
    "on this machine under its current load: the fastest of up to {rounds} runs at each of {lengths} lengths of the "
    "first {tokens:,} tokens, in turn."
)
STOPPED = N_(
    "Counted: the multiplications of all matrix products and of the last token's logits, from their shapes. Measured "
    "on this machine under its current load: the fastest of up to {rounds} runs at each of {lengths} lengths of the "
    "first {tokens:,} tokens, in turn, stopped early."
)


@dataclass(frozen=True)
class MeasuredCost:
    """What was measured of one reader's text. stopped: by the reader, before all was."""

    model: str
    ids: tuple[int, ...]
    tries: tuple[Try, ...] = ()
    stopped: bool = False


def show(model: Model, ids: tuple[int, ...]) -> None:
    """Measured once, and again when asked; the reader may stop it."""
    measured = st.session_state.get("measured")
    if measured is None or measured.model != model.key or measured.ids != ids[: len(measured.ids)]:
        measured = st.session_state.measured = MeasuredCost(model.key, ids)
    words, chart, status = st.container(), st.empty(), st.container()
    plan = step_cost.plan(len(measured.ids))
    missing = plan[len(measured.tries) :]
    if missing and not measured.stopped:
        with status:
            st.button(say("Stop measuring"), icon=":material/stop:", key="stop_measuring", on_click=_stop)
            bar = st.progress(0.0)
        ref = ModelRef.of(model)
        run = RunRef(ref, kv_cache.batch_of(model, measured.ids), model.standard)
        for length in missing:
            one = results.ask_anew(step_cost.measure, ref, run, length)
            measured = replace(measured, tries=(*measured.tries, one))
            st.session_state.measured = measured
            done = len(measured.tries)
            bar.progress(done / len(plan), say("Run {number} of {count}", number=done, count=len(plan)))
        st.rerun()
    costs = _costs(model, ids, measured)
    sentence = cost_sentence(costs)
    words.html(f'<p class="sentence">{sentence}</p>')
    chart.plotly_chart(cost_figure(costs), key="cost_figure", config=page.CHART, alt=sentence)
    with status:
        how = STOPPED if measured.stopped else COUNTED
        st.caption(say(how, rounds=step_cost.ROUNDS, lengths=len(costs.lengths), tokens=len(measured.ids)))
        st.button(say("Measure this text again"), icon=":material/timer:", key="measure", on_click=_measure_anew)


def _costs(model: Model, ids: tuple[int, ...], measured: MeasuredCost) -> Costs:
    config = kv_cache.network_of(model).config  # type: ignore[union-attr]  # the page has looked
    lengths = range(1, len(ids) + 1)
    found = step_cost.costs(measured.tries)
    return Costs(
        [step_cost.multiply_adds(config, length, length) for length in lengths],
        [step_cost.multiply_adds(config, 1, length) for length in lengths],
        [cost.length for cost in found],
        [cost.full for cost in found],
        [cost.cached for cost in found],
        step_cost.clear(found),
    )


def _stop() -> None:
    st.session_state.measured = replace(st.session_state.measured, stopped=True)


def _measure_anew() -> None:
    st.session_state.pop("measured", None)
