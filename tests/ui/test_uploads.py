"""Uploads whose file the server has lost, as after a restart: nothing is opened, and nothing fails."""

from collections.abc import Callable
from typing import Any

import pytest
import streamlit as st
from streamlit.runtime.uploaded_file_manager import DeletedFile

from ui.export import export_files
from ui.lessons import aside
from ui.mask_lab import mask_export


def callback_of(monkeypatch: pytest.MonkeyPatch, draw: Callable[[], object]) -> Callable[[], object]:
    """What an uploader calls when its file changes."""
    found: list[Callable[[], object]] = []
    monkeypatch.setattr(st, "file_uploader", lambda *_, on_change, **__: found.append(on_change))
    draw()
    (callback,) = found
    return callback


@pytest.mark.parametrize("gone", [None, DeletedFile("an id")], ids=["none", "deleted"])
def test_a_file_that_is_gone_opens_nothing(gone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    state = dict.fromkeys(("take_export", "take_file", "lesson_file"), gone)
    monkeypatch.setattr(st, "session_state", Attributed(state))
    export = callback_of(monkeypatch, export_files.opened)
    mask = callback_of(monkeypatch, lambda: mask_export._take_file(None, lambda spec: pytest.fail("a mask")))  # type: ignore[arg-type]
    for callback in (export, mask, aside._take_file):
        callback()
    assert {name: value for name, value in st.session_state.items() if value not in (None, gone)} == {}


class Attributed(dict):
    """A session's state, outside of any."""

    __getattr__, __setattr__ = dict.__getitem__, dict.__setitem__
