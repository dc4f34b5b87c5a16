"""A head that grows by a row at every token, as bytes for the component (components/growing.js): the same picture
changes in place, where a new plotly figure would be an empty page for a moment."""

import numpy as np

from viz.hatch import hatch_png
from viz.head import head_range
from viz.heatmap import KEY_TITLE, QUERY_TITLE
from viz.packet import packed
from viz.palette import MARK, table
from viz.reasons import blocked_groups
from viz.view import HeadView

COLOURS = 255


def growing_packet(view: HeadView, row: int, alt: str, *, dark: bool) -> bytes:
    """The head on T tokens, row number `row` of the picture framed.

    The packet: the palette's 255 RGB triples, for each of the T·T cells which of the header's reasons blocks it (uint8,
    0 for none), the weights and the scaled scores (float32), and the hatching of the blocked cells as a PNG.
    """
    groups = blocked_groups(view)
    reasons = np.zeros(view.weights.shape, np.uint8)
    for number, (_, cells) in enumerate(groups, 1):
        reasons[cells] = number
    header = {
        "size": len(view.queries),
        "first": view.first,
        "labels": view.queries,
        "row": row,
        "most": head_range(view),
        "reasons": [text for text, _ in groups],
        "mark": MARK,
        "titles": [QUERY_TITLE, KEY_TITLE],
        "alt": alt,
    }
    numbers = np.stack([view.weights, view.scaled]).astype("<f4")
    hatching = hatch_png(view.blocked, dark) if groups else b""
    return packed(header, table(COLOURS), reasons.tobytes(), numbers.tobytes(), hatching)
