"""What the page Across layers shows, and its link."""

from typing import Literal

import streamlit as st

from model import catalog
from model.base import Model
from ui import choices, controls, link

Across = Literal["lens", "token", "all"]
Over = Literal["mean", "maximum", "rollout", "flow"]
SECTIONS = {"lens": "Logit lens", "token": "One token, layer by layer", "all": "All tokens"}
OVER = {"mean": "mean over heads", "maximum": "maximum over heads", "rollout": "rollout", "flow": "flow"}
HELP = (
    "Mean, maximum: of the weights of a layer's heads. Rollout: how much of a token's state comes from each token by "
    "the end of a layer, each layer being half its heads' mean and half the residual connection. Flow: the most that "
    "can come through those layers from one token, as through pipes (Abnar and Zuidema 2020)."
)


class LayersLink(link.View):
    """This page's link."""

    across: Across = "lens"
    over: Over = "rollout"


def restore() -> None:
    """Put the page's own choices where their widgets find them."""
    own = {"across", "over"}
    choices.restore("kept_layers", lambda: LayersLink.read().model_dump(include=own))


def choose_section() -> Across:
    """Which of the page's pictures."""
    st.segmented_control("Shown", list(SECTIONS), format_func=SECTIONS.__getitem__, key="across", required=True,
                         label_visibility="collapsed")  # fmt: skip
    return st.session_state.across


def choose_over(section: Across) -> Over:
    """What of a layer's heads; flow is of one token alone."""
    offered = [name for name in OVER if name != "flow" or section == "token"]
    if st.session_state.over not in offered:
        st.session_state.over = "rollout"
    st.selectbox("Over heads", offered, format_func=OVER.__getitem__, key="over", help=HELP)
    return st.session_state.over


def choose_layer(model: Model, names: list[str]) -> int:
    """The layer that is shown; at first that of the head worth seeing first."""
    chosen = catalog.first_head(model)[0] if st.session_state.layer is None else st.session_state.layer
    st.session_state.layer = min(chosen, len(names) - 1)
    st.selectbox("Layer", range(len(names)), key="layer", format_func=names.__getitem__)
    return st.session_state.layer


def share(model: Model) -> None:
    """Keep the URL true to the page, and offer links."""
    controls.share(LayersLink, model, masks=None, section=None, scope="model", head=None)
