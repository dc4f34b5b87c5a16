"""What a component of the browser has sent."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

MOST = 10**6  # more than any position, layer or number of a picture's part


def component_value(key: str) -> Mapping[str, Any]:
    """For a component's callback: what the one under this key sent; nothing where another page was chosen meanwhile."""
    return st.session_state.get(key) or {}


def whole(sent: Any) -> int | None:
    """A whole number from 0 to MOST that a component sent; None for anything else: a browser may send what it likes."""
    return int(sent) if isinstance(sent, int | float) and 0 <= sent <= MOST and sent == int(sent) else None


def wholes(sent: Any, count: int) -> list[int] | None:
    """So many of them; None for anything else."""
    found = list(map(whole, sent)) if isinstance(sent, list) and len(sent) == count else []
    return [one for one in found if one is not None] if found and None not in found else None
