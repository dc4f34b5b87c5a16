"""What a component of the browser has sent."""

from collections.abc import Mapping
from typing import Any

import streamlit as st


def heard(key: str) -> Mapping[str, Any]:
    """For a component's callback: what the one under this key sent; nothing where another page was chosen meanwhile."""
    return st.session_state.get(key) or {}
