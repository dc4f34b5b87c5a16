"""Every way to pad, at once: a table whose cells are buttons that choose their way."""

from collections.abc import Sequence

import streamlit as st

from i18n import say
from ui.drawn import cached_figure
from viz.padding.tables import MASKS, Way, side_label, way_label, way_name, ways_style


def show(ways: Sequence[Way], shown: Way, texts: int, cells: int) -> None:
    """A row for each side and kind of position ids, a column for each mask; `shown` is framed."""
    by_choice = {(way.side, way.positions, way.mask): way for way in ways}
    st.html(cached_figure(ways_style, ways))
    with st.grid(4, wrap=False, min_column_width=60, gap="xxsmall", vertical_alignment="center", key="ways"):
        st.empty()
        for title in MASKS.values():
            st.caption(say(title))
        for side, positions in dict.fromkeys((way.side, way.positions) for way in ways):
            st.caption(side_label(side, positions, cells))
            for mask in MASKS:
                way = by_choice[side, positions, mask]
                st.button(way_label(way, texts), key=way.key, help=way_name(way, cells), width="stretch",
                          type="primary" if way == shown else "secondary",
                          on_click=_take, args=(way,))  # fmt: skip


def _take(way: Way) -> None:
    st.session_state.update(pad=way.side, padding_mask=way.mask)
    if way.positions != "own":
        st.session_state.position_ids = way.positions
