"""A row of words of which one is always chosen."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from i18n import say


def one_of(label: str, words: Mapping[Any, str], key: str, **look: Any) -> Any:
    """The name of the one that is chosen, which is in st.session_state[key] too. words: each name's, by N_, in their
    order. look: as segmented_control takes it."""
    st.segmented_control(
        label, list(words), format_func=lambda name: plain(say(words[name])), key=key, required=True, **look
    )
    return st.session_state[key]


def plain(word: str) -> str:
    """A word as these rows show it that begins with no emoji.

    Before one that is not ASCII Streamlit looks for emoji, with an expression of all there are: to compile it takes
    a process 0.14 s. Before a space, which nobody sees, it does not look.
    """
    return word if word.isascii() else f" {word}"
