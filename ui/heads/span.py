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
from ui import page
from ui.heads.chosen import ChosenHead
from ui.link import SPAN, ZOOM
from ui.markdown import escaped
from ui.results import cached_figure
from ui.run_view import RunView
from ui.widgets import bound, one_of
from viz.heads.bars import MOST_SORTED, BarRow, bars_figure, rest_words, where_it_lies

POOLED = {"mean": N_("mean"), "sum": N_("sum")}
HELP = N_("Positions of queries: 3-7, or 2,5,9. Drag over rows of the heatmap to take those.")


def show_span(chosen: ChosenHead) -> None:
    """The queries are those typed, else those dragged over, else all that are shown."""
    queries = choose(chosen.now, chosen.part)
    how, of = st.session_state.pooled, (chosen.now, chosen.views, chosen.place, queries)
    row, of_means = span_row(*of, how), span_row(*of, "mean")
    st.html(cached_figure(where_it_lies, of_means))
    st.toggle(say("Largest first"), key="sorted")
    figure = cached_figure(bars_figure, row, largest_first=st.session_state.sorted)
    about = N_("The {how} of the weights of {count} queries from {query} on in {head}, a bar for each key.")
    words = {"how": say(POOLED[how]), "count": len(queries), "query": row.name, "head": chosen.name}
    page.chart(figure, "span_bars", say(about, **words))
    if st.session_state.sorted and rest_words(of_means, MOST_SORTED):
        st.caption(rest_words(of_means, MOST_SORTED))


def choose(now: RunView, part: tuple[int, int]) -> list[int]:
    """The positions of the queries. part: those shown, from one up to, without, another."""
    queries = positions(now, part)
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        st.text_input(
            say("Queries"), help=say(HELP), width=240, **bound("span_typed", ranges(queries).replace(" ", ""), _take)
        )
        one_of(say("Combined as"), POOLED, "pooled", width="content")
    wrong = st.session_state.pop("span_refused", None)
    if wrong is not None:
        st.caption(say("Expected positions such as 3-7 or 2,5,9, got “{text}”.", text=escaped(wrong)))
    return queries


def positions(now: RunView, part: tuple[int, int]) -> list[int]:
    """Those of the choice "span", else of the rows zoomed into, else all real ones of the part."""
    count, real = len(now.tokens), now.real
    typed = [one for one in read(st.session_state.get("span") or "") if one < count]
    zoom = re.fullmatch(ZOOM, st.session_state.get("zoom") or "")
    rows = (int(zoom[1]), int(zoom[2]) + 1) if zoom else (max(part[0], real.start), min(part[1], real.stop))
    return typed or list(range(*rows))[:count] or list(range(real.start, real.stop))


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
