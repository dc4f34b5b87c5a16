"""Fonts of this machine for a text, and replacements for characters that none of them has."""

import re
from contextlib import suppress
from functools import cache
from itertools import groupby

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

from i18n import ENGLISH, language
from viz.html import letters

FONT = "DejaVu Sans"  # not shown; comes with matplotlib
LETTERS = {"zh": "词码权层头"}  # characters in fonts for this language that fonts for related ones lack
WIDE = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60"  # Chinese: a line may end after any of them …
CLOSING = "，。；：、！？）》”"  # … but not before these,
OPENING = "（《“"  # nor after these
LETTER = 0.08  # width of a letter of a token label in inches
PIECE = re.compile(rf"\s+|[{OPENING}]*[{WIDE}][{CLOSING}]*|[^\s{WIDE}]+[{CLOSING}]*")


def writes(language: str) -> bool:
    """Whether fonts of this machine have the characters of a language, of i18n.LANGUAGES."""
    return all(map(_has, LETTERS.get(language, "")))


def language_of(kind: str) -> str:
    """Return the language of a picture's text: the user's, or English if no font here has its characters. kind: "svg",
    "png" or "pdf". Text in an SVG is drawn with the fonts of the machine that opens it."""
    return language() if kind == "svg" or writes(language()) else ENGLISH


def drawable(text: str) -> str:
    """Replace the characters that no font of this machine has with their code points: ⟨U+4E2D U+6587⟩."""
    parts = groupby(text, lambda one: one in "\n " or _has(one))
    return "".join(
        "".join(some) if has else f"⟨{' '.join(f'U+{ord(one):04X}' for one in some)}⟩" for has, some in parts
    )


def families(text: str) -> list[str]:
    """Return the fonts that draw the text, in order of preference."""
    others = {_covering(one) for one in set(text) if one.isprintable() and not _in_ours(one)}
    return [FONT, *sorted(name for name in others if name)]


def width(label: str) -> float:
    """Return the width of a token label in inches; wide characters count twice."""
    return LETTER * letters(label)


def wrapped(text: str, most: int) -> list[str]:
    """Wrap a text into lines of at most `most` letters, wide ones counted twice; a longer word has its own line."""
    lines = [""]
    for piece in PIECE.findall(text):
        if lines[-1] and letters(lines[-1] + piece.rstrip()) > most:
            lines[-1] = lines[-1].rstrip()
            lines.append("")
        if lines[-1] or not piece.isspace():
            lines[-1] += " " if piece.isspace() else piece
    return [line for line in (line.rstrip() for line in lines) if line]


def _has(character: str) -> bool:
    return _in_ours(character) or _covering(character) is not None


def _in_ours(character: str) -> bool:
    return ord(character) in _characters(font_manager.findfont(FONT))


@cache
def _covering(character: str) -> str | None:
    """Return the first installed font that has the character; None if there is none."""
    return _listed(character) or (_listed(character) if _newly_installed() else None)


def _listed(character: str) -> str | None:
    for font in font_manager.fontManager.ttflist:
        if "LastResort" not in font.fname and ord(character) in _characters(font.fname):
            return str(font.name)
    return None


@cache
def _newly_installed() -> bool:
    """Add fonts installed since matplotlib cached its list of them; return whether there were any."""
    known = {font.fname for font in font_manager.fontManager.ttflist}
    others = sorted(set(font_manager.findSystemFonts()) - known)
    for path in others:
        with suppress(OSError, RuntimeError, ValueError):  # unreadable files and bitmap fonts
            font_manager.fontManager.addfont(path)
    return bool(others)


@cache
def _characters(path: str) -> frozenset[int]:
    """Return a font's characters; none if it cannot be read: matplotlib's list may contain removed fonts."""
    with suppress(OSError, RuntimeError):
        return frozenset(FT2Font(path).get_charmap())
    return frozenset()
