"""Text from outside in streamlit's markdown."""

import re


def escaped(text: str) -> str:
    """Text for st.markdown, shown as it is."""
    return re.sub(r"([\\`*_{}\[\]()#+.!:|<>$~-])", r"\\\1", text)
