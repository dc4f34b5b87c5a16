"""Choices that are positions in a row, padding included, and so have to be moved when the padding changes."""

import re
from typing import Any, NamedTuple

import streamlit as st

from model.base import Model, TokenizedText
from model.heads.merging import By

MERGING = ("Explore", "Export", "Compare", "Across layers")  # not shown: pages whose positions count merged tokens
BY_BACK = "back"  # positions from Back or Forward, perhaps written when the kept text had other padding
POSITIONS = ("query", "key", "begin", "end", "zoom", "pins", "span")


class RowTokens(NamedTuple):
    """The tokens that positions are of, at [begin, end) of their row. source: an encoder-decoder's source tokens,
    padding included. chat: whether the text is messages."""

    model: str
    chat: bool
    tokens: tuple[str, ...]
    source: tuple[str, ...]
    row: int
    side: str
    begin: int
    end: int


def unit(by: By) -> By:
    """Return what this page's positions count. by: what its tokens are merged into."""
    return by if st.session_state.page in MERGING else "tokens"


def reset_other_units() -> None:
    """Reset positions that count other units (tokens, words, sentences) than this page's."""
    state = st.session_state
    if state.positions_count != unit(state.by):
        state.update(dict.fromkeys(POSITIONS), positions_count=unit(state.by))


def move_with_tokens(model: Model, reading: TokenizedText, row: int) -> None:
    """Move the positions with the row's real tokens. Reset those that are now padding because the text, the row or the
    pad side changed, and all of them if the tokens are others. Positions from a link just read are kept as they are."""
    state, batch, real = st.session_state, reading.batch, reading.batch.real(row)
    source = batch.source.pieces[row] if batch.source else ()
    where = row, batch.pad_side, real.start, real.stop
    given = RowTokens(model.name, state.chat and model.chats, batch.pieces[row][real], source, *where)
    before, state.positions_of = state.positions_of, given
    if before in (None, given):
        return
    by = 0 if before == BY_BACK else given.begin - before.begin
    if before != BY_BACK and _mean_other_tokens(before, given, merged=unit(state.by) != "tokens"):
        state.update(dict.fromkeys(POSITIONS))
    elif unit(state.by) == "tokens":
        state.update({name: _moved(state.get(name), by, real, ends=name == "end") for name in POSITIONS})


def _mean_other_tokens(before: RowTokens, now: RowTokens, *, merged: bool) -> bool:
    """Whether positions now mean other tokens, which moving them cannot correct. merged: they count words or sentences,
    among which all padding is one."""
    if merged and (before.row, before.side, before.begin > 0) != (now.row, now.side, now.begin > 0):
        return True
    return (
        before.chat != now.chat
        or before.source != now.source
        or (before.model != now.model and before.tokens != now.tokens)
    )


def _moved(value: Any, by: int, real: slice, *, ends: bool) -> Any:
    """Return a position, or a text of several, plus `by`; None if one is then not real. ends: it is a range's end."""
    numbers = [int(one) + by for one in re.findall(r"\d+", str(value))]
    if value is None or not all(real.start <= one < real.stop + ends for one in numbers):
        return None
    return value + by if isinstance(value, int) else re.sub(r"\d+", lambda found: str(int(found[0]) + by), value)
