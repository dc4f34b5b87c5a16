"""Find heads: by how far back they look, or by tokens that the user marks in a sentence."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import streamlit as st
from torch import Tensor

from i18n import N_, say
from model.atlas.result import Atlas
from model.atlas.table import weight_there
from model.base import Model
from model.heads import measures
from model.masks import MaskSpec
from model.text import first_line
from ui import run_view
from ui.guard import guarded
from ui.markdown import escaped
from viz.head_atlas.tables import called, ranked_table

MOST_SHOWN = 10  # heads
MOST_MARKED = 48  # tokens of the text that can be marked


def show(model: Model, text: str, atlas: Atlas, masks: MaskSpec) -> None:
    left, right = st.columns([1, 1.35], gap="large")
    with left:
        _by_distance(atlas)
    with right:
        _by_marks(model, text, atlas, masks)


def _by_distance(atlas: Atlas) -> None:
    longest = atlas.at_offset.shape[-1] // 2
    st.session_state.atlas_back = min(max(st.session_state.atlas_back, -longest), longest)
    about = say(
        "The mean weight at this distance over all texts of the atlas. 0 is the token itself; negative numbers are "
        "later tokens."
    )
    label = say("Heads that attend this many tokens back")
    weights = atlas.back(st.number_input(label, -longest, longest, key="atlas_back", help=about))
    if np.isnan(weights).all():
        st.info(say("Under these masks, no token of these texts may attend there."))
        return
    _ranked(atlas, weights, say("mean weight there"), "atlas_take_back")


def _by_marks(model: Model, text: str, atlas: Atlas, masks: MaskSpec) -> None:
    line = first_line(text)
    if not line:
        st.info(say("Type a sentence on the left to mark tokens in it."))
        return
    with guarded():
        batch = run_view.tokenize(model, line, "right", None).batch
        pieces = batch.pieces[0][:MOST_MARKED]
    words = N_(
        "Heads that attend from one token to another: mark both among the first {count} tokens of the first line on "
        "the left."
    )
    st.caption(say(words, count=len(pieces)))
    labels = _labels(pieces)
    _mark_first((model.key, line), batch.ids[0, : len(pieces)])
    look: Any = {"format_func": labels.__getitem__, "selection_mode": "multi", "wrap": True, "on_change": _keep_marks}
    queries = sorted(st.pills(say("Query tokens"), range(len(pieces)), key="atlas_queries", **look))
    keys = sorted(st.pills(say("Key tokens"), range(len(pieces)), key="atlas_keys", **look))
    if not queries or not keys:
        st.info(say("Mark at least one query token and one key token."))
        return
    with guarded(say("Checking every head …")):
        now, _ = run_view.run_pair(model, batch, masks, 0, "self")
        weights = now.ask(weight_there, tuple(queries), tuple(keys))
    if np.isnan(weights).all():
        st.info(say("Under these masks none of the query tokens may attend to the key tokens."))
        return
    _ranked(atlas, weights, say("weight there"), "atlas_take_marks")


def _mark_first(tokens_of: tuple[str, str], ids: Tensor) -> None:
    """Of a model or text not seen before: what a link marks in it, or its last token, and what followed that the last
    time, or the token before it."""
    state = st.session_state
    marked, looks, at = state.get("atlas_marked", (tokens_of, None, None))
    if marked == tokens_of and (looks, at) == (state.atlas_looks, state.atlas_at) and "atlas_queries" in state:
        return
    state.atlas_marked = tokens_of, state.atlas_looks, state.atlas_at
    marked_tokens = state.atlas_looks, state.atlas_at
    linked = [[position for position in _positions(marks) if position < len(ids)] for marks in marked_tokens]
    if all(linked):
        state.atlas_queries, state.atlas_keys = linked
        return
    last = len(ids) - 1
    follower = int(measures.followers(ids)[last])
    key = follower if follower > 0 else max(last - 1, 0)
    state.atlas_queries, state.atlas_keys = [last], [key]


def _keep_marks() -> None:
    for name, marked in (("atlas_looks", "atlas_queries"), ("atlas_at", "atlas_keys")):
        st.session_state[name] = ",".join(map(str, sorted(st.session_state[marked]))) or None
    tokens_of, _, _ = st.session_state.atlas_marked
    st.session_state.atlas_marked = tokens_of, st.session_state.atlas_looks, st.session_state.atlas_at


def _positions(marks: str | None) -> list[int]:
    return [int(position) for position in (marks or "").split(",") if position]


def _ranked(atlas: Atlas, weights: np.ndarray, what: str, key: str) -> None:
    order = np.argsort(-np.nan_to_num(weights, nan=-1.0), axis=None, kind="stable")[:MOST_SHOWN]
    heads = [(int(layer), int(head)) for layer, head in zip(*np.unravel_index(order, weights.shape), strict=True)]
    ranked = [(atlas.name(head), float(weights[head]), called(atlas, head)) for head in heads]
    st.html(ranked_table(ranked, what))
    st.button(say("Show {head}", head=atlas.name(heads[0])), key=key, on_click=_take, args=heads[0])


def _take(layer: int, head: int) -> None:
    st.session_state.layer, st.session_state.head = layer, head


def _labels(pieces: Sequence[str]) -> list[str]:
    """With its position where a token comes several times: of pills of one label Streamlit knows the last alone."""
    shown = [escaped(piece.replace("·", " ").strip() or piece) for piece in pieces]
    return [f"{one} ({position})" if shown.count(one) > 1 else one for position, one in enumerate(shown)]
