"""What the page Across layers shows, and its link."""

from typing import Literal

import streamlit as st

from i18n import N_, say
from model import catalog
from model.base import Model
from ui import controls, link
from ui.widgets import choices
from ui.widgets.bound import bound
from ui.widgets.one_of import one_of

Across = Literal["lens", "token", "all"]
Over = Literal["mean", "maximum", "rollout", "flow"]
SECTIONS = {"lens": N_("Logit lens"), "token": N_("One token, layer by layer"), "all": N_("All tokens")}
OVER = {
    "mean": N_("mean over heads"),
    "maximum": N_("maximum over heads"),
    "rollout": N_("rollout"),
    "flow": N_("flow"),
}
HELP = N_(
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
    return one_of(say("Shown"), SECTIONS, "across", label_visibility="collapsed")


def choose_over(section: Across) -> Over:
    """What of a layer's heads; flow is of one token alone."""
    offered = [name for name in OVER if name != "flow" or section == "token"]
    if st.session_state.over not in offered:
        st.session_state.over = "rollout"
    st.selectbox(say("Over heads"), offered, format_func=lambda one: say(OVER[one]), key="over", help=say(HELP))
    return st.session_state.over


def choose_layer(model: Model, names: list[str]) -> int:
    """The layer that is shown; at first that of the head worth seeing first."""
    chosen = catalog.first_head(model)[0] if st.session_state.layer is None else st.session_state.layer
    st.session_state.layer = min(chosen, len(names) - 1)
    st.selectbox(say("Layer"), range(len(names)), **bound("layer", st.session_state.layer),
                 format_func=names.__getitem__)  # fmt: skip
    return st.session_state.layer


def share(model: Model) -> None:
    """Keep the URL true to the page, and offer links."""
    controls.share(LayersLink, model, masks=None, section=None, scope="model", head=None)
