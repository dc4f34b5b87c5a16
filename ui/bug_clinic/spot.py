"""The game "Spot the bug": a heatmap, four candidates, a hint, the answer, and the score of this session."""

from typing import Any

import streamlit as st

from model.bug_clinic.bugs import BY_KEY, Bug
from model.bug_clinic.spot import Puzzle, puzzle, shown
from ui.bug_clinic import clinic
from ui.run_view import RunView


def game() -> dict[str, Any]:
    """This session's game: the puzzle's number, the bug before, what was asked, the answer given, and the score."""
    new = {"number": 1, "last": "", "asked": None, "answer": "", "hint": False, "right": 0, "of": 0}
    return st.session_state.setdefault("spot", new)


def ask(now: RunView) -> Puzzle | None:
    """The puzzle on the row that is looked at; another text, row or model asks anew. None where too little shows."""
    state = game()
    asked = puzzle(now.model, now.trace, now.row, state["number"], state["last"])
    identity = (now.key, now.row, state["number"])
    if asked is not None and state["asked"] != identity:
        state.update(asked=identity, answer="", hint=False)
    return asked


def play(now: RunView, asked: Puzzle) -> None:
    """Draw it: the candidates beside the heatmap, and after the answer what it was."""
    state, bug = game(), BY_KEY[asked.bug]
    wrong, right = shown(now.model, now.trace, now.row, asked)
    left, picture = st.columns([1, 2.6])
    with picture:
        views = [clinic.view(now, bug, stages, asked.layer, asked.head) for stages in (wrong, right)]
        if state["answer"]:
            clinic.draw(*views, compare=True)
        else:
            clinic.draw_alone(views[0])
        st.html(clinic.key(views if state["answer"] else views[:1], nan=False))
    with left:
        st.markdown(f"**Which bug is this?** Layer {asked.layer}, head {asked.head} of your text, with one bug in it.")
        for place, key in enumerate(asked.candidates):
            _candidate(key, place, bug, state)
        if state["answer"]:
            _explain(bug, state)
        elif state["hint"]:
            st.info(bug.hint)
        with st.container(horizontal=True, vertical_alignment="center"):
            if not state["answer"] and not state["hint"]:
                st.button("Hint", key="hint", icon=":material/lightbulb:", on_click=_give_hint)
            st.button("Another", key="another", icon=":material/refresh:", on_click=_next, args=(bug.key,))
            st.caption(f"{state['right']} of {state['of']} right")


def _candidate(key: str, place: int, bug: Bug, state: dict[str, Any]) -> None:
    """A candidate to press; once one is, the right one is marked."""
    over = bool(state["answer"])
    icon = ":material/check:" if over and key == bug.key else None
    st.button(BY_KEY[key].name, key=f"candidate_{place}", icon=icon, disabled=over, width="stretch",
              on_click=_answer, args=(key, bug.key))  # fmt: skip


def _explain(bug: Bug, state: dict[str, Any]) -> None:
    if state["answer"] == bug.key:
        st.success(f"Right: {bug.name}.", icon=":material/check:")
    else:
        st.error(f"No: it is {bug.name}.", icon=":material/close:")
    st.markdown(bug.signs)
    st.code(clinic.code(bug), language="diff", wrap_lines=True)
    st.button("See it among all bugs", key="see", on_click=_see, args=(bug,))


def _answer(key: str, right: str) -> None:
    state = game()
    if not state["answer"]:  # a second press counts no more
        state.update(answer=key, right=state["right"] + (key == right), of=state["of"] + 1)


def _give_hint() -> None:
    game()["hint"] = True


def _next(last: str) -> None:
    state = game()
    state.update(number=state["number"] + 1, last=last)


def _see(bug: Bug) -> None:
    clinic.choose(mode="all", bug=bug.key, bug_number=bug.number)
