"""The option “Ask me first”: when the user flips a mask, ask what will change, and show the result after an answer."""

from dataclasses import replace
from typing import Any

import streamlit as st

from i18n import N_, say
from lessons.questions import Answer, QuestionSubject, answer
from model.base import Model
from model.heads.merging import By
from model.masks import MaskSpec
from model.text import TokenBatch
from serving.job import ModelRef, RunRef, digest, shape_of
from ui import results
from ui.guard import MODEL_ERRORS
from ui.heads import query as queries
from ui.markdown import escaped
from ui.run_view import RunView
from ui.streamlit_internals.selectors import css
from viz.components import source
from viz.lessons import screen
from viz.lessons.screen import verdict_on

ASKS = {  # asked in turn; a question that does not fit the runs is skipped
    "loss": N_("With these masks, will the mean loss go down, go up or stay the same?"),
    "future": N_("How much of this head's attention will go to later tokens?"),
    "padding": N_("How much of this head's attention will go to padding?"),
    "looks": N_("Under these masks, which token will {query} attend to most?"),
    "next": N_("Under these masks, which token will the model predict after {query}?"),
    "row": N_("Will the weights in the row of {query} change?"),
    "sees": N_("Under these masks, how many tokens may {query} attend to?"),
}
TURNS = tuple(ASKS)
ASKING = N_("This is the run before the change. Answer the question to see the run after it.")

ANSWER = source("shortcuts.js") + "\nexport default letShortcutsAnswer;"  # not shown
_shortcuts = st.components.v2.component("unmask_shortcuts", html="<span></span>", js=ANSWER)


def switch() -> None:
    """Draw the switch of the option, off by default; its state is shared by the pages of a session."""
    state = st.session_state
    state.ask_first_on = state.get("ask_first", False)
    about = say(
        "When you flip a mask, the page asks what will change before it shows the result. It asks nothing while “this "
        "layer only” is selected."
    )
    take = lambda: state.update(ask_first=state.ask_first_on)  # noqa: E731
    st.toggle(say("Ask me first"), key="ask_first_on", on_change=take, help=about)
    if state.get("ask_first"):
        _shortcuts(key="listening_shortcuts")  # CSS hides keys that begin with "listening_" (ui/page.py)


def masks_to_show(
    model: Model,
    batch: TokenBatch,
    spec: MaskSpec,
    row: int,
    attention: str,
    layer: int,
    head: int,
    by: By = "tokens",
) -> MaskSpec:
    """Return the masks to draw: spec or, until the user has answered a question about it, the previous masks. by: what
    the query's position counts."""
    state = st.session_state
    if not state.get("ask_first"):
        state.pop("first_shown", None)
        return spec
    about = model.key, digest((shape_of(batch), batch.texts)), row, attention
    seen_about, before = state.get("first_shown", (None, spec))
    if seen_about != about or before == spec:
        state.first_shown = about, spec
        subject, verdict = state.get("first_verdict", (None, ""))
        if subject == (about, spec, layer, head):
            st.html(css(screen.STYLE))
            st.html(verdict)
        return spec
    refs = [RunRef(ModelRef.of(model), batch, masks, attention) for masks in (spec, before)]
    view = RunView(model, refs[0], spec, row, by)
    asked_of = view.last_token(queries.chosen(view))
    found = _question(model, refs, QuestionSubject("", row, layer, head, asked_of), spec, before)
    if found is None:
        state.first_shown = about, spec
        return spec
    kind, answered = found

    def commit(choice: int) -> None:
        state.first_shown, state.first_kind = (about, spec), kind
        state.first_verdict = (about, spec, layer, head), verdict_on(answered, choice)

    with st.container(border=True):
        query = answered.why.values.get("query")
        st.markdown(f"**{escaped(say(ASKS[kind], query=screen.plain(query) if query else ''))}**")
        with st.container(horizontal=True):
            for number, choice in enumerate(answered.choices):
                look: Any = {"key": f"first_{number}", "shortcut": str(number + 1)}
                st.button(escaped(screen.plain(choice)), on_click=commit, args=(number,), **look)
    return before


def _question(
    model: Model, runs: list[RunRef], about: QuestionSubject, spec: MaskSpec, before: MaskSpec
) -> tuple[str, Answer] | None:
    """Return the next kind of question that fits these runs, with its answer, or None. about: its kind is ignored."""
    begin = (TURNS.index(st.session_state.get("first_kind", TURNS[-1])) + 1) % len(TURNS)
    lifted = {name for name in ("causal", "padding") if getattr(before, name) and not getattr(spec, name)}
    predicts = model.kind != "encoder" and model.predicts
    asked_of = {"loss": predicts, "next": predicts, "future": "causal" in lifted}
    asked_of["padding"] = "padding" in lifted and not bool(runs[0].keys.keep[about.row].all())
    for kind in (*TURNS[begin:], *TURNS[:begin]):
        if not asked_of.get(kind, True):
            continue
        try:
            return kind, results.ask(answer, ModelRef.of(model), *runs, model.name, replace(about, kind=kind))
        except MODEL_ERRORS:
            continue  # it cannot be asked of this text: try the next kind
    return None
