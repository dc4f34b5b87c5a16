"""Blocked cells as a picture: each mask hatches in its own colour and direction."""

import base64
import io

import numpy as np
from PIL import Image

from viz.palette import MASK_COLOURS, rgb

PERIOD, STROKE = 6, 2  # pixels from line to line, and of each line
LARGE, SMALL = 512, 192  # pixels, of a picture that is shown large or small: much larger, its lines would run together


def hatch_png(blocked: dict[str, np.ndarray], dark: bool, widest: int = LARGE) -> bytes:
    """A PNG of the [Q,K] cells that any mask blocks, transparent elsewhere. Row 0 is at the top."""
    shape = next(iter(blocked.values())).shape
    scale = max(widest // max(shape), 1)
    down, across = np.indices((shape[0] * scale, shape[1] * scale), dtype=np.int16)
    up, back = across + down, across - down
    lines = {
        "causal": up,
        "padding": back,
        "window": across,
        "sliding": down,
        "stride": across + 2 * down,
        "documents": 2 * across + down,
        "drawn": np.minimum(up % PERIOD, back % PERIOD),
    }
    pixels = np.zeros((*down.shape, 4), np.uint8)
    for name, mask in blocked.items():
        here = mask.repeat(scale, 0).repeat(scale, 1)
        ground = here & (pixels[..., 3] == 0)
        pixels[ground] = (120, 126, 138, 60) if dark else (150, 155, 165, 46)
        stroke = here & (lines[name] % PERIOD < STROKE)
        pixels[stroke] = (*rgb(MASK_COLOURS[name]), 190)
    file = io.BytesIO()
    Image.fromarray(pixels).quantize(32, method=Image.Quantize.FASTOCTREE).save(file, "PNG")
    return file.getvalue()


def data_uri(png: bytes) -> str:
    """The picture as a URI for an <img> or a plotly layout."""
    return "data:image/png;base64," + base64.b64encode(png).decode()
