"""The overview of all heads, a component that gets bytes and sends the picked head."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from i18n import say
from model.heads.survey import Survey
from ui import explain, run_view
from ui.guard import guarded
from ui.heads.head import canvas
from ui.results import cached_figure
from ui.run_view import RunView
from ui.widgets import component_value, wholes
from viz.figure_table import measures_tables
from viz.heads.overview import TITLES, overview_packet

QUICK_SURVEY_WEIGHTS = 600_000  # weights of all heads (36, at 128 tokens) that are surveyed in about ten milliseconds

_component = canvas("overview")


def survey(slot: DeltaGenerator, views: Sequence[RunView], layer: int, head: int) -> list[Survey]:
    """Survey all heads of each view, and draw those of the first in its slot, with this one as the chosen one."""
    with slot, guarded(say("Checking every head …")):
        found = [view.survey() for view in views]
        show(views[0], found[0], layer, head, (st.session_state.dim or "", st.session_state.dim_sorted))
        name = views[0].name(layer, head)
        st.caption(say(explain.OVERVIEW, name=name, layer=views[0].number(layer), head=head))
    return found


def show(
    now: RunView, found: Survey, layer: int, head: int, by: tuple[str, bool] | None = None, key: str = "overview"
) -> None:
    """Draw every head, with this one as the chosen one. A pick sets st.session_state.layer and .head before the next
    rerun, the measure that dims heads .dim and .dim_sorted. by: as in overview_packet."""

    def picked() -> None:
        pick, by = wholes(component_value(key).get("pick"), 2), component_value(key).get("by")
        if pick:
            st.session_state.layer, st.session_state.head = pick
        if isinstance(by, list) and len(by) == 2 and (by[0] in TITLES or not by[0]):
            st.session_state.dim, st.session_state.dim_sorted = by[0] or None, bool(by[1])

    layers = partial(run_view.layer_names, now.model, now.run.attention)
    tables = lambda: measures_tables(found.thumbnails, found.marked, layers())  # noqa: E731
    data = packet(now, found, layer, head, by)
    _component(data=data, key=key, tables=tables, on_pick_change=picked, on_by_change=picked)


def packet(now: RunView, found: Survey, layer: int, head: int, by: tuple[str, bool] | None = None) -> bytes:
    """Return the component's data for every head; arguments as in `show`."""
    heads: Any = {"layer": layer, "head": head, "numbers": now.layer_numbers, "measures": found.marked, "by": by}
    return cached_figure(overview_packet, found.thumbnails, found.blocked, **heads)
