"""Find heads: by how far back they look, or by tokens that the reader marks in a sentence."""

import numpy as np
import streamlit as st
from torch import Tensor

from model.base import Model
from model.heads import measures
from model.heads.atlas_names import MEASURES
from model.heads.atlas_result import Atlas
from model.heads.finder import weight_there
from model.masks import MaskSpec
from ui import run_view
from ui.guard import guarded
from ui.markdown import escaped
from viz.head_atlas.tables import ranked_table

MOST_SHOWN = 10  # heads
MOST_MARKED = 48  # tokens of the text that can be marked


def show(model: Model, text: str, atlas: Atlas, masks: MaskSpec) -> None:
    """Both ways, side by side."""
    left, right = st.columns([1, 1.35], gap="large")
    with left:
        _by_distance(atlas)
    with right:
        _by_marks(model, text, atlas, masks)


def _by_distance(atlas: Atlas) -> None:
    longest = atlas.at_offset.shape[-1] // 2
    st.session_state.atlas_back = min(max(st.session_state.atlas_back, -longest), longest)
    st.number_input("Heads that look so many tokens back", -longest, longest, key="atlas_back",
                    help="In all the texts of the atlas: the mean weight on that cell. 0 is the token itself, a "
                    "negative number later tokens.")  # fmt: skip
    back = st.session_state.atlas_back
    weights = atlas.back(back)
    if np.isnan(weights).all():
        st.info("In these texts, under these masks, no token may look there.")
        return
    _ranked(atlas, weights, "mean weight there", "atlas_take_back")


def _by_marks(model: Model, text: str, atlas: Atlas, masks: MaskSpec) -> None:
    line = next((line for line in text.splitlines() if line.strip()), "")
    if not line:
        st.info("Type a sentence on the left to mark tokens in it.")
        return
    with guarded():
        batch = run_view.tokenize(model, line, "right", None).batch
        pieces = batch.pieces[0][:MOST_MARKED]
    st.caption("Heads that look from a token to another: mark both in the first line of the text on the left.")
    places = list(range(len(pieces)))
    _mark_first((model.key, line), batch.ids[0, : len(pieces)])
    labels = [escaped(_shown(piece)) for piece in pieces]
    st.pills("Tokens that look", places, format_func=labels.__getitem__, selection_mode="multi", key="atlas_queries",
             wrap=True)  # fmt: skip
    st.pills("Tokens looked at", places, format_func=labels.__getitem__, selection_mode="multi", key="atlas_keys",
             wrap=True)  # fmt: skip
    queries, keys = sorted(st.session_state.atlas_queries), sorted(st.session_state.atlas_keys)
    if not queries or not keys:
        st.info("Mark at least one token that looks and one that is looked at.")
        return
    with guarded("Looking at every head …"):
        now, _ = run_view.run_pair(model, batch, masks, 0, "self")
        weights = now.ask(weight_there, tuple(queries), tuple(keys))
    if np.isnan(weights).all():
        st.info("Under these masks none of these tokens may look at those.")
        return
    _ranked(atlas, weights, "weight there", "atlas_take_marks")


def _mark_first(tokens_of: tuple[str, str], ids: Tensor) -> None:
    """Of a model or text not seen before: the last token, and what followed it the last time, or the token before."""
    if st.session_state.get("atlas_marked") == tokens_of and "atlas_queries" in st.session_state:
        return
    last = len(ids) - 1
    follower = int(measures.followers(ids)[last])
    key = follower if follower > 0 else max(last - 1, 0)
    st.session_state.update(atlas_marked=tokens_of, atlas_queries=[last], atlas_keys=[key])


def _ranked(atlas: Atlas, weights: np.ndarray, what: str, key: str) -> None:
    order = np.argsort(-np.nan_to_num(weights, nan=-1.0), axis=None, kind="stable")[:MOST_SHOWN]
    places = [(int(layer), int(head)) for layer, head in zip(*np.unravel_index(order, weights.shape), strict=True)]
    called = {place: ", ".join(MEASURES[name].names for name in atlas.named(*place)) for place in places}
    st.html(ranked_table([(atlas.name(place), float(weights[place]), called[place]) for place in places], what))
    st.button(f"Look at {atlas.name(places[0])}", key=key, on_click=_take, args=places[0])


def _take(layer: int, head: int) -> None:
    st.session_state.layer, st.session_state.head = layer, head


def _shown(piece: str) -> str:
    return piece.replace("·", " ").strip() or piece
