"""Three things to try on the home page, each done by one press, ticked when seen, gone when closed."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from i18n import N_, say
from ui.sidebar.models import EXAMPLES, FIRST
from ui.streamlit_internals import css

MODEL = "story"  # whose heads these are
STANDARD = {"row": 1, "pad": "left", "scope": "model", "causal": True, "padding": True, "zoom": None, "query": None}
THINGS: Mapping[str, Mapping[str, Any]] = {  # what each press chooses
    "start_previous": {"text": FIRST, "layer": 0, "head": 3},
    "start_future": {"text": FIRST, "layer": 4, "head": 0, "causal": False},
    "start_padding": {
        "text": EXAMPLES["Two lines of very different length"], "layer": 0, "head": 3, "padding": False,
        "show_padding": True,
    },
}  # fmt: skip
LABELS = {
    "start_previous": N_("a head that attends one token back"),
    "start_future": N_("let every token see the future"),
    "start_padding": N_("let tokens attend to padding"),
}
STYLE = """<style>
  .st-key-start { margin-bottom: -.6rem; } .st-key-start :is(button, a) { min-height: 0; padding: 0 .2rem; }
  .st-key-start p { font-size: .9rem; } div:has(> $html > style) { margin: 0; }
</style>"""


def show(model: str) -> None:
    """One line, while the reader has the model that it is about, and has not closed it in this session."""
    state = st.session_state
    if model != MODEL or state.get("start_closed"):
        return
    seen = state.get("start_seen", ())
    with st.container(key="start", horizontal=True, vertical_alignment="center", gap="small"):
        st.html(css(STYLE), width="content")
        st.markdown(say("Three things to try:"), width="content")
        for name in THINGS:
            icon = ":material/check_circle:" if name in seen else ":material/radio_button_unchecked:"
            st.button(say(LABELS[name]), key=name, icon=icon, type="tertiary", on_click=_try, args=(name,))
        st.page_link("pages/lessons.py", label=say("or take the lessons"), icon=":material/school:")
        st.button("", key="start_close", icon=":material/close:", type="tertiary", help=say("Dismiss"),
                  on_click=lambda: state.update(start_closed=True))  # fmt: skip


def _try(name: str) -> None:
    state = st.session_state
    state.update({**STANDARD, **THINGS[name]})
    state.start_seen = (*state.get("start_seen", ()), name)
