"""Choices that hold positions of a text's tokens: cells of a row, padding included, so they move when that changes."""

import re
from typing import Any, NamedTuple

import streamlit as st

from model.base import Model, TokenizedText
from model.heads.merging import By

MERGING = ("Explore", "Export", "Compare", "Across layers")  # not shown: pages whose positions count merged tokens
POSITIONS = ("query", "key", "begin", "end", "zoom", "pins", "span")


class RowTokens(NamedTuple):
    """Which tokens the positions are of, and where in their row these are: from begin up to, without, end."""

    model: str
    tokens: tuple[str, ...]
    row: int
    side: str
    begin: int
    end: int


def unit(by: By) -> By:
    """What this page's positions count. by: what its tokens are merged into."""
    return by if st.session_state.page in MERGING else "tokens"


def of_this_page() -> None:
    """Forget positions that count other units (tokens, words, sentences) than this page's."""
    state = st.session_state
    if state.positions_count != unit(state.by):
        state.update(dict.fromkeys(POSITIONS), positions_count=unit(state.by))


def follow(model: Model, reading: TokenizedText, row: int) -> None:
    """Move the positions with the row's real tokens. Forget those that are padding since the text, the row or the pad
    side changed, and all of them for tokens of another model. A link that was read holds them as they are."""
    state, batch, real = st.session_state, reading.batch, reading.batch.real(row)
    given = RowTokens(model.name, batch.pieces[row][real], row, batch.pad_side, real.start, real.stop)
    before, state.positions_of = state.positions_of, given
    if before in (None, given):
        return
    other_tokens = before.model != given.model and before.tokens != given.tokens
    merged = unit(state.by) != "tokens" and (before.row, before.side) != (given.row, given.side)
    if other_tokens or merged or model.kind == "encoder-decoder":  # whose positions are of a target, too
        state.update(dict.fromkeys(POSITIONS))
    elif unit(state.by) == "tokens":
        by = given.begin - before.begin
        state.update({name: _moved(state.get(name), by, real, ends=name == "end") for name in POSITIONS})


def _moved(value: Any, by: int, real: slice, *, ends: bool) -> Any:
    """A position, or a text of several, later by that many; None if one is not real then. ends: it ends a range."""
    numbers = [int(one) + by for one in re.findall(r"\d+", str(value))]
    if value is None or not all(real.start <= one < real.stop + ends for one in numbers):
        return None
    return value + by if isinstance(value, int) else re.sub(r"\d+", lambda found: str(int(found[0]) + by), value)
