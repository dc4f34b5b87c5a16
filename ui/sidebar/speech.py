"""The language of a user's pages: the browser's, or the one that was chosen, which links then contain as well."""

from typing import Any

import streamlit as st

from i18n import ENGLISH, LANGUAGES, language, set_language, set_language_source
from ui import widgets
from ui.streamlit_internals.session import session_id
from ui.widgets import plain


def restore() -> None:
    """Set the language, from the link if it has one. Call before any text is drawn."""
    linked = st.query_params.get("lang", "")
    widgets.restore("kept_language", lambda: {"lang": linked if linked in LANGUAGES else None})
    set_language(of_user() or ENGLISH)


def choose() -> None:
    state = st.session_state
    state.language_switch = language()
    names = {name: plain(own) for name, own in LANGUAGES.items()}
    take = lambda: state.update(lang=state.language_switch)  # noqa: E731
    look: Any = {"format_func": names.__getitem__, "required": True, "label_visibility": "collapsed"}
    st.segmented_control("Language · 语言", list(names), key="language_switch", on_change=take, **look)


def of_user() -> str | None:
    """Return the user's choice, or the browser's language if it is supported; None outside of a page."""
    if session_id() is None:
        return None
    browsers = (st.context.locale or "").split("-")[0]
    return st.session_state.get("lang") or (browsers if browsers in LANGUAGES else None)


def in_links() -> dict[str, str]:
    """Return the parameters of links that keep the chosen language; empty if none was chosen."""
    chosen = st.session_state.get("lang")
    return {"lang": chosen} if chosen else {}


set_language_source(of_user)
