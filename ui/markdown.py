"""Escaping of texts from outside for Streamlit's Markdown."""

import re
from collections.abc import Iterable

from i18n import translated

ACTIVE = re.compile(r"[\\`*{}\[\]<>$|~&]|:(?=\S)|^[#+-]|(?<!\w)_|_(?!\w)")  # Markdown's special characters
# What Streamlit replaces by an icon (:dog:) or a sign (->), even after a backslash
REPLACED = re.compile(r":(?=[\w/+-]+:)|(?<!\S)[<>~-](?=(?:->|[->=])(?!\S))")
WORD_JOINER = "\u2060"  # has no width


def escaped(text: str | Exception) -> str:
    """Escape a text for st.markdown and the like, on one line; a Message, also an exception's, is translated."""
    line = REPLACED.sub(rf"\g<0>{WORD_JOINER}", " ".join(translated(text).split()))
    return ACTIVE.sub(r"\\\g<0>", line)


def lines(texts: Iterable[str]) -> str:
    """Escape texts as `escaped` does, each on a line of its own."""
    return "  \n".join(map(escaped, texts))
