"""Text from outside in streamlit's markdown."""

import re
from collections.abc import Iterable

from i18n import translated

ACTIVE = re.compile(r"[\\`*{}\[\]<>$|~&]|:(?=\S)|^[#+-]|(?<!\w)_|_(?!\w)")  # what markdown would act upon
# What streamlit replaces by a picture (:dog:) or a sign (->), also behind a backslash
REPLACED = re.compile(r":(?=[\w/+-]+:)|(?<!\S)[<>~-](?=(?:->|[->=])(?!\S))")
WORD_JOINER = "\u2060"  # takes no room


def escaped(text: str | Exception) -> str:
    """Text for st.markdown and its like, shown as it is, on one line; a Message, or an error's, is translated."""
    line = REPLACED.sub(rf"\g<0>{WORD_JOINER}", " ".join(translated(text).split()))
    return ACTIVE.sub(r"\\\g<0>", line)


def lines(texts: Iterable[str]) -> str:
    """The same, each on a line of its own."""
    return "  \n".join(map(escaped, texts))
