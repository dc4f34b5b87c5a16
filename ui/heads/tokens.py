"""The view Tokens: the text itself, lit in the browser."""

import streamlit as st

from i18n import say, together
from ui.drawn import cached_figure
from ui.heads.canvas import canvas
from ui.heads.chosen import ChosenHead, hearing, pins
from ui.heads.head import ABOVE
from ui.streamlit_internals import css
from viz.heads.tokens import left_out, light_words, shown, tokens_packet
from viz.heatmap import margin
from viz.palette import WIDE

_component = canvas("tokens")

BESIDE = """<style>@media (min-width: 1600px) {
  $column:has(.st-key-tokens_beside) { position: relative; container-type: inline-size; }
  $column:has(.st-key-tokens_beside) div:has(> .st-key-tokens_beside) { position: static; }
  .st-key-tokens_beside { /* the room of a comparison, which a head without one leaves empty: ui/page.py's ROOM */
    --side: clamp(15rem, min((100cqw - ACROSS) / WIDE, 100dvh - ABOVE - DOWN), 70rem);
    position: absolute; top: TOP; left: calc(var(--side) + ACROSS); right: 0; width: auto;
    max-height: var(--side); overflow-y: auto; }
}
@media (max-width: 1599.9px) { .st-key-said_beside { display: none; } }</style>"""


def show(chosen: ChosenHead) -> None:
    """Below, and where no comparison and no slider takes the room, beside the heatmap in a window that is wide."""
    if chosen.changed or chosen.part != (0, len(chosen.view.queries)):
        draw(chosen)
        return
    room = margin(chosen.view.queries, chosen.view.keys)
    sizes = {"ACROSS": room["l"] + room["r"], "DOWN": room["t"] + room["b"], "TOP": room["t"], "ABOVE": ABOVE}
    style = BESIDE.replace("WIDE", str(WIDE))
    for word, pixels in sizes.items():
        style = style.replace(word, f"{pixels}px")
    st.html(css(style))
    with st.container(key="said_beside"):
        st.caption(say("The tokens stand beside the heatmap."))
    with st.container(key="tokens_beside"):
        draw(chosen)


def draw(chosen: ChosenHead, key: str = "head_tokens") -> None:
    """Draw it; what is picked there are the choices "query", "pins", "towards" and "token_values"."""
    part = shown(chosen.view, chosen.part, chosen.query)
    packet = cached_figure(
        tokens_packet,
        part,
        name=chosen.name,
        query=chosen.query,
        among=chosen.moves.among,
        pins=pins(),
        towards=st.session_state.towards,
        across=chosen.across,
        choices={"values": st.session_state.token_values},
    )
    heard = hearing(key)
    _component(data=packet, key=key, on_query_change=heard, on_pins_change=heard, on_towards_change=heard,
               on_values_change=heard)  # fmt: skip
    words = together(filter(None, (left_out(chosen.view, part, chosen.query), light_words(part))))
    if words:
        st.caption(words)
