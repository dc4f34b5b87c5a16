"""The regions of an image that its tokens cover, in the image's own pixels, before any resizing, cropping or merging;
and means of the attention to them."""

from dataclasses import dataclass

import numpy as np

MIN_ATTENTION = 0.001  # the least attention used as a divisor

Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels from the top left; the last two exclusive


@dataclass(frozen=True)
class ImageToken:
    """A token that stands for a part of an image. position: of the token in its row, from 0. box: the part of the image
    that it was made from. image: the index of the image in the row, from 0."""

    position: int
    box: Box
    image: int = 0

    def overlap(self, box: Box) -> float:
        """Return the share, 0 to 1, of the token's own area that lies in a box."""
        left, top, right, bottom = clipped(self.box, box)
        own = (self.box[2] - self.box[0]) * (self.box[3] - self.box[1])
        return (right - left) * (bottom - top) / own if own else 0.0


def clipped(box: Box, within: Box) -> Box:
    """Return the part of a box that lies within another; an empty box at the other's edge if there is none."""
    left, right = (min(max(edge, within[0]), within[2]) for edge in box[::2])
    top, bottom = (min(max(edge, within[1]), within[3]) for edge in box[1::2])
    return left, top, right, bottom


def grid_tokens(rows: int, columns: int, region: Box, size: tuple[int, int]) -> tuple[ImageToken, ...]:
    """Return the tokens of a grid over a region of an image, row by row from position 0.

    region: what the grid covers, in pixels of the image as it was read: a crop is smaller than the image, padding
    extends beyond it. size: the image's width and height, to which boxes are clipped.
    """
    left, top, right, bottom = region
    wide, high = (right - left) / columns, (bottom - top) / rows
    corners = [(left + column * wide, top + row * high) for row in range(rows) for column in range(columns)]
    boxes = (clipped((x, y, x + wide, y + high), (0, 0, *size)) for x, y in corners)
    return tuple(ImageToken(number, box) for number, box in enumerate(boxes))


def with_means(weights: np.ndarray, neutral: np.ndarray | None = None) -> np.ndarray:
    """Add means to weights, [L,H,S,P] -> [1+L*H+L,S,P]: the mean of all heads, each head, the mean of each layer's
    heads.

    neutral: [L,H,P], weights under a neutral prompt, by which each map is divided, means by means, at least
    MIN_ATTENTION. Zhang et al. 2025, "MLLMs Know Where to Look".
    """
    flat = weights.reshape(-1, *weights.shape[2:])
    every = np.concatenate([flat.mean(0, keepdims=True), flat, weights.mean(1)])
    return every if neutral is None else every / np.maximum(with_means(neutral[:, :, None]), MIN_ATTENTION)
