"""A lesson's step on an image: what a token attends to in it, and before that is asked the image and the words alone.

Sizes: P image tokens, which come first in a row.
"""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from PIL import Image

from i18n import say
from model.heads.view import HeadView
from model.images.patches import Box
from viz.html import join, tag
from viz.images import picture_uri
from viz.lessons.screen import tokens
from viz.lit_image import LitImage, composed, sentence


def lit_step(view: HeadView, name: str, image: tuple[np.ndarray, tuple[Box, ...]], query: int) -> LitImage:
    """name: the head's. image: its pixels, uint8 [height, width, 3], and the boxes of its tokens. query: a position."""
    pixels, boxes = image
    rows = sorted({query, *range(len(boxes), len(view.queries))})
    cells = np.s_[rows, : len(boxes)]
    names, labels = tuple(view.keys[: len(boxes)]), tuple(view.queries[row] for row in rows)
    weights, blocked = view.weights[cells][None], view.any_blocked()[cells]
    return LitImage((name,), pixels, boxes, names, weights, blocked, labels, rows.index(query))


def lit_picture(view: HeadView, name: str, image: tuple[np.ndarray, tuple[Box, ...]], query: int) -> tuple[str, str]:
    """The same as what is said of it, and an image as a URI."""
    lit = lit_step(view, name, image, query)
    return sentence(lit), picture_uri(Image.fromarray(composed(lit)))


def image_and_words(image: tuple[np.ndarray, tuple[Box, ...]], pieces: Sequence[str], query: int | None) -> Markup:
    """The words alone, unless the query is an image token."""
    pixels, boxes = image
    first = len(boxes) if query is None or query >= len(boxes) else 0
    alt = say("The image of {count} image tokens, which come before the words.", count=len(boxes))
    return join([picture(picture_uri(Image.fromarray(pixels)), alt), tokens(pieces, query, first)])


def picture(uri: str, alt: str) -> Markup:
    return tag("img", src=uri, alt=alt, class_="scene")
