"""Which head of the atlas is looked at: by a click on its point, a row of the table or two select boxes."""

from typing import Any

import numpy as np
import streamlit as st

from i18n import say, say_all
from model import catalog
from model.atlas.names import MEASURES
from model.atlas.result import Atlas
from model.base import Model
from ui import page
from viz.head_atlas.scatter import distance_names, scatter
from viz.numbers import percent


def lifted(model: Model) -> dict[str, Any]:
    """The model's masks that are switched, as the reader has them."""
    names = [name for name in model.describe().masks if name != "padding"]
    return {name: st.session_state[name] for name in names}


def chosen(model: Model) -> tuple[int, int]:
    """The head that is looked at, the nearest that there is."""
    state, first = st.session_state, catalog.first_head(model)
    for name, count, default in (("layer", model.num_layers, first[0]), ("head", model.num_heads, first[1])):
        state[name] = min(default if state[name] is None else state[name], count - 1)
    return state.layer, state.head


def show(atlas: Atlas, x: str, y: str, chosen: tuple[int, int]) -> bool:
    """The scatter; a click on a point chooses its head. Gives whether there is one, or a measure counts nowhere."""
    nowhere = [name for name in dict.fromkeys((x, y)) if np.isnan(atlas.measure(name)).all()]
    if nowhere:
        names = say_all([say(MEASURES[name].title) for name in nowhere])
        st.info(
            say(
                "No query of these texts can be measured for {measures}: choose another measure, or other texts.",
                measures=names,
            )
        )
        return False
    alt = say(
        "Every head as a point: {across} across, {up} up.", across=say(MEASURES[x].title), up=say(MEASURES[y].title)
    )
    st.plotly_chart(scatter(atlas, x, y, chosen), key="atlas_scatter", config=page.CHART, on_select=_take_point,
                    selection_mode="points", alt=alt)  # fmt: skip
    return True


def distances_alt(atlas: Atlas, layer: int, head: int) -> str:
    """The bars in words."""
    names, shares = distance_names(atlas), atlas.spread[layer, head]
    most = int(shares[: len(names)].argmax())
    return say(
        "Attention of {head} by how many tokens back it looks. The largest share, {share}: {distance}.",
        head=atlas.name((layer, head)), share=percent(shares[most]), distance=names[most],
    )  # fmt: skip


def _take_point() -> None:
    points = st.session_state.atlas_scatter.selection.points
    if points and "customdata" in points[0]:
        st.session_state.layer, st.session_state.head = map(int, points[0]["customdata"][:2])
