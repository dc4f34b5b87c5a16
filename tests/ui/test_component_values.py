"""Values sent by components: junk, and none, as when the user has opened another page before they arrive."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from model.heads import survey
from model.heads.survey import Survey
from ui import page, pixels
from ui.heads import head, overview, query, views
from ui.heads.views import choice_setter
from ui.mask_lab import compose
from ui.widgets import MAX_WHOLE
from viz.heatmap import figure


class AttributedDict(dict):
    """A stand-in for st.session_state outside a session."""

    __getattr__, __setattr__ = dict.__getitem__, dict.__setitem__


SHARES = dict.fromkeys(survey.SHARES, np.zeros((1, 1), np.float32))
SURVEY = Survey(np.zeros((1, 1, 2, 2), np.float32), np.zeros((1, 2, 2), bool), SHARES)
NOW: Any = SimpleNamespace(model=None, run=SimpleNamespace(attention="self"), layer_numbers=())

VIEW: Any = None  # used only for the table of numbers, which is not opened

SHOWN: dict[str, Callable[[], object]] = {
    "overview": lambda: overview.show(NOW, SURVEY, 0, 0),
    "head": lambda: page.chart(figure([], {}), "head_figure", "", callbacks=head.callbacks("head_figure", zooms=True)),
    "keys": lambda: query.listen_for_query_keys("bars_of_query", "Bars", query.Moves(0, (0, 1), ["a"])),
    "pixels": lambda: pixels.show_picture(b"", "pixels_picture", VIEW, [], lambda number: None),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_component_whose_page_is_gone_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    parts = ((overview, "_component"), (page, "_chart"), (query, "_listener"), (pixels, "_component"))
    for module, component in parts:
        monkeypatch.setattr(module, component, lambda **what: given.update(what))
    SHOWN[name]()
    callbacks = [what for which, what in given.items() if which.startswith("on_")]
    assert callbacks
    for callback in callbacks:
        callback()


JUNK: tuple[Any, ...] = (
    True, -1, 10**400, 1e999, float("nan"), "1", "x" * 99, None, {}, [], [1], [[1]], [1, "2"], [-1, 2], [1, 2, 3],
    [float("nan"), 1], {"epoch": 0, "levels": [float("nan")] * 64, "number": 1e999}, [10**400, 1],
)  # fmt: skip


@pytest.mark.parametrize("junk", JUNK, ids=repr)
@pytest.mark.parametrize("name", [*SHOWN, "head tokens", "mask canvas", "digit"])
def test_junk_changes_nothing_or_is_in_range(name: str, junk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    state = AttributedDict(mask_epoch=0, pixels_epoch=0, pixels_number=0, pixels_drawing=[0] * 64)
    sent = dict.fromkeys(("pick", "query", "zoom", "drawn", "pins"), junk)
    for module in (overview, head, query, pixels, views, compose):
        monkeypatch.setattr(module, "component_value", lambda _: sent)
        monkeypatch.setattr(module.st, "session_state", state)
    parts = ((overview, "_component"), (page, "_chart"), (query, "_listener"), (pixels, "_component"))
    for module, component in parts:
        monkeypatch.setattr(module, component, lambda **what: given.update(what))
    others = {
        "head tokens": lambda: given.update(on_change=choice_setter("x")),
        "mask canvas": lambda: given.update(on_change=lambda: compose.take("x", "a text")),
        "digit": lambda: pixels.show_canvas("a", 1),
    }
    (SHOWN | others)[name]()
    for callback in [what for which, what in given.items() if which.startswith("on_")]:
        callback()
    numbers = [state[choice] for choice in ("query", "layer", "head", "pixels_number") if choice in state]
    assert all(type(number) is int and 0 <= number <= MAX_WHOLE for number in numbers)
    assert all(type(level) is int and 0 <= level <= 16 for level in state.pixels_drawing)


def test_so_do_those_of_a_head_and_of_the_drawing() -> None:
    choice_setter("head_tokens")()
    compose.take("mask_canvas", "a text")
