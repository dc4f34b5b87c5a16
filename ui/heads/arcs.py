"""The view Arcs: tokens on both sides, lines by weight, in the browser."""

import streamlit as st

from i18n import say
from ui import run_view
from ui.drawn import cached_figure
from ui.heads.canvas import canvas
from ui.heads.chosen import ChosenHead, hearing
from ui.widgets.choices import bound
from viz.heads.arcs import MOST_HEADS, arcs_packet, shown
from viz.heads.tokens import left_out

_component = canvas("arcs")


def show(chosen: ChosenHead, key: str = "head_arcs") -> None:
    """Draw the head, and those of its layer that are chosen beside it; a click chooses the query."""
    now = chosen.now
    others = choose_heads(now, chosen.layer, chosen.head)
    views = [chosen.view, *(now.head(chosen.layer, head) for head in others)]
    parts = [shown(view, chosen.part, chosen.query) for view in views]
    packet = cached_figure(
        arcs_packet,
        parts,
        [chosen.name, *(now.name(chosen.layer, head) for head in others)],
        query=chosen.query,
        among=chosen.moves.among,
        first_token=chosen.first_key,
        across=chosen.across,
        choices={name: st.session_state[name] for name in ("least", "hide_first")},
    )
    heard = hearing(key)
    _component(data=packet, key=key, on_query_change=heard, on_least_change=heard, on_hide_first_change=heard)
    words = left_out(chosen.view, parts[0], chosen.query)
    if words:
        st.caption(words)


def choose_heads(now: run_view.RunView, layer: int, chosen: int) -> list[int]:
    """The choice "heads", without the chosen head: others of the layer."""
    offered = [head for head in range(run_view.shape_of(now)[1]) if head != chosen]
    picked = [int(head) for head in (st.session_state.get("heads") or "").split(",") if head]
    beside = [head for head in picked if head in offered][: MOST_HEADS - 1]
    others = say("Other heads of {layer}", layer=run_view.name_of(now.model, now.run.attention, layer))
    return st.multiselect(others, offered, **bound("arcs_heads", beside, _take), max_selections=MOST_HEADS - 1,
                          format_func=lambda head: now.name(layer, head), placeholder=others,
                          label_visibility="collapsed")  # fmt: skip


def _take(heads: list[int]) -> None:
    st.session_state.heads = ",".join(map(str, heads)) or None
