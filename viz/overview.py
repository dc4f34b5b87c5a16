"""Every head of every layer as one packet of bytes for the overview component (components/overview.js).

A pixel is one byte: 0 to 254 for a weight from 0 to 1, 255 where every cell of the patch is blocked.
"""

from collections.abc import Sequence

import numpy as np

from viz.hatch import ink
from viz.packet import packed
from viz.palette import table

BLOCKED = 255


def overview_packet(
    thumbnails: np.ndarray, blocked: np.ndarray, *, layer: int, head: int, numbers: Sequence[int] = ()
) -> bytes:
    """thumbnails float [L,H,S,S'], weights from 0 to 1; blocked bool [L,S,S']; layer and head: the chosen one.

    numbers: of each layer in the network, where they are not 0, 1, 2 …: some networks have layers without attention.

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
        "numbers": list(numbers) or list(range(layers)),
        "head": head,
        "hatch": hatch,
    }
    return packed(header, table(255), pixels.tobytes())
