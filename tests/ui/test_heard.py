"""What a component sends when its page is gone: another page was chosen before it arrived.

python -m pytest tests/ui/test_heard.py
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from model.heads.survey import Survey
from ui import head, overview, query_keys
from ui.heads.chosen import hearing
from ui.mask_lab import canvas
from ui.pixels import pictures

SHARES = np.zeros((1, 1), np.float32)
SURVEY = Survey(np.zeros((1, 1, 2, 2), np.float32), np.zeros((1, 2, 2), bool), SHARES, SHARES, np.zeros((1, 1, 5)))

SHOWN: dict[str, Callable[[], object]] = {
    "overview": lambda: overview.show(SURVEY, 0, 0, ()),
    "head": lambda: head.listen("head_figure", "pair_head_figure"),
    "keys": lambda: query_keys.hear("bars_of_query", "Bars", query_keys.Moves(0, (0, 1), ["a"])),
    "pixels": lambda: pictures.show({}, "pixels_picture", lambda number: None),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_component_whose_page_is_gone_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    parts = ((overview, "_component"), (head, "_listener"), (query_keys, "_listener"), (pictures, "_component"))
    for module, component in parts:
        monkeypatch.setattr(module, component, lambda **what: given.update(what))
    SHOWN[name]()
    callbacks = [what for which, what in given.items() if which.startswith("on_")]
    assert callbacks
    for callback in callbacks:
        callback()


def test_so_do_those_of_a_head_and_of_the_drawing() -> None:
    hearing("head_tokens")()
    canvas.take("mask_canvas", "a text")
