"""Several queries of the head together: which keys they look at, their mean or their sum."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Literal

import streamlit as st

from i18n import N_, say
from model.base import ranges
from model.heads.merging import over_queries
from model.heads.view import HeadView
from ui.link import SPAN, ZOOM
from ui.markdown import escaped
from ui.run_view import RunView
from ui.widgets import bound, one_of
from viz.heads.bars import BarRow

POOLED = {"mean": N_("mean"), "sum": N_("sum")}
HELP = N_("Positions of queries: 3-7, or 2,5,9. Drag over rows of the heatmap to take those.")


def choose(now: RunView, part: tuple[int, int]) -> list[int]:
    """The positions typed, else those of the rows zoomed into, else all real ones of the part that is shown."""
    count, real = len(now.tokens), now.real
    typed = [one for one in read(st.session_state.get("span") or "") if one < count]
    zoom = re.fullmatch(ZOOM, st.session_state.get("zoom") or "")
    rows = (int(zoom[1]), int(zoom[2]) + 1) if zoom else (max(part[0], real.start), min(part[1], real.stop))
    queries = typed or list(range(*rows))[:count] or list(range(real.start, real.stop))
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        st.text_input(
            say("Queries"), help=say(HELP), width=240, **bound("span_typed", ranges(queries).replace(" ", ""), _take)
        )
        one_of(say("Combined as"), POOLED, "pooled", width="content")
    if (wrong := st.session_state.pop("span_refused", None)) is not None:
        st.caption(say("Expected positions such as 3-7 or 2,5,9, got “{text}”.", text=escaped(wrong)))
    return queries


def span_row(
    now: RunView, views: Sequence[HeadView], place: tuple[int, int], queries: list[int], how: Literal["mean", "sum"]
) -> BarRow:
    """What these queries look at together, in views of a head now and, if it differs, as standard."""
    key = ("span", place, tuple(queries), how)
    made = [now.kept((*key, number), partial(over_queries, view, queries, how)) for number, view in enumerate(views)]
    return BarRow(made[0], made[1] if len(made) > 1 else None)


def read(typed: str) -> list[int]:
    """ "3-5,9" -> [3, 4, 5, 9]"""
    found: list[int] = []
    for one in filter(None, typed.split(",")):
        first, _, last = one.partition("-")
        found.extend(range(int(first), min(int(last or first), int(first) + 100_000) + 1))
    return sorted(set(found))


def _take(typed: str) -> None:
    plain = typed.replace(" ", "").replace("，", ",").replace("–", "-")
    st.session_state.span_refused = None if re.fullmatch(f"({SPAN})?", plain) else typed[:40]
    if st.session_state.span_refused is None:
        st.session_state.span = plain or None
