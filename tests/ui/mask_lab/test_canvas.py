"""Drawings that the page accepts from its canvas, for which a browser may send anything."""

from types import SimpleNamespace
from typing import Any

import pytest

from model.spec import MAX_STROKES, Stroke
from ui import widgets
from ui.mask_lab import compose

KEY, TEXT = "mask_canvas", "the text's key"
CELL = ["block", 2, 1, 2, 1]


class State(dict):
    """The part of Streamlit's session state that is needed here."""

    __getattr__, __setattr__ = dict.__getitem__, dict.__setitem__


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> State:
    state = State(mask_epoch=3, mask_number=0, mask_drawn=(), mask_drawn_on=False, mask_text=None)
    for module in (compose, widgets):
        monkeypatch.setattr(module, "st", SimpleNamespace(session_state=state))
    return state


def test_a_drawing_is_taken_with_its_text_and_number(state: State) -> None:
    state[KEY] = {"drawn": {"epoch": 3, "number": 7, "strokes": [CELL, ["open", 0, 4, 1, 6]]}}
    compose.take(KEY, TEXT)
    assert state.mask_drawn == (Stroke("block", 2, 1, 2, 1), Stroke("open", 0, 4, 1, 6))
    assert (state.mask_text, state.mask_number, state.mask_epoch, state.mask_drawn_on) == (TEXT, 7, 3, True)


def test_a_drawing_with_no_strokes_is_switched_off(state: State) -> None:
    state.update(mask_drawn=(Stroke(*CELL),), mask_drawn_on=True)
    state[KEY] = {"drawn": {"epoch": 3, "number": 1, "strokes": []}}
    compose.take(KEY, TEXT)
    assert (state.mask_drawn, state.mask_drawn_on, state.mask_text) == ((), False, None)


@pytest.mark.parametrize("on", [True, False])
def test_the_canvas_gets_the_drawing_or_the_one_that_is_switched_off(state: State, on: bool) -> None:
    strokes = (Stroke(*CELL),)
    state.update(mask_drawn=strokes, mask_drawn_on=on)
    assert compose.drawing() == ((strokes, ()) if on else ((), strokes))


def test_one_of_an_earlier_epoch_is_not(state: State) -> None:
    state[KEY] = {"drawn": {"epoch": 2, "number": 7, "strokes": [CELL]}}
    compose.take(KEY, TEXT)
    assert state.mask_drawn == ()


@pytest.mark.parametrize(
    "sent",
    [
        None,
        {},
        {"drawn": None},
        {"drawn": [CELL]},
        {"drawn": {"epoch": 3}},
        {"drawn": {"epoch": 3, "number": 1, "strokes": None}},
        {"drawn": {"epoch": 3, "number": 1, "strokes": [["block", 2, 1, 1, 1]]}},
        {"drawn": {"epoch": 3, "number": 1, "strokes": [["scribble", 2, 1, 2, 1]]}},
        {"drawn": {"epoch": 3, "number": 1, "strokes": [["block", 2, 1, 2]]}},
        {"drawn": {"epoch": 3, "number": 1, "strokes": [["block", 2.0, 1, 2, 1]]}},
        {"drawn": {"epoch": 3, "number": 1, "strokes": [CELL] * (MAX_STROKES + 1)}},
        {"drawn": {"epoch": 3, "number": float("inf"), "strokes": [CELL]}},
        {"drawn": {"epoch": 3, "number": "many", "strokes": [CELL]}},
    ],
    ids=str,
)
def test_anything_else_changes_nothing_and_raises_nothing(state: State, sent: Any) -> None:
    if sent is not None:
        state[KEY] = sent
    before = dict(state)
    compose.take(KEY, TEXT)
    assert state == before
