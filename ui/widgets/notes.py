"""What is to be known of what a page shows, and need not be read first: one line that opens."""

from collections.abc import Sequence

import streamlit as st

from i18n import say


def show(sentences: Sequence[str]) -> None:
    """Markdown sentences; one alone stands there as it is, several open from a line that says how many. None: nothing.

    What comes from outside has to be escaped.
    """
    if len(sentences) == 1:
        st.caption(f":material/info: {sentences[0]}")
    elif sentences:
        with st.expander(say("{count} notes on what is shown", count=len(sentences)), icon=":material/info:"):
            st.markdown("\n".join(f"- {sentence}" for sentence in sentences))
