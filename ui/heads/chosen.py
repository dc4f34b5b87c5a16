"""What every view of the head shows, and the choices that a user makes in one and finds in all."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import streamlit as st

from model.heads.view import HeadView
from ui import results
from ui.heads.query import Moves, chosen_key
from ui.heads.query import take as take_query
from ui.link import PINS
from ui.run_view import RunView
from ui.widgets import component_value


@dataclass(frozen=True, eq=False)
class ChosenHead:
    """view, standard: the whole head under the current and under the standard masks, the same where nothing is changed.

    name: the head's, "L3 H2"; layer, head: as the run counts them. part: the positions shown large, from one up to,
    without, another. moves: how keys move the query.
    """

    now: RunView
    view: HeadView
    standard: HeadView
    layer: int
    head: int
    name: str
    part: tuple[int, int]
    moves: Moves

    def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """function(model, trace, row, *arguments) of model/, remembered. Raises as results.ask."""
        return results.ask(function, self.now.run.model, self.now.run, self.now.row, *arguments)

    @property
    def place(self) -> tuple[int, int]:
        return self.layer, self.head

    @property
    def views(self) -> list[HeadView]:
        """The whole head now and, if it differs, as standard."""
        return [self.view, self.standard] if self.changed else [self.view]

    @property
    def query(self) -> int:
        return self.moves.query

    @property
    def key(self) -> int:
        return chosen_key(self.view, self.query)

    @property
    def across(self) -> bool:
        return self.now.run.attention == "cross"

    @property
    def first_key(self) -> int:
        """The position of the first key that is no padding."""
        return int(self.now.keep().argmax())

    @property
    def changed(self) -> bool:
        return self.standard is not self.view


def pins() -> list[int]:
    return [int(position) for position in (st.session_state.get("pins") or "").split(",") if position]


def hearing(name: str) -> Callable[[], None]:
    """A callback: what the component of this name sent becomes the choices of the same names, if it makes sense."""

    def take() -> None:
        take_query(name)
        sent = component_value(name)
        if isinstance(sent.get("pins"), str):
            st.session_state.pins = sent["pins"] if re.fullmatch(PINS, sent["pins"]) else None
        if sent.get("towards") in ("at", "by"):
            st.session_state.towards = sent["towards"]
        for choice, value in (("token_values", sent.get("values")), ("hide_first", sent.get("hide_first"))):
            if isinstance(value, bool):
                st.session_state[choice] = value
        if isinstance(sent.get("least"), float | int) and 0 < sent["least"] <= 1:
            st.session_state.least = float(sent["least"])

    return take
