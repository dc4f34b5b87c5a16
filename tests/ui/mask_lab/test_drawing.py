"""Drawings sent by the canvas are taken as they are, whether the drawing is switched on or off at that moment."""

import pytest
from streamlit.testing.v1 import AppTest

from model.spec import Stroke

FIRST, SECOND, THIRD = (Stroke("block", query, 0, query, 0) for query in (4, 5, 6))


def page() -> None:
    import streamlit as st

    from ui.mask_lab import compose

    given = st.session_state
    given.setdefault("mask_epoch", 0)
    given.update(mask_drawn=given.before, mask_drawn_on=given.on)
    compose.take_drawing(given.strokes, "a text", 2)


@pytest.mark.parametrize(
    ("before", "on", "strokes", "after", "anew"),
    [
        ((), False, (FIRST,), (FIRST,), False),
        ((FIRST,), True, (FIRST, SECOND), (FIRST, SECOND), False),
        ((FIRST,), False, (FIRST, SECOND, THIRD), (FIRST, SECOND, THIRD), False),  # sent before the answer arrived
        ((FIRST, SECOND), False, (FIRST, SECOND, THIRD), (FIRST, SECOND, THIRD), False),  # over a drawing that is off
        ((FIRST,), True, (), (), False),
    ],
)
def test_no_stroke_is_lost(
    before: tuple[Stroke, ...], on: bool, strokes: tuple[Stroke, ...], after: tuple[Stroke, ...], anew: bool
) -> None:
    app = AppTest.from_function(page)
    for name, value in {"before": before, "on": on, "strokes": strokes}.items():
        app.session_state[name] = value
    app.run()
    assert not app.exception
    assert app.session_state["mask_drawn"] == after
    assert app.session_state["mask_drawn_on"] == bool(after)
    assert (app.session_state["mask_epoch"] != 0) == anew, (
        "the canvas forgets its strokes where the page sets a drawing"
    )
