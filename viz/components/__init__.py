"""The browser parts that plotly cannot do: plain ES modules and CSS, read here as text, and what they say."""

import json
import struct
import tomllib
import zlib
from pathlib import Path
from typing import Any

from i18n import say

FOLDER = Path(__file__).parent
VIEWS = {  # a view's ES module gives draw(element, data, onPick); what it is made of, in order
    "overview": ("packet.js", "overview.js"),
    "heatmap": ("packet.js", "query.js", "cells.js", "heatmap.js"),
    "tokens": ("packet.js", "query.js", "cells.js", "tokens.js"),
    "arcs": ("packet.js", "query.js", "cells.js", "arcs.js"),
    "mask": ("packet.js", "mask_picture.js", "plot_axes.js", "mask.js"),
    "images": ("packet.js", "images.js"),
    "pixels": ("packet.js", "pixels.js"),
}
WORDS: dict[str, dict[str, str]] = tomllib.loads((FOLDER / "words.toml").read_text(encoding="utf-8"))


def style(*views: str) -> str:
    """The CSS of views out of VIEWS."""
    return source("view.css", *(f"{view}.css" for view in views))


def source(*names: str) -> str:
    """The text of files of this folder, one after another: packet.js before what needs it. No indentation and no lines
    of comments: Streamlit sends a component's in every run of a page."""
    lines = (line.strip() for name in names for line in (FOLDER / name).read_text(encoding="utf-8").splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def words(*parts: str) -> dict[str, str]:
    """Of these tables of words.toml, in the reader's language, by their names there."""
    return {name: say(sentence) for part in parts for name, sentence in WORDS[part].items()}


def packed(header: dict[str, Any], *planes: bytes) -> bytes:
    """The length of a JSON header (4 bytes, little-endian), the header, then the planes, deflated as one."""
    text = json.dumps(header).encode()
    return struct.pack("<I", len(text)) + text + zlib.compress(b"".join(planes), 1)
