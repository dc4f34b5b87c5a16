"""Every way to pad, at once: a table whose cells are buttons that choose their way."""

from collections.abc import Sequence

import streamlit as st

from viz.padding.tables import MASKS, Way, position_words, way_label, way_name, ways_style

COLUMNS = (1.15, 1, 1, 1)


def show(ways: Sequence[Way], shown: Way, texts: int, cells: int) -> None:
    """A row for each side and kind of position ids, a column for each mask; `shown` is framed."""
    by_choice = {(way.side, way.positions, way.mask): way for way in ways}
    st.html(ways_style(ways))
    with st.container(key="ways", gap="xxsmall"):
        _, *heads = st.columns(COLUMNS, gap="xsmall", vertical_alignment="bottom")
        for place, title in zip(heads, MASKS.values(), strict=True):
            place.caption(title)
        for side, positions in dict.fromkeys((way.side, way.positions) for way in ways):
            head, *places = st.columns(COLUMNS, gap="xsmall", vertical_alignment="center")
            head.caption(f"{side} padding, ids {position_words(positions, cells)}")
            for place, mask in zip(places, MASKS, strict=True):
                way = by_choice[side, positions, mask]
                place.button(way_label(way, texts), key=way.key, help=way_name(way, cells), width="stretch",
                             type="primary" if way == shown else "secondary",
                             on_click=_take, args=(way,))  # fmt: skip


def _take(way: Way) -> None:
    st.session_state.update(pad=way.side, padding_mask=way.mask)
    if way.positions != "own":
        st.session_state.position_ids = way.positions
