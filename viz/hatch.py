"""Blocked cells: their hatching as a PNG, where each mask has its own colour and direction; tooltips that name the
masks that block a cell; and the rows without an allowed key.
"""

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from i18n import say
from model.heads.view import HeadView
from viz.mask_styles import PERIOD, STROKE, STYLES, mask_name, mask_names
from viz.palette import MASK_COLOURS, rgb

LARGE, SMALL = 512, 192  # pixels of a PNG for a large and a small picture: lines of larger ones would run together
GROUND = {True: (120, 126, 138, 60), False: (150, 155, 165, 46)}  # RGBA of the background; True: dark theme
INK = 190  # the opacity of a line, 0 to 255

LINES = {  # PERIOD × PERIOD pixels of each mask, True = ink
    name: style.lines % PERIOD < STROKE for name, style in STYLES.items() if style.lines is not None
}
MAX_CELLS_WITH_TEXT = 6_400  # largest number of cells that each get a text of their own: more would take megabytes


def hatch_png(blocked: dict[str, np.ndarray], dark: bool, widest: int = LARGE) -> bytes:
    """Return a PNG that hatches the [Q,K] cells that any mask blocks, transparent elsewhere. Row 0 is at the top.
    blocked: bool [Q,K] by mask. widest: the longer side in pixels."""
    shape = next(iter(blocked.values())).shape
    scale = max(widest // max(shape), 1)
    size = (shape[0] * scale, shape[1] * scale)
    times = [-(-pixels // PERIOD) for pixels in size]
    entries = np.zeros(size, np.uint8)  # palette indices: 0 transparent, 1 background, then each mask
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
    """Return a mask's hatching for components/packet.js. lines: a number for each row whose bits are inked pixels."""
    lines = (LINES[name] << np.arange(PERIOD)).sum(1).tolist()
    return {"name": name, "colour": colour or MASK_COLOURS[name], "lines": lines}


def data_uri(png: bytes) -> str:
    """Return a PNG as a data URI for an <img> or a plotly layout."""
    return "data:image/png;base64," + base64.b64encode(png).decode()


def picture_uri(pixels: np.ndarray) -> str:
    """Encode pixels, uint8, as a PNG and return its data URI."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return data_uri(file.getvalue())


def reasons(view: HeadView) -> tuple[str, np.ndarray | None]:
    """Return the tooltip of blocked cells, and the value of its %{text} for each cell, [Q,K], or None.

    A single reason is written out. If there are several, each cell of a small picture has its reason as text.

    In a large picture each mask has a digit, and each cell the digits of the masks that block it: 13 means the first
    and the third. If there are more masks than digits, the combinations of masks are numbered instead.
    """
    groups = blocked_groups(view)
    if len(groups) == 1:
        return groups[0][0], None
    if view.weights.size <= MAX_CELLS_WITH_TEXT:
        text = np.full(view.weights.shape, "", object)
        for words, cells in groups:
            text[cells] = words
        return "%{text}", text
    named = [(mask_name(name), mask) for name, mask in view.blocked.items() if mask.any()]
    if len(named) > 9:
        named = [(mask_names(names), cells) for names, cells in blocking(view)]
    number = np.zeros(view.weights.shape, np.uint32)
    for digit, (_, cells) in enumerate(named, 1):
        number[cells] = number[cells] * 10 + digit
    key = say(", ").join(f"{digit} {name}" for digit, (name, _) in enumerate(named, 1))
    words = say("blocked by {masks} ({key})", masks="%{text}", key=key)
    return words, number.astype(np.min_scalar_type(number.max()))


def blocked_groups(view: HeadView) -> list[tuple[str, np.ndarray]]:
    """Group blocked cells by the masks that block them: ("blocked by causal and padding", bool [Q,K]) and so on."""
    return [(say("blocked by {masks}", masks=mask_names(names)), cells) for names, cells in blocking(view)]


def blocking(view: HeadView) -> list[tuple[list[str], np.ndarray]]:
    """Group blocked cells by the names of the masks that block them: (["causal", "padding"], bool [Q,K]) and so on."""
    if not view.blocked:
        return []
    bits = sum(mask.astype(np.int64) << bit for bit, mask in enumerate(view.blocked.values()))
    return [
        ([name for bit, name in enumerate(view.blocked) if found >> bit & 1], bits == found)
        for found in np.unique(bits).tolist()
        if found
    ]


def empty_runs(view: HeadView) -> list[tuple[int, int]]:
    """Return the first and the last row of each run of consecutive rows without an allowed key."""
    return [(first, end - 1) for _, first, end in runs(view.empty_rows()[None])]


def runs(mask: np.ndarray) -> list[tuple[int, int, int]]:
    """Find the runs of True in each row of [R,C]: (row, first column, column after the last)."""
    edges = np.argwhere(np.diff(np.pad(mask, ((0, 0), (1, 1))), axis=1)).reshape(-1, 2, 2)
    return [(row, begin, end) for (row, begin), (_, end) in edges.tolist()]
