"""Which fonts of this machine draw a text, and what to write in place of what none of them has."""

import unicodedata
from functools import cache
from itertools import groupby

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

FONT = "DejaVu Sans"  # comes with matplotlib
LETTER = 0.08  # inches of a letter of a token's name


def drawable(text: str) -> str:
    """The text with the characters that no font of this machine has as their code points, ⟨U+4E2D U+6587⟩."""
    parts = groupby(text, lambda one: one in "\n " or _has(one))
    return "".join(
        "".join(some) if has else f"⟨{' '.join(f'U+{ord(one):04X}' for one in some)}⟩" for has, some in parts
    )


def families(text: str) -> list[str]:
    """The fonts that draw the text, in the order in which they are asked."""
    others = {_covering(one) for one in set(text) if one.isprintable() and not _in(FONT, one)}
    return [FONT, *sorted(name for name in others if name)]


def width(label: str) -> float:
    """Inches of a token's name, wide characters counted twice."""
    return LETTER * sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in label)


def _has(character: str) -> bool:
    return _in(FONT, character) or _covering(character) is not None


def _in(family: str, character: str) -> bool:
    return ord(character) in _characters(font_manager.findfont(family))


@cache
def _covering(character: str) -> str | None:
    """The first installed font that has the character."""
    for font in font_manager.fontManager.ttflist:
        if "LastResort" not in font.fname and ord(character) in _characters(font.fname):
            return str(font.name)
    return None


@cache
def _characters(path: str) -> frozenset[int]:
    return frozenset(FT2Font(path).get_charmap())
