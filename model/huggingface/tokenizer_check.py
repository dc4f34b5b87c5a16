"""Whether a stranger's tokenizer can be used on any text: one that panics, or makes much of little, is refused.

Some cannot be told by any check and never end, or take all memory: see serving.backends.inspector.
"""

import json
from math import prod
from typing import Any

from tokenizers import Tokenizer

from i18n import say
from model.errors import CheckpointError, first_line, panics_caught

MOST_FOR_ONE = 100  # characters that a normalizer may make of one: Unicode's own make 18
MOST_AROUND = 100  # tokens that may be put before and after a text
RUN = 40  # long enough for a regular expression whose time doubles with each character to show
INSERTED = ("content", "prepend")  # what a normalizer's fields of replacement text are called
PLAIN = [chr(code) for code in range(0x20, 0x10000) if not 0xD800 <= code < 0xE000]  # half a character is no text
PROSE = "It's 12:30, and THE cat sat on the mat; the dog — 3.14 metres away — said “no”.\n\n\tAnd so on… "  # not shown


def check_tokenizer(name: str, tokenizer: Tokenizer) -> None:
    """Raises CheckpointError for a tokenizer that cannot be used."""
    grown = _growth(tokenizer)
    if grown > MOST_FOR_ONE:
        raise CheckpointError(
            say("{model}: its tokenizer turns one character into {count:,}. Choose another model.",
                model=name, count=grown)
        )  # fmt: skip
    try:
        with panics_caught():
            around = len(tokenizer.encode_batch(["a"])[0].ids)
            tokenizer.encode_batch(_texts())
    except Exception as error:  # noqa: BLE001 - the library raises plain Exception
        raise CheckpointError(
            say("{model}: its tokenizer fails on some texts ({why}). Choose another model.",
                model=name, why=first_line(error))
        ) from None  # fmt: skip
    if around > MOST_AROUND:
        raise CheckpointError(
            say("{model}: its tokenizer puts {count:,} tokens around every text. Choose another model.",
                model=name, count=around)
        )  # fmt: skip


def _texts() -> list[str]:
    """Every character once, prose, and long runs of one character and of two, each of them ended by another."""
    ascii_characters = PLAIN[: 0x7F - 0x20]
    runs = [one * RUN + other for one in ascii_characters for other in ("b", "!")]
    pairs = [one + other for one, other in zip(ascii_characters, [*ascii_characters[1:], " "], strict=True)]
    return ["".join(PLAIN), PROSE * 10, *runs, *(pair * RUN + "\n" for pair in pairs)]


def _growth(tokenizer: Tokenizer) -> int:
    """How many characters the normalizer makes of one, at the most: of what it replaces itself, and of Unicode's."""
    normalizer = tokenizer.normalizer
    if normalizer is None:
        return 1
    replaced = prod(_inserted(json.loads(normalizer.__getstate__())))
    if replaced > MOST_FOR_ONE:  # tried, it would take the memory
        return replaced
    return max(len(normalizer.normalize_str(character)) for character in PLAIN)


def _inserted(part: Any) -> list[int]:
    """The lengths, 1 at the least, of every text that a normalizer puts in the place of something."""
    if isinstance(part, list):
        return [length for one in part for length in _inserted(one)]
    if not isinstance(part, dict):
        return []
    own = [max(len(text), 1) for name, text in part.items() if name in INSERTED and isinstance(text, str)]
    return own + [length for value in part.values() for length in _inserted(value)]
