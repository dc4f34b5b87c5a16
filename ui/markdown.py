"""Text from outside in streamlit's markdown."""

import re
from collections.abc import Iterable

from i18n import translated

ACTIVE = re.compile(r"[\\`*{}\[\]<>$|~&]|:(?=\S)|^[#+-]|(?<!\w)_|_(?!\w)")  # what markdown would act upon


def escaped(text: str | Exception) -> str:
    """Text for st.markdown and its like, shown as it is, on one line; a Message, or an error's, is translated."""
    return ACTIVE.sub(r"\\\g<0>", " ".join(translated(text).split()))


def lines(texts: Iterable[str]) -> str:
    """The same, each on a line of its own."""
    return "  \n".join(map(escaped, texts))
