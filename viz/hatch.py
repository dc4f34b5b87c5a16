"""Blocked cells as a picture: each mask hatches in its own colour and direction."""

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from viz.mask_styles import PERIOD, STROKE, STYLES
from viz.palette import MASK_COLOURS, rgb

LARGE, SMALL = 512, 192  # pixels, of a picture that is shown large or small: much larger, its lines would run together
GROUND = {True: (120, 126, 138, 60), False: (150, 155, 165, 46)}  # in the dark and in the light
INK = 190  # the opacity of a line

LINES = {  # PERIOD × PERIOD pixels of each mask, True = ink
    name: style.lines % PERIOD < STROKE for name, style in STYLES.items() if style.lines is not None
}


def hatch_png(blocked: dict[str, np.ndarray], dark: bool, widest: int = LARGE) -> bytes:
    """A PNG of the [Q,K] cells that any mask blocks, transparent elsewhere. Row 0 is at the top."""
    shape = next(iter(blocked.values())).shape
    scale = max(widest // max(shape), 1)
    size = (shape[0] * scale, shape[1] * scale)
    times = [-(-pixels // PERIOD) for pixels in size]
    entries = np.zeros(size, np.uint8)  # of the palette: 0 nothing, 1 ground, then a colour for each mask
    for colour, (name, mask) in enumerate(blocked.items(), 2):
        here = mask.repeat(scale, 0).repeat(scale, 1)
        entries[here & (entries == 0)] = 1
        entries[here & np.tile(LINES[name], times)[: size[0], : size[1]]] = colour
    colours = [(0, 0, 0, 0), GROUND[dark], *((*rgb(MASK_COLOURS[name]), INK) for name in blocked)]
    picture = Image.fromarray(entries, "P")
    picture.putpalette([part for colour in colours for part in colour[:3]])
    file = io.BytesIO()
    picture.save(file, "PNG", transparency=bytes(colour[3] for colour in colours), compress_level=4)
    return file.getvalue()


def ink(name: str, colour: str | None = None) -> dict[str, Any]:
    """A mask's hatching for components/packet.js: its lines, a number for each row whose bits are the inked pixels."""
    lines = (LINES[name] << np.arange(PERIOD)).sum(1).tolist()
    return {"name": name, "colour": colour or MASK_COLOURS[name], "lines": lines}


def data_uri(png: bytes) -> str:
    """The picture as a URI for an <img> or a plotly layout."""
    return "data:image/png;base64," + base64.b64encode(png).decode()
