"""Browser components for what plotly cannot draw: plain ES modules and CSS, read here as text, and their words."""

import json
import struct
import tomllib
import zlib
from pathlib import Path
from typing import Any

from i18n import say

FOLDER = Path(__file__).parent
VIEWS = {  # the files, in order, of each view's ES module, which exports draw(element, data, onPick)
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
    """Return the CSS of views of VIEWS."""
    return source("view.css", *(f"{view}.css" for view in views))


def source(*names: str) -> str:
    """Return the concatenated text of files of this folder: packet.js comes before the files that need it. Indentation
    and comment lines are removed, since Streamlit sends a component's source in every run of a page."""
    lines = (line.strip() for name in names for line in (FOLDER / name).read_text(encoding="utf-8").splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def words(*parts: str) -> dict[str, str]:
    """Return the sentences of these tables of words.toml in the user's language, by their names."""
    return {name: say(sentence) for part in parts for name, sentence in WORDS[part].items()}


def packed(header: dict[str, Any], *planes: bytes) -> bytes:
    """Return a packet: the length of a JSON header (4 bytes, little-endian), the header, and the planes, deflated."""
    text = json.dumps(header).encode()
    return struct.pack("<I", len(text)) + text + zlib.compress(b"".join(planes), 1)
