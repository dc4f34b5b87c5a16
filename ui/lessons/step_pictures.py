"""Pictures of a step beyond a head, drawn by viz/lessons/pictures.py, with what can be changed in them; a number typed
as an answer; the page that a step opens."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pandas as pd
import streamlit as st
from markupsafe import Markup

from i18n import N_, say
from lessons.answer import Answer
from lessons.lesson import FourTokenRow, Step
from lessons.picture_data import picture_data
from model import catalog
from model.heads.vectors import MOST, TOKENS, Added, Precision, RunScores, four_token_steps, run_scores
from serving.job import ModelRef, RunRef
from ui import page, results
from ui.lessons import choices
from ui.markdown import escaped
from ui.results import cached_figure
from ui.run_view import RunView
from ui.sidebar import models, speech
from viz.lessons import pictures

PAGE_NAMES = {
    "explore": ("app.py", N_("Explore")),
    "mask_lab": ("pages/mask_lab.py", N_("Mask Lab")),
    "layers": ("pages/layers.py", N_("Across layers")),
    "generation": ("pages/generation.py", N_("Generation")),
    "serving": ("pages/serving.py", N_("Serving")),
    "padding": ("pages/padding.py", N_("Padding")),
    "why_causal": ("pages/why_causal.py", N_("Why causal")),
}
NOTHING = {"": N_("nothing")}
THEN = NOTHING | {"multiply": N_("multiply by the mask"), "zero": N_("fully blocked row: 0")}


def show(step: Step, now: RunView) -> None:
    """The step's picture."""
    if step.numbers is not None:
        _numbers(step.numbers)
        return
    st.html(still(step, now))


def still(step: Step, now: RunView) -> Markup:
    """The step's picture as it is before anything in it is changed."""
    if step.numbers is not None:
        return pictures.numbers(step.numbers.plain, results.ask(four_token_steps, step.numbers.plain))
    found = series(step, now)
    if found:
        numbers, scores = zip(*found, strict=True)
        return pictures.training(numbers, scores, len(numbers) - 1)
    (layer, head), query = step.head, now.real.stop - 1 if step.query is None else step.query
    data = results.ask(picture_data, now.run.model, now.run, step.show, now.row, layer, head, query)
    return pictures.picture(step.show, data, now.tokens, query)


def given(numbers: FourTokenRow) -> None:
    """What is given of a row of four tokens, before its question is answered."""
    st.html(cached_figure(pictures.numbers, numbers.plain, None))


def _numbers(first: FourTokenRow) -> None:
    """The row with every stage, and all of its numbers to be changed."""
    slot, key = st.container(), f"row_{hash(first)}"
    with st.expander(say("Change the numbers"), icon=":material/edit:"):
        columns = {"k1": 0, "k2": 1, "v1": 0, "v2": 1}
        pairs = {name: [(first.keys if name[0] == "k" else first.values)[place][one] for place in range(len(TOKENS))]
                 for name, one in columns.items()}  # fmt: skip
        number = {name: st.column_config.NumberColumn(min_value=-MOST, max_value=MOST) for name in pairs}
        blocked = {say("blocked"): [place in first.blocked for place in range(len(TOKENS))]}
        table = pd.DataFrame(pairs | blocked, index=list(TOKENS))
        rows = st.data_editor(table, key=f"{key}_rows", column_config=number).fillna(0.0)
        with st.container(horizontal=True):
            query = [_query_number(key, place, value) for place, value in enumerate(first.query)]
            add = _chosen(say("added to blocked scores"), [*get_args(Added), ""], first.add, f"{key}_add")
            precision = _chosen(say("precision"), get_args(Precision), first.precision, f"{key}_precision")
            then = _chosen(say("after the softmax"), [*THEN], first.then, f"{key}_then", THEN)
    k, v = (rows[[f"{name}1", f"{name}2"]].to_numpy(np.float64) for name in "kv")
    closed = tuple(np.flatnonzero(rows[say("blocked")]).tolist())
    keys, values = (tuple(map(tuple, numbers.tolist())) for numbers in (k, v))
    now = replace(
        first.plain,
        query=tuple(query),
        keys=keys,
        values=values,
        blocked=closed,
        add=add,
        precision=precision,
        then=then,
    )
    slot.html(pictures.numbers(now, results.ask(four_token_steps, now)))


def _query_number(key: str, place: int, value: float) -> float:
    return float(st.number_input(f"q{place + 1}", -MOST, MOST, float(value), key=f"{key}_q{place}"))


def _chosen(label: str, options: Sequence[str], first: str, key: str, words: Mapping[str, str] = NOTHING) -> Any:
    return st.selectbox(label, options, options.index(first), lambda one: say(words.get(one, one)), key=key)


def series(step: Step, now: RunView) -> tuple[tuple[int, RunScores], ...]:
    """The training steps of the induction model's checkpoints, and the scores of each on the step's text."""
    if step.show != "training":
        return ()
    return tuple(
        (number, results.ask(run_scores, _at(name, now).run, now.row))
        for name, number in catalog.induction_steps().items()
    )


def _at(name: str, now: RunView) -> RunView:
    """The same text on another checkpoint: their tokenizers are the same."""
    model = models.loaded().own(name)
    run = RunRef(ModelRef.of(model), now.run.batch, now.run.spec, now.run.attention)
    return RunView(model, run, now.masks, now.row)


def training(step: Step, now: RunView) -> RunView:
    """The curves of the induction model's training, a slider over its steps; the run of the chosen one."""
    slot, found = st.container(), series(step, now)
    names = dict(zip((number for number, _ in found), catalog.induction_steps(), strict=True))
    begin = next((number for number, name in names.items() if name == step.model), found[-1][0])
    chosen = st.select_slider(say("Training step"), [*names], begin, key="lesson_training")
    numbers, scores = zip(*found, strict=True)
    ink = "#E6E6E6" if page.is_dark() else "#20242B"
    slot.html(pictures.training(numbers, scores, numbers.index(chosen), ink))
    return _at(names[chosen], now)


def type_number(answer: Answer, name: str, number: int) -> None:
    """A field for the number that a question asks for, and what takes it."""

    def take() -> None:
        if st.session_state.typed_answer is not None:
            choices.give(name, number, answer.typed(float(st.session_state.typed_answer)))

    with st.container(horizontal=True, vertical_alignment="bottom"):
        within = say("A number; up to {within:g} away counts as right", within=answer.within)
        st.number_input(within, value=None, step=0.01 if answer.within < 1 else 1.0, key="typed_answer")
        st.button(say("Check"), key="check_answer", on_click=take)


def open_page(step: Step) -> None:
    """A link to the page that shows the same in full."""
    if not step.page:
        return
    to, label = PAGE_NAMES[step.page]
    (layer, head), masks = step.head, step.masks
    link = {"model": step.model, "text": step.text, "layer": str(layer), "head": str(head)}
    link |= {} if masks is None else {"masks": masks.to_json()}
    words = say("Open this on the page {page}", page=say(label))
    st.page_link(to, label=escaped(words), icon=":material/open_in_new:", query_params=speech.in_links() | link)
