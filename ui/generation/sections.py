"""The sections below the text that is written, one at a time: what the cache changes, what it saves, what it needs."""

import streamlit as st

from i18n import N_, say
from model import kv_cache
from model.base import Model
from ui import explain
from ui.generation import cost, lifted, same_numbers
from ui.generation.writing import Writing
from ui.guard import guarded
from ui.widgets.choices import one_of

SECTIONS = {
    "cache": N_("The cache on and off: the same numbers"),
    "cost": N_("What a step costs"),
    "lift": N_("Lift the causal mask: old rows change"),
}
NOT_OURS = N_(
    "The key-value cache is shown for models that run on our own Transformer: the story model, GPT-2 and folders in "
    "its layout. {model} runs on its own code here, every step in full."
)


def show(model: Model, writing: Writing, cache: bool, layer: int, head: int) -> None:
    """The section that is chosen; the others are not computed, and none while the text plays."""
    if kv_cache.network_of(model) is None:
        st.caption(say(NOT_OURS, model=explain.title_of(model)))
        return
    one_of(say("Section"), SECTIONS, "generation_section", label_visibility="collapsed")
    ids = writing.path.ids
    if writing.playing:
        st.caption(say("Pause, and this section is computed for the text as it is then."))
        return
    if len(ids) < 2:
        st.caption(say("A cache needs a position before the newest: write a token first."))
        return
    with guarded():
        if st.session_state.generation_section == "cache":
            same_numbers.show(model, writing, cache, layer, head)
        elif st.session_state.generation_section == "cost":
            cost.show(model, ids)
        else:
            lifted.show(model, ids)
