"""Which head of the atlas is looked at: by a click on its point, a row of the table or two select boxes."""

from typing import Any

import plotly.graph_objects as go
import streamlit as st

from model import catalog
from model.base import Model
from model.heads.atlas_names import MEASURES
from model.heads.atlas_result import Atlas
from ui import controls, page
from viz.head_atlas.scatter import distance_names, label
from viz.numbers import tenths


def lifted(model: Model) -> dict[str, Any]:
    """The model's masks that are switched, as the reader has them."""
    names = [name for name in model.describe().masks if name in controls.SWITCHES and name != "padding"]
    return {name: st.session_state[name] for name in names}


def chosen(model: Model, atlas: Atlas) -> tuple[int, int]:
    """The head that is looked at, the nearest that there is; at first the clearest induction head."""
    state = st.session_state
    state.atlas_shape = atlas.layers, atlas.heads
    first = catalog.first_head(model)
    for name, count, default in (("layer", atlas.layers, first[0]), ("head", atlas.heads, first[1])):
        state[name] = min(default if state[name] is None else state[name], count - 1)
    return state.layer, state.head


def choose(model: Model, atlas: Atlas) -> None:
    """Two select boxes, and the way to Explore."""
    controls.choose_head(model, atlas.layers, atlas.heads)


def show(figure: go.Figure, x: str, y: str) -> None:
    """The scatter; a click on a point chooses its head."""
    st.plotly_chart(figure, key="atlas_scatter", config=page.CHART, on_select=_take_point, selection_mode="points",
                    alt=f"Every head as a point: {MEASURES[x].title} across, {MEASURES[y].title} up.")  # fmt: skip


def distances_alt(atlas: Atlas, layer: int, head: int) -> str:
    """The bars in words."""
    names, shares = distance_names(atlas), atlas.spread[layer, head]
    most = int(shares[: len(names)].argmax())
    return f"Attention of {label((layer, head))} by distance. The largest share, {tenths(shares[most])}: {names[most]}."


def _take_point() -> None:
    points = st.session_state.atlas_scatter.selection.points
    if points and "customdata" in points[0]:
        st.session_state.layer, st.session_state.head = map(int, points[0]["customdata"][:2])
