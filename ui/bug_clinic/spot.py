"""The game "Spot the bug": a heatmap, four candidates, a hint, the answer and why, and the score of this session."""

import secrets
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from i18n import N_, say
from model.attention import AttentionStages
from model.bug_clinic.case import Bug
from model.bug_clinic.comparison import BY_KEY
from model.bug_clinic.spot import HeatmapDifference, Puzzle, difference, following, puzzle, stages_of
from model.heads.view import HeadView
from ui import results
from ui.bug_clinic import controls, explanations, heatmaps
from ui.markdown import escaped
from ui.run_view import RunView
from viz.bug_clinic import told_apart


def game() -> dict[str, Any]:
    """This session's game: the first puzzle's number, the puzzle, its run, the answer given, and the score."""
    if "spot" not in st.session_state:
        linked = st.session_state.get("linked_puzzle")
        first = secrets.randbelow(10_000) if linked is None else linked
        nothing = {"asked": None, "on": None, "answer": "", "hint": False, "right": 0, "of": 0}
        st.session_state.spot = {"first": first} | nothing
    return st.session_state.spot


def ask(now: RunView) -> Puzzle | None:
    """The puzzle on the row that is looked at; another text, row or model asks anew. None where too little shows."""
    state = game()
    if state["on"] != (now.run.key, now.row):
        number = state["first"] if state["asked"] is None else state["asked"].number
        found = results.ask(puzzle, now.run.model, now.run, now.row, number)
        if found is None:
            return None
        state.update(asked=found, on=(now.run.key, now.row), answer="", hint=False)
    return state["asked"]


def play(now: RunView, asked: Puzzle) -> None:
    state, bug = game(), BY_KEY[asked.bug]
    stages = results.ask(stages_of, now.run.model, now.run, now.row, asked)
    left, picture = st.columns([1, 2.6])
    with picture:
        shown = heatmaps.view(now, bug, stages[bug.key], asked.layer, asked.head)
        right = heatmaps.view(now, None, stages[""], asked.layer, asked.head)
        if state["answer"]:
            heatmaps.draw_both(now, bug, shown, right)
        else:  # the names of what a row is would be the answer
            unnamed = heatmaps.view(now, None, stages[bug.key], asked.layer, asked.head)
            heatmaps.draw_one(unnamed, heatmaps.WITH_A_BUG, blocked=shown)
    with left:
        which = N_("**Which bug is this?** Layer {layer}, head {head} of your text, with one bug in it.")
        st.markdown(say(which, layer=now.number(asked.layer), head=asked.head))
        for number, key in enumerate(asked.candidates):
            _candidate(key, number, bug, state)
        if state["answer"]:
            _explain(now, asked, stages, state["answer"], shown)
        elif state["hint"]:
            st.info(say(bug.hint))
        with st.container(horizontal=True, vertical_alignment="center"):
            if not state["answer"] and not state["hint"]:
                st.button(
                    say("Hint"), key="hint", icon=":material/lightbulb:", on_click=lambda: state.update(hint=True)
                )
            st.button(say("Next puzzle"), key="another", icon=":material/refresh:", on_click=_next, args=(now, asked))
            if state["of"]:
                st.caption(say("{right} of {all} correct", right=state["right"], all=state["of"]))
        controls.share_puzzle(asked.number)


def _candidate(key: str, number: int, bug: Bug, state: dict[str, Any]) -> None:
    over = bool(state["answer"])
    icon = ":material/check:" if over and key == bug.key else None
    icon = ":material/close:" if over and key == state["answer"] != bug.key else icon
    take = partial(_answer, key, bug.key)
    st.button(
        say(BY_KEY[key].name), key=f"candidate_{number}", icon=icon, disabled=over, width="stretch", on_click=take
    )


def _explain(now: RunView, asked: Puzzle, stages: dict[str, AttentionStages], answer: str, shown: HeadView) -> None:
    bug, here = BY_KEY[asked.bug], say("here")
    named = replace(shown, queries=[*map(escaped, shown.queries)], keys=[*map(escaped, shown.keys)])
    if answer == bug.key:
        st.success(say("Correct: {bug}.", bug=bug.name), icon=":material/check:")
    else:
        apart = told_apart(_apart(now, asked, stages, answer), say("with that bug"), here, named)
        st.error(say("No: it is {bug}.", bug=bug.name), icon=":material/close:")
        st.markdown(say("Why not *{bug}*: {difference}", bug=BY_KEY[answer].name, difference=apart))
    apart = told_apart(_apart(now, asked, stages, ""), say("in the correct version"), here, named)
    st.markdown(say("The clue: {difference}", difference=apart))
    st.markdown(say(bug.signs))
    st.code(explanations.code(bug), language="diff", wrap_lines=True)
    st.button(say("See it among all bugs"), key="see", on_click=_see, args=(bug, asked))


def _apart(now: RunView, asked: Puzzle, stages: dict[str, AttentionStages], other: str) -> HeatmapDifference:
    """What is shown differs from another candidate's version of this head, or from the right one's, "", how?"""
    keep = now.run.queries.keep[now.row]
    keys = [key for key in (other, asked.bug) if key]
    features = () if "view" in keys else tuple(BY_KEY[key].tells for key in keys if BY_KEY[key].tells)
    theirs, shown = (stages[key].weights[asked.head] for key in (other, asked.bug))
    return difference(theirs, shown, keep, features)


def _answer(key: str, right: str) -> None:
    state = game()
    if not state["answer"]:  # a second press counts no more
        state.update(answer=key, right=state["right"] + (key == right), of=state["of"] + 1)


def _next(now: RunView, asked: Puzzle) -> None:
    found = results.ask(following, now.run.model, now.run, now.row, asked)
    game().update(asked=found, answer="", hint=False)


def _see(bug: Bug, asked: Puzzle) -> None:
    st.session_state.update(mode="all", bug=bug.key, bug_title=bug.title, layer=asked.layer, head=asked.head)
