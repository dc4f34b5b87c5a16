"""The five steps of the page Why causal, one on the screen at a time."""

import streamlit as st

from i18n import N_, say
from ui.widgets.choices import bound

LOSS, HEADS, WRITING, PROOF, TRAINING = range(1, 6)
NAMES = {
    LOSS: N_("The loss"),
    HEADS: N_("Copy heads"),
    WRITING: N_("Generated text"),
    PROOF: N_("A later token"),
    TRAINING: N_("Train it yourself"),
}


def choose() -> int:
    """The step on the screen, from 1, as its tab or Previous and Next chose it."""
    step = st.session_state.why_step
    with st.container(key="why_steps", horizontal=True, vertical_alignment="center", gap="small"):
        st.segmented_control(say("The five steps"), list(NAMES), format_func=_name, **bound("why_step", step),
                             required=True, label_visibility="collapsed", width="content")  # fmt: skip
        st.button(say("Previous"), icon=":material/chevron_left:", key="why_previous", on_click=_go, args=(step - 1,),
                  disabled=step == LOSS)  # fmt: skip
        st.button(say("Next"), icon=":material/chevron_right:", key="why_next", on_click=_go, args=(step + 1,),
                  disabled=step == TRAINING)  # fmt: skip
    return step


def _name(step: int) -> str:
    return f"{step} {say(NAMES[step])}"


def _go(step: int) -> None:
    st.session_state.why_step = step
