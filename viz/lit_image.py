"""An image under a veil that is thin where a token attends to: for components/images.js, and as pixels for print.

Overlapping tokens, of a processor that cuts an image into tiles, are shown in several layers. Sizes: S tokens of the
text, P image tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from i18n import N_, say
from model.images.patches import LEAST, Box, grid_tokens
from viz.components import words
from viz.figure_table import FigureTable
from viz.hatch import ink
from viz.heads.cells import weight_text
from viz.images import images_packet, picture_uri, weights_table
from viz.numbers import percent

if TYPE_CHECKING:
    from model.huggingface.image_prompts import ImageLook  # with transformers

VEIL = np.array([16, 18, 24])  # as in images.js
OPACITY = 0.8  # over a token of weight 0
SMALLEST, LARGEST = 480, 640  # pixels across
STRIP = 24  # tokens in a row where their pixels are not known
ALT = N_("The image, in {count} tokens. Arrow keys move over them.")
HINT = N_("Point at a token of the text or at a part of the image.")
ALONE = N_("“{word}”: {head} gives {share} of its attention to the image, most to {patch}: {most}.")
OF_LAYER = N_("“{word}”: {head} gives {share} of its attention to these image tokens, most to {patch}: {most}.")
RELATIVE = N_("“{word}”: in {head}, its attention over the neutral prompt's is largest at {patch}: {most}.")
NO_MAPPING = N_("For this processor it is not known which pixels a token covers: image tokens are listed in order.")


@dataclass(frozen=True, eq=False)
class LitImage:
    """Attention of heads of a layer from a text to an image. heads: their names. picture: uint8 [height, width, 3].
    boxes: of the P image tokens, in pixels. weights: float32 [H,S,P]; blocked: bool [S,P]. labels: of the S tokens.
    query: which of them is shown, from 0. mapped: whether the boxes are pixels of the image. neutral: float32 [H,P], of
    a neutral prompt, to show weights divided by it."""

    heads: tuple[str, ...]
    picture: np.ndarray
    boxes: tuple[Box, ...]
    names: tuple[str, ...]
    weights: np.ndarray
    blocked: np.ndarray
    labels: tuple[str, ...]
    query: int
    mapped: bool = True
    neutral: np.ndarray | None = None

    def layers(self) -> "Iterator[LitImage]":
        """Parts whose boxes do not overlap, in the order of the tokens; each row by row."""
        edges, begins = np.array(self.boxes), [0]
        for one, (left, top, right, bottom) in enumerate(self.boxes):
            others = edges[begins[-1] : one]
            wide = np.minimum(others[:, 2], right) - np.maximum(others[:, 0], left)
            high = np.minimum(others[:, 3], bottom) - np.maximum(others[:, 1], top)
            if ((wide > 0.01) & (high > 0.01)).any():
                begins.append(one)
        for begin, end in zip(begins, [*begins[1:], len(edges)], strict=True):
            some = sorted(range(begin, end), key=lambda one: (round(edges[one, 1]), edges[one, 0]))
            boxes, names = tuple(self.boxes[one] for one in some), tuple(self.names[one] for one in some)
            weights, blocked = self.weights[:, :, some], self.blocked[:, some]
            neutral = None if self.neutral is None else self.neutral[:, some]
            yield replace(self, boxes=boxes, names=names, weights=weights, blocked=blocked, neutral=neutral)


def shown_help(neutral: str) -> str:
    words = N_(
        "Relative: what an image token gets from a token of the text, divided by what it gets from the last token of "
        "the neutral prompt “{prompt}” with the same image; a divisor below {least} counts as {least}. A mean is "
        "divided by the mean (Zhang et al. 2025)."
    )
    return say(words, prompt=neutral, least=percent(LEAST))


def strip(count: int) -> tuple[np.ndarray, tuple[Box, ...]]:
    """A grey picture with a place for each of so many tokens, whose pixels are not known."""
    rows = -(-count // STRIP)
    size = min(count, STRIP) * 20, rows * 20
    boxes = (token.box for token in grid_tokens(rows, min(count, STRIP), (0, 0, *size), size))
    return np.full((size[1], size[0], 3), 170, np.uint8), tuple(boxes)[:count]


def shown_at(picture: np.ndarray, boxes: Sequence[Box]) -> tuple[np.ndarray, tuple[Box, ...]]:
    """A picture and boxes in it, not larger than LARGEST across."""
    small = Image.fromarray(picture)
    small.thumbnail((LARGEST, LARGEST))
    x, y = small.width / picture.shape[1], small.height / picture.shape[0]
    return np.asarray(small), tuple((left * x, top * y, right * x, bottom * y) for left, top, right, bottom in boxes)


def lit_image(found: "ImageLook", heads: tuple[str, ...], picture: np.ndarray, query: int) -> LitImage:
    """heads: their names. picture: the image, uint8. query: which of the labels is shown."""
    pixels = shown_at(picture, found.boxes) if found.boxes else strip(len(found.names))
    weights, mapped = (found.weights, found.blocked), bool(found.boxes)
    return LitImage(heads, *pixels, found.names, *weights, found.labels, query, mapped, found.neutral)


def sentence(lit: LitImage) -> str:
    """Of the query that is shown, in the first head: how much of its attention is on the image, where the most."""
    weights = lit.weights[0, lit.query]
    said = {"name": lit.heads[0], "token": lit.labels[lit.query], "share": percent(float(weights.sum()))}
    most = int(weights.argmax())
    words = N_("{name}: “{token}” gives {share} of its attention to the image, most to {place}: {most}.")
    return say(words, **said, place=lit.names[most], most=weight_text(weights[most]))


def composed(lit: LitImage) -> np.ndarray:
    """One layer's pixels in the first head, uint8, at least SMALLEST across."""
    times = -(-SMALLEST // lit.picture.shape[1])
    pixels = np.kron(lit.picture, np.ones((times, times, 1))).astype(np.float64)
    weights = lit.weights[0, lit.query]
    veils = OPACITY * (1 - np.sqrt(weights / (weights.max(initial=0) or 1)))
    for box, veil in zip(lit.boxes, veils, strict=True):
        left, top, right, bottom = (round(edge * times) for edge in box)
        pixels[top:bottom, left:right] += (VEIL - pixels[top:bottom, left:right]) * veil
    return pixels.round().astype(np.uint8)


def weights_tables(lit: LitImage, head: int = 0) -> list[FigureTable]:
    """What each image token gets from each token of the text. head: as lit_packet's."""
    neutral = None if lit.neutral is None else lit.neutral[None]
    return [weights_table(lit.weights[None], lit.blocked, lit.labels, lit.names, head, neutral)]


def lit_packet(lit: LitImage, *, alone: bool, head: int = 0) -> bytes:
    """One layer, for components/images.js. alone: it is the only one. head: 0 for the mean of all or 1 + its number."""
    several, (high, wide) = len(lit.heads) > 1, lit.picture.shape[:2]
    mean = say("mean of all heads") if several else lit.heads[0]
    names = [mean, *lit.heads, mean]
    said = RELATIVE if lit.neutral is not None else ALONE if alone else OF_LAYER
    neutral = None if lit.neutral is None else lit.neutral[None]
    boxes = tuple((left / wide, top / high, right / wide, bottom / high) for left, top, right, bottom in lit.boxes)
    return images_packet(
        lit.labels, np.zeros(len(lit.labels)), lit.weights[None], lit.blocked, None, boxes, (), "look",
        picture=picture_uri(Image.fromarray(lit.picture)), smooth=wide > SMALLEST, names=lit.names, head=head,
        word=lit.query, changed=[False] * len(lit.labels), heads=[{"name": name, "share": ""} for name in names],
        order=list(range(len(names) - 1 if several else 1)), hatches=[ink("causal")], hint=say(HINT),
        alt=say(ALT, count=len(boxes)), words=words("images") | {"word": say(said)}, neutral=neutral,
    )  # fmt: skip
