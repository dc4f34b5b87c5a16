"""Tests of the hatching of blocked cells, pixel by pixel."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.viz.views import causal, padded
from viz.hatch import LINES, SMALL, hatch_png
from viz.palette import MASK_COLOURS, rgb


def cells(png: bytes, shape: tuple[int, int]) -> np.ndarray:
    """Return the pixels of each cell, uint8 [Q,K,n,n,4]."""
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGBA"))
    scale = pixels.shape[0] // shape[0]
    assert pixels.shape == (shape[0] * scale, shape[1] * scale, 4)
    return pixels.reshape(shape[0], scale, shape[1], scale, 4).swapaxes(1, 2)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("shape", [(5, 11), (13, 7), (64, 64), (256, 256)])
def test_ink_where_a_mask_blocks_and_none_elsewhere(shape: tuple[int, int], dark: bool) -> None:
    blocked = {"causal": ~np.tri(*shape, dtype=bool), "padding": np.zeros(shape, bool)}
    blocked["padding"][:, :2] = True
    alpha = cells(hatch_png(blocked, dark), shape)[..., 3]
    union = blocked["causal"] | blocked["padding"]
    assert alpha[union].min() > 0
    assert alpha[~union].max() == 0


@pytest.mark.parametrize("tokens", [3, 23, 100, 256])
def test_a_small_picture_has_pixels_for_every_cell_and_no_more_than_it_is_shown_with(tokens: int) -> None:
    picture = Image.open(io.BytesIO(hatch_png({"causal": causal(tokens)}, False, SMALL)))
    assert max(tokens, SMALL / 2) <= picture.width <= max(tokens, SMALL)
    alpha = cells(hatch_png({"causal": causal(tokens)}, False, SMALL), (tokens, tokens))[..., 3]
    np.testing.assert_array_equal(alpha.max((2, 3)) > 0, causal(tokens))


@pytest.mark.parametrize("name", LINES)
def test_a_mask_draws_lines_in_its_own_colour(name: str) -> None:
    inked = cells(hatch_png({name: causal(8)}, dark=False), (8, 8))[causal(8)]
    lines = inked[inked[..., 3] > 128][:, :3]
    assert len(lines) > 0
    assert np.abs(lines.astype(int) - rgb(MASK_COLOURS[name])).max() <= 8  # the image has 32 colours


def test_the_masks_lines_run_in_different_directions() -> None:
    pictures = {}
    for name in LINES:
        png = hatch_png({name: np.ones((4, 4), bool)}, dark=False)
        pictures[name] = np.asarray(Image.open(io.BytesIO(png)).convert("RGBA"))[..., 3] > 128
    for name, (down, right) in {"causal": (1, -1), "padding": (1, 1), "window": (1, 0)}.items():
        for other, lines in pictures.items():
            along = (lines[2:-2, 2:-2] == np.roll(lines, (-down, -right), (0, 1))[2:-2, 2:-2]).all()
            assert along == (name == other), f"the lines of {other}, along those of {name}"


def test_a_cell_that_two_masks_block_shows_both() -> None:
    blocked = {"causal": causal(6), "padding": padded(6, 3)}
    both = cells(hatch_png(blocked, dark=False), (6, 6))[blocked["causal"] & blocked["padding"]].reshape(-1, 4)
    colours = both[both[:, 3] > 128][:, :3].astype(int)
    for name in blocked:
        assert (np.abs(colours - rgb(MASK_COLOURS[name])).max(1) <= 8).any()
