"""All heads for print: layers are rows, heads are columns, each a thumbnail."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import PowerNorm

from i18n import say
from model.heads.view import head_name
from viz.export.paper import ANY, Paper, Sheet, hatch, sequential

GAP = 0.06  # of a thumbnail's side
MOST_WIDE = 14.0  # inches of all thumbnails in a row
LARGEST, SMALLEST = 0.95, 0.3  # of one


def every_picture(paper: Paper, thumbnails: np.ndarray, blocked: np.ndarray, numbers: Sequence[int] = ()) -> Sheet:
    """thumbnails: float32 [L,H,S,S'], weights, 0 to 1. blocked: bool [L,S,S'], patches that are blocked as a whole.
    numbers: of each layer in the network, where they are not 0, 1, 2 …"""
    layers, heads, tall, wide = thumbnails.shape
    side = min(max(MOST_WIDE / heads, SMALLEST), LARGEST)
    gap = round(max(tall, wide) * GAP) + 1
    rows, columns = tall + gap, wide + gap
    hidden = np.zeros((layers * rows - gap, heads * columns - gap), bool)
    inch = side / max(rows, columns)
    width, height = inch * hidden.shape[1], inch * hidden.shape[0]
    sheet = Sheet(paper, max(0.55 + width + 0.95, 4.0), height + 0.35)
    panel = sheet.panel(0.55, 0.25, width, height)
    look: dict[str, Any] = {"cmap": sequential(), "norm": PowerNorm(0.5, 0, 1), "interpolation": "none"}
    for layer, head in np.ndindex(layers, heads):  # a picture each, so that each can be taken out of a PDF
        top, left = layer * rows, head * columns
        hidden[top : top + tall, left : left + wide] = blocked[layer]
        edges = (left - 0.5, left + wide - 0.5, top + tall - 0.5, top - 0.5)
        panel.imshow(np.ma.masked_array(thumbnails[layer, head], blocked[layer]), extent=edges, **look)
    panel.set(xlim=(-0.5, hidden.shape[1] - 0.5), ylim=(hidden.shape[0] - 0.5, -0.5))
    hatch(panel, {ANY: hidden})
    panel.set_frame_on(False)
    panel.xaxis.tick_top()
    panel.set_xticks(np.arange(heads) * columns + (wide - 1) / 2, [f"H{head}" for head in range(heads)])
    panel.set_yticks(
        np.arange(layers) * rows + (tall - 1) / 2, [head_name(number) for number in numbers or range(layers)]
    )
    panel.tick_params(length=0, labelsize=8)
    beside = sheet.panel(0.55 + width + 0.12, 0.25, 0.1, min(height, 3.0))
    sheet.figure.colorbar(ScalarMappable(PowerNorm(0.5, 0, 1), sequential()), cax=beside, label=say("weight"))
    beside.tick_params(labelsize=7)
    sheet.legend([ANY] if hidden.any() else [])
    return sheet
