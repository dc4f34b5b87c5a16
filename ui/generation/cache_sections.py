"""The sections about the key-value cache, one at a time: what it changes, what it saves, why it needs the mask."""

from dataclasses import dataclass, replace

import streamlit as st
from markupsafe import Markup
from torch import Tensor

from i18n import N_, say
from model import kv_cache, step_cost
from model.base import Model
from model.kv_cache import CacheComparison
from model.step_cost import OldRows, Try, old_rows
from serving.job import ModelRef, RunRef
from ui import explain, page, results
from ui.generation import same_numbers
from ui.generation.same_numbers import compared
from ui.generation.writing import Writing
from ui.guard import guarded
from ui.widgets.choices import one_of
from viz.generation.cache import Costs, cost_figure, cost_sentence, differences_table, old_rows_figure
from viz.numbers import number

SECTIONS = {
    "cache": N_("The cache on and off: the same numbers"),
    "cost": N_("What a step costs"),
    "lift": N_("Lift the causal mask: old rows change"),
}
NOT_OURS = N_(
    "The key-value cache is shown for models that run on our own Transformer: the story model, GPT-2 and folders in "
    "its layout. {model} runs on its own code here, every step in full."
)


def show(model: Model, writing: Writing, cache: bool, layer: int, head: int) -> None:
    """The section that is chosen; the others are not computed, and none while the text plays."""
    if kv_cache.network_of(model) is None:
        st.caption(say(NOT_OURS, model=explain.title_of(model)))
        return
    one_of(say("Section"), SECTIONS, "generation_section", label_visibility="collapsed")
    ids = writing.path.ids
    if writing.playing:
        st.caption(say("Pause, and this section is computed for the text as it is then."))
        return
    if len(ids) < 2:
        st.caption(say("A cache needs a position before the newest: write a token first."))
        return
    with guarded():
        if st.session_state.generation_section == "cache":
            same_numbers.show(model, writing, cache, layer, head)
        elif st.session_state.generation_section == "cost":
            show_cost(model, ids)
        else:
            show_lifted(model, ids)


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


def show_cost(model: Model, ids: tuple[int, ...]) -> None:
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
    words.html(page.sentence(sentence))
    with chart:
        page.chart(cost_figure(costs), "cost_figure", sentence)
    with status:
        how = STOPPED if measured.stopped else COUNTED
        st.caption(say(how, rounds=step_cost.ROUNDS, lengths=len(costs.lengths), tokens=len(measured.ids)))
        anew = lambda: st.session_state.update(measured=None)  # noqa: E731
        st.button(say("Measure this text again"), icon=":material/timer:", key="measure", on_click=anew)


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


NOTICED = 1e-5  # a change that is no rounding


def show_lifted(model: Model, ids: tuple[int, ...]) -> None:
    """The rows above the newest, in a run without its token and in one with it, under the mask and without."""
    switch, sentence = st.columns([1, 3.4], vertical_alignment="center")
    about = say("Applies only to this comparison; the text above is always generated with the causal mask.")
    causal = switch.toggle(say("Causal mask"), key="old_rows_causal", help=about)
    specs = {on: model.standard.replace(causal=on) for on in (True, False)}
    with st.spinner(say("Running with and without the newest token …"), show_time=True):
        changes = {on: results.ask(old_rows, ModelRef.of(model), ids, spec) for on, spec in specs.items()}
        apart = {on: compared(model, ids, len(ids) - 1, on) for on in specs}
    sentence.html(page.sentence(_lift_sentence(model, ids, changes[causal], apart[causal], causal)))
    chart, table = st.columns([1.5, 1], gap="large")
    labels = [model.label(token) for token in ids[:-1]]
    with chart:
        figure = old_rows_figure(changes[causal].rows.numpy(), labels, causal=causal)
        words = N_("The largest change of a weight in each of {rows} old rows: up to {most}.")
        page.chart(figure, "old_rows", say(words, rows=len(labels), most=_most(changes[causal].rows)))
    with table:
        heading = say("when the newest token is added, largest"), say("mask on"), say("mask lifted")
        both = changes.values()
        rows = [
            (say("change of an old row's weight"), [float(change.rows.max()) for change in both]),
            (say("change of an old key or value, layer 0"), [float(change.kept[0]) for change in both]),
            (say("change of an old key or value, all layers"), [float(change.kept.max()) for change in both]),
            (say("change of an old position's logit"), [float(change.logits.max()) for change in both]),
            (say("error of the cached step's logits"), [float(step.logits.max()) for step in apart.values()]),
        ]
        st.html(differences_table(heading, rows))
    st.caption(
        say(
            "The model runs on the text with and without its newest token, and the old rows of both runs are "
            "compared. A layer's keys and values are computed from the output of the layers before it: in layer 0 "
            "from the token and its position alone, in later layers from everything the old rows could see."
        )
    )


def _lift_sentence(model: Model, ids: tuple[int, ...], change: OldRows, apart: CacheComparison, causal: bool) -> Markup:
    found = {
        "newest": model.label(ids[-1]),
        "changed": int((change.rows > NOTICED).sum()),
        "rows": len(change.rows),
        "weights": _most(change.rows),
        "kept": _most(change.kept),
        "logits": _most(apart.logits),
    }
    if causal:
        words = say(
            "Under the causal mask the newest token, “{newest}”, changes {changed} of the {rows} rows above it: their "
            "weights differ by {weights}, the keys and values by {kept}. So the cached keys and values are still "
            "valid: a cached step's logits are within {logits} of the full run's."
        )
        return Markup(words).format(**found)
    ours, theirs = apart.guesses
    found |= {"ours": model.label(ours), "theirs": model.label(theirs)}
    if ours != theirs:
        words = say(
            "Without the causal mask the newest token, “{newest}”, changes {changed} of the {rows} rows above it: a "
            "weight by up to {weights}, the cached keys and values by up to {kept}. A cached step uses the old ones: "
            "its logits are off by {logits}; it would continue with “{ours}” where the full run continues with "
            "“{theirs}”."
        )
    else:
        words = say(
            "Without the causal mask the newest token, “{newest}”, changes {changed} of the {rows} rows above it: a "
            "weight by up to {weights}, the cached keys and values by up to {kept}. A cached step uses the old ones: "
            "its logits are off by {logits}; both would still continue with “{theirs}”."
        )
    return Markup(words).format(**found)


def _most(differences: Tensor) -> str:
    return number(float(differences.max()))
