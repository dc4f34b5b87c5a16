"""A lesson's step: its runs and the answer to its question; pictures other than a head's, drawn by
viz/lessons/pictures.py, with their controls; the page that it opens."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args
from urllib.parse import parse_qsl

import numpy as np
import pandas as pd
import streamlit as st
from markupsafe import Markup

from i18n import N_, say
from lessons.image_steps import encoded, rendered_scene
from lessons.lesson import Step
from lessons.picture_data import picture_data
from lessons.questions import Answer, answer
from model import catalog
from model.base import MAX_ROWS, TokenizedText
from model.errors import CheckpointError
from model.heads.vectors import FOUR_TOKENS, MAX_NUMBER, Added, Precision, RunScores, four_token_steps, run_scores
from model.heads.view import HeadView
from model.masks import NATIVE, MaskSpec
from serving.job import ModelRef, RunRef
from serving.loaded_models import PAGE_MODELS
from ui import page, results, run_view
from ui.guard import message_for
from ui.markdown import escaped
from ui.run_view import RunView
from ui.sidebar import models, speech
from viz.lessons import pictures
from viz.lessons.screen import row_tokens
from viz.sentence import comparable

PAGE_NAMES = {
    "explore": ("app.py", N_("Explore")),
    "mask_lab": ("pages/mask_lab.py", N_("Mask Lab")),
    "layers": ("pages/layers.py", N_("Across layers")),
    "generation": ("pages/generation.py", N_("Generation")),
    "serving": ("pages/serving.py", N_("Serving")),
    "padding": ("pages/padding.py", N_("Padding")),
    "why_causal": ("pages/why_causal.py", N_("Why causal")),
}
SHIPPED = (  # models that every server has for lessons, besides the checkpoints of "induction"
    *filter(catalog.ships, catalog.ENTRIES),
    *(name for name in PAGE_MODELS if name != "digits" and not catalog.ships(name)),
)
NOTHING = {"": N_("nothing")}
THEN = NOTHING | {"multiply": N_("multiply by the mask"), "zero": N_("fully blocked row: 0")}


def pair(step: Step) -> tuple[RunView, RunView]:
    """Return the run that the step shows, and the run that it is compared with. Raises what loading a model and
    tokenizing a text raise, ValueError for a row or head that does not exist."""
    check_models(step)
    other = step.beside
    now = _view(step, step.model, step.text, step.masks, step.image)
    values = other.model or step.model, other.text or step.text, other.masks, other.image or step.image
    return now, _view(step, *values)


def check_models(step: Step) -> None:
    """Raise ValueError, with its line, for a model that is not offered, and for an invalid name. Uses no network."""
    given = models.settings()
    if given.models:
        given = given.model_copy(update={"models": tuple(dict.fromkeys((*SHIPPED, *given.models)))})
    for setting, name in (("model", step.model), ("beside", step.beside.model)):
        try:
            if name and name not in PAGE_MODELS:
                catalog.check_name(name, given)
        except CheckpointError as error:
            raise step.wrong(setting, message_for(error)) from None


def answered(step: Step, now: RunView, compared: RunView) -> Answer:
    """Return the answer to the step's question, computed from its runs. Raises ValueError if they do not allow it."""
    assert step.ask is not None
    try:
        subject = step.asked(series(step, now))
        return results.ask(answer, now.run.model, now.run, compared.run, compared.model.name, subject)
    except ValueError as error:
        raise step.wrong("ask", message_for(error)) from None


def _view(step: Step, name: str, text: str, masks: MaskSpec | None, image: str | None) -> RunView:
    model = models.loaded().own(name) if name in PAGE_MODELS else models.get(name)
    batch = encoded(step.wrong, model, name, image, text)
    read = TokenizedText([], batch, 0) if batch else run_view.tokenize(model, text, step.pad, None, MAX_ROWS)
    step.check(model, name, text, read)
    spec = model.standard if masks is None else masks
    return RunView(model, RunRef(ModelRef.of(model), read.batch, spec, step.attention), spec, step.row - 1)


def query_of(step: Step, now: RunView) -> int:
    """Return the position of the step's query; by default, the row's last real token."""
    return now.real.stop - 1 if step.query is None else step.query


def heads(step: Step, now: RunView, compared: RunView | None) -> tuple[HeadView, HeadView | None]:
    """Return the step's head, and the one compared with it: None if there is none, or no difference can be drawn."""
    view, other = now.head(*step.head), compared and compared.head(*step.head)
    return view, other if other and comparable(view, other) else None


def tokens(step: Step, now: RunView, query: int | None) -> Markup:
    """Return HTML: the row's tokens, with the step's image if it has one; the query's token is highlighted."""
    if step.image:
        return pictures.image_and_words(rendered_scene(step.image), now.tokens, query)
    return row_tokens(now.tokens, query, now.key_tokens if now.run.attention == "cross" else ())


