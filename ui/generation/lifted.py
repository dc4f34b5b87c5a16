"""The causal mask lifted: every new token changes the rows above it, and what a cache kept is wrong."""

import streamlit as st
from markupsafe import Markup
from torch import Tensor

from i18n import say
from model.base import Model
from model.generation.step_cost import OldRows, old_rows
from model.kv_cache import CacheComparison
from serving.job import ModelRef
from ui import page, results
from ui.generation.same_numbers import compared
from viz.generation.cache import differences_table, old_rows_figure
from viz.numbers import number

NOTICED = 1e-5  # a change that is no rounding


def show(model: Model, ids: tuple[int, ...]) -> None:
    """The rows above the newest, in a run without its token and in one with it, under the mask and without."""
    switch, words = st.columns([1, 3.4], vertical_alignment="center")
    causal = switch.toggle(say("Causal mask"), key="old_rows_causal",
                           help=say("Applies only to this comparison; the text above is always generated with the "
                                    "causal mask."))  # fmt: skip
    with st.spinner(say("Running with and without the newest token …"), show_time=True):
        changes = {on: _changes(model, ids, on) for on in (True, False)}
        apart = {on: compared(model, ids, len(ids) - 1, on) for on in (True, False)}
    words.html(f'<p class="sentence">{_lift_sentence(model, ids, changes[causal], apart[causal], causal)}</p>')
    chart, table = st.columns([1.5, 1], gap="large")
    labels = [model.label(token) for token in ids[:-1]]
    with chart:
        figure = old_rows_figure(changes[causal].rows.numpy(), labels, causal=causal)
        alt = say(
            "The largest change of a weight in each of {rows} old rows: up to {most}.",
            rows=len(labels), most=_most(changes[causal].rows),
        )  # fmt: skip
        st.plotly_chart(figure, key="old_rows", config=page.CHART, alt=alt)
    with table:
        both = (True, False)
        st.html(differences_table(
            (say("when the newest token is added, largest"), say("mask on"), say("mask lifted")),
            [
                (say("change of an old row's weight"), [float(changes[on].rows.max()) for on in both]),
                (say("change of an old key or value, layer 0"), [float(changes[on].kept[0]) for on in both]),
                (say("change of an old key or value, all layers"), [float(changes[on].kept.max()) for on in both]),
                (say("change of an old position's logit"), [float(changes[on].logits.max()) for on in both]),
                (say("error of the cached step's logits"), [float(apart[on].logits.max()) for on in both]),
            ],
        ))  # fmt: skip
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


def _changes(model: Model, ids: tuple[int, ...], causal: bool) -> OldRows:
    spec = model.standard.replace(causal=causal)
    return results.ask(old_rows, ModelRef.of(model), ids, spec)


def _most(differences: Tensor) -> str:
    return number(float(differences.max()))
