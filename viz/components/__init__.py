"""The browser parts that plotly cannot do: plain ES modules and CSS, read here as text."""

from pathlib import Path

VIEWS = {  # a view's ES module gives draw(element, data, onPick); what it is made of, in order
    "overview": ("packet.js", "overview.js"),
    "heatmap": ("packet.js", "query.js", "cells.js", "heatmap.js"),
    "tokens": ("packet.js", "query.js", "cells.js", "tokens.js"),
    "arcs": ("packet.js", "query.js", "cells.js", "arcs.js"),
    "mask": ("packet.js", "mask_picture.js", "plot_axes.js", "mask.js"),
    "images": ("packet.js", "images.js"),
    "pixels": ("packet.js", "pixels.js"),
}


def style(*views: str) -> str:
    """The CSS of views out of VIEWS."""
    return source("view.css", *(f"{view}.css" for view in views))


def source(*names: str) -> str:
    """The text of files of this folder, one after another: packet.js before what needs it."""
    return "\n".join((Path(__file__).parent / name).read_text(encoding="utf-8") for name in names)