def show(step: Step, now: RunView) -> None:
    """Draw the step's picture; for a row of four tokens every stage, with a table to change all of its numbers."""
    if step.numbers is None:
        st.html(still(step, now))
        return
    first = step.numbers
    slot, key = st.container(), f"row_{st.session_state.lesson_step}_{hash(first)}"
    with st.expander(say("Change the numbers"), icon=":material/edit:"):
        columns = {"k1": 0, "k2": 1, "v1": 0, "v2": 1}
        pairs = {name: [pair[index] for pair in (first.keys if name[0] == "k" else first.values)]
                 for name, index in columns.items()}  # fmt: skip
        number = {name: st.column_config.NumberColumn(min_value=-MAX_NUMBER, max_value=MAX_NUMBER) for name in pairs}
        blocked = {say("blocked"): [index in first.blocked for index in range(len(FOUR_TOKENS))]}
        table = pd.DataFrame(pairs | blocked, index=list(FOUR_TOKENS))
        rows = st.data_editor(table, key=f"{key}_rows", column_config=number).fillna(0.0)
        rows = rows.where(rows == table, rows.round(2))  # as they are shown
        with st.container(horizontal=True):
            query = []
            for index, value in enumerate(map(float, first.query)):
                field = st.number_input(f"q{index + 1}", -MAX_NUMBER, MAX_NUMBER, value, key=f"{key}_q{index}")
                query.append(value if field == value else round(field, 2))  # as it is shown
            add = _chosen(say("added to blocked scores"), [*get_args(Added), ""], first.add, f"{key}_add")
            precision = _chosen(say("precision"), get_args(Precision), first.precision, f"{key}_precision")
            then = _chosen(say("after the softmax"), [*THEN], first.then, f"{key}_then", THEN)
    k, v = (rows[[f"{name}1", f"{name}2"]].to_numpy(np.float64) for name in "kv")
    closed = tuple(np.flatnonzero(rows[say("blocked")]).tolist())
    keys, values = (tuple(map(tuple, numbers.tolist())) for numbers in (k, v))
    own: dict[str, Any] = {"query": tuple(query), "keys": keys, "values": values, "blocked": closed}
    typed = replace(first.plain, **own, add=add, precision=precision, then=then)
    slot.html(pictures.numbers(typed, results.ask(four_token_steps, typed)))


def still(step: Step, now: RunView) -> Markup:
    """Return the step's picture before anything in it is changed, except the chosen checkpoint of a training."""
    if step.numbers is not None:
        return pictures.numbers(step.numbers.plain, results.ask(four_token_steps, step.numbers.plain))
    found = series(step, now)
    if found:
        numbers, scores = zip(*found, strict=True)
        return pictures.training(numbers, scores, numbers.index(checkpoint(step)))
    (layer, head), query = step.head, query_of(step, now)
    data = results.ask(picture_data, now.run.model, now.run, step.show, now.row, layer, head, query)
    keys = now.key_tokens if step.attention == "cross" else ()
    return pictures.picture(step.show, data, now.tokens, query, keys)


def _chosen(label: str, options: Sequence[str], first: str, key: str, labels: Mapping[str, str] = NOTHING) -> Any:
    return st.selectbox(label, options, options.index(first), lambda option: say(labels.get(option, option)), key=key)


def series(step: Step, now: RunView) -> tuple[tuple[int, RunScores], ...]:
    """Return the training steps of the induction model's checkpoints, and the scores of each on the step's text."""
    if step.show != "training":
        return ()
    return tuple(
        (number, results.ask(run_scores, _at(name, now).run, now.row))
        for name, number in catalog.induction_steps().items()
    )


def _at(name: str, now: RunView) -> RunView:
    """Return a view of the same text on another checkpoint, which has the same tokenizer."""
    model = models.loaded().own(name)
    run = RunRef(ModelRef.of(model), now.run.batch, now.run.spec, now.run.attention)
    return RunView(model, run, now.masks, now.row)


def training(step: Step, now: RunView) -> RunView:
    """Draw the curves of the induction model's training, and a slider over its steps. Returns the chosen step's run."""
    slot, found = st.container(), series(step, now)
    names = dict(zip((number for number, _ in found), catalog.induction_steps(), strict=True))
    begin = catalog.induction_steps()[step.model]
    chosen = st.select_slider(say("Training step"), [*names], begin, key=_slider())
    numbers, scores = zip(*found, strict=True)
    ink = "#E6E6E6" if page.is_dark() else "#20242B"
    slot.html(pictures.training(numbers, scores, numbers.index(chosen), ink))
    return _at(names[chosen], now)


def checkpoint(step: Step) -> int:
    """Return the training step on the slider of a step with a training, by default its own; -1 for other pictures."""
    if step.show != "training":
        return -1
    chosen: int = st.session_state.get(_slider(), catalog.induction_steps()[step.model])
    return chosen


def _slider() -> str:
    return f"lesson_training_{st.session_state.get('lesson_step')}"  # each step has its own slider


def open_page(step: Step) -> None:
    """Draw a link to the page that shows the same in full, unless this server offers the model only to lessons."""
    trained = catalog.induction_steps().get(step.model)
    model = step.model if trained is None else "induction"
    if not step.page or (model in catalog.ENTRIES and model not in catalog.offered(models.settings())):
        return
    name, _, more = step.page.partition("?")
    to, label = PAGE_NAMES[name]
    (layer, head), masks = step.head, step.masks
    link = {"model": model, "text": step.text, "layer": str(layer), "head": str(head)}
    link |= {} if trained is None else {"training_step": str(trained)}
    link |= {"row": str(step.row), "pad": step.pad, "attention": step.attention}
    link |= {} if step.query is None else {"query": str(step.query)}
    if masks is not None:  # the Mask Lab has all masks, the other pages those with a switch
        switches = {kind: str(getattr(masks, kind)).lower() for kind in NATIVE}
        link |= {"masks": masks.to_json()} if name == "mask_lab" else switches
    link |= parse_qsl(more)
    label_text = say("Open this on the page {page}", page=say(label))
    st.page_link(to, label=escaped(label_text), icon=":material/open_in_new:", query_params=speech.in_links() | link)
