"""Every head of every layer as one packet of bytes for the overview component (components/overview.js).

A pixel is one byte: 0 to 254 for a weight from 0 to 1, 255 where every cell of the patch is blocked.
"""

import numpy as np

from viz.hatch import ink
from viz.packet import packed
from viz.palette import table

BLOCKED = 255
MOST_PIXELS = 589_824  # 12 × 12 heads of 64 × 64: the packet stays under 0.6 MB whatever the model
LARGEST = 64


def thumbnail_size(layers: int, heads: int) -> int:
    """The widest thumbnail that fits the packet when there are this many heads."""
    return max(min(LARGEST, int((MOST_PIXELS / (layers * heads)) ** 0.5)), 4)


def blocked_thumbnail(blocked: np.ndarray, tall: int, wide: int) -> np.ndarray:
    """bool [Q,K] -> bool [tall,wide]: True where all of a patch is blocked.

    Patches as torch's adaptive pooling cuts them: patch i of n over Q cells goes from floor(i·Q/n) to ceil((i+1)·Q/n).
    """
    rows = np.stack([blocked[begin:end].all(0) for begin, end in _edges(blocked.shape[0], tall)])
    return np.stack([rows[:, begin:end].all(1) for begin, end in _edges(blocked.shape[1], wide)], axis=1)


def overview_packet(thumbnails: np.ndarray, blocked: np.ndarray, *, layer: int, head: int) -> bytes:
    """thumbnails float [L,H,S,S'], weights from 0 to 1; blocked bool [L,S,S']; layer and head: the chosen one.

    The packet's planes: the palette's 255 RGB triples and the pixels [L,H,S,S'].
    """
    pixels = np.rint(np.sqrt(np.clip(thumbnails, 0, 1)) * 254).astype(np.uint8)
    pixels[np.broadcast_to(blocked[:, None], pixels.shape)] = BLOCKED
    layers, heads, tall, wide = pixels.shape
    hatch = ink("causal", "#8c929ebf") | {"ground": "#8c929e29"}  # of any mask: a thumbnail has no room for each one's
    header = {
        "layers": layers,
        "heads": heads,
        "tall": tall,
        "wide": wide,
        "layer": layer,
        "head": head,
        "hatch": hatch,
    }
    return packed(header, table(255), pixels.tobytes())


def _edges(cells: int, parts: int) -> list[tuple[int, int]]:
    return [(part * cells // parts, -(-(part + 1) * cells // parts)) for part in range(parts)]
