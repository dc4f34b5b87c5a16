"""Tests of colours: what an eye, even one that does not see all colours, has to be able to distinguish.

Lightness is CIE L*, 0 (black) to 100 (white). Colour blindness is simulated with the matrices of Machado, Oliveira
and Fernandes (2009), severity 1.
Two colours are apart when they differ by 15 (CIE 1976): an eye just notices 2.3, side by side.
"""

import re
from itertools import combinations

import numpy as np
import pytest

from viz.hatch import LINES
from viz.palette import MASK_COLOURS, NOW, SEQUENTIAL, STANDARD, diverging, rgb, sequential, stops

APART = 15
SIGHT = {
    "all colours": np.eye(3),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no blue": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def lab(colours: np.ndarray, sight: str = "all colours") -> np.ndarray:
    """Convert sRGB [..,3] from 0 to 255 to CIE L*a*b* [..,3]."""
    parts = np.asarray(colours) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ SIGHT[sight].T, 0, 1)
    xyz = seen @ TO_XYZ.T / TO_XYZ.sum(1)
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.stack([116 * f[..., 1] - 16, 500 * (f[..., 0] - f[..., 1]), 200 * (f[..., 1] - f[..., 2])], axis=-1)


def palette() -> np.ndarray:
    return stops(255)


@pytest.mark.parametrize("sight", SIGHT)
def test_a_larger_weight_is_lighter_whatever_the_eye(sight: str) -> None:
    lightness = lab(palette()[::6], sight)[:, 0]
    assert (np.diff(lightness) > 0).all()
    assert lightness[-1] - lightness[0] > 60


def test_its_steps_are_even_to_the_eye() -> None:
    steps = np.linalg.norm(np.diff(lab(palette()[::23]), axis=0), axis=1)
    assert steps.max() / steps.min() < 2.5


def test_it_begins_and_ends_with_its_first_and_last_colour() -> None:
    assert tuple(palette()[0]) == rgb(SEQUENTIAL[0])
    assert tuple(palette()[-1]) == rgb(SEQUENTIAL[-1])


def test_plotly_and_the_overview_colour_a_weight_alike() -> None:
    stops, colours = zip(*sequential(), strict=True)
    assert (stops[0], stops[-1]) == (0, 1)
    assert list(stops) == sorted(stops)
    triples = np.array([[int(part) for part in re.findall(r"\d+", str(colour))] for colour in colours])
    weights = np.linspace(0, 1, 101)
    in_plotly = np.stack([np.interp(weights, stops, triples[:, part]) for part in range(3)], axis=-1)
    in_overview = palette()[np.rint(np.sqrt(weights) * 254).astype(int)]
    assert np.abs(in_plotly - in_overview).max() <= 6


@pytest.mark.parametrize("sight", SIGHT)
def test_the_masks_colours_are_told_apart_whatever_the_eye(sight: str) -> None:
    seen = {name: lab(np.array(rgb(colour)), sight) for name, colour in MASK_COLOURS.items() if name in LINES}
    for one, other in combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > APART, f"{one} and {other}"


@pytest.mark.parametrize("sight", SIGHT)
def test_now_and_standard_are_told_apart_whatever_the_eye(sight: str) -> None:
    assert np.linalg.norm(lab(np.array(rgb(NOW)), sight) - lab(np.array(rgb(STANDARD)), sight)) > APART


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("sight", SIGHT)
def test_a_difference_has_the_pages_ground_in_its_middle_and_unlike_ends(sight: str, dark: bool) -> None:
    scale = diverging(dark)
    stops, colours = zip(*scale, strict=True)
    np.testing.assert_allclose(np.array(stops) + np.array(stops[::-1]), 1)
    low, middle, high = (lab(np.array(rgb(str(colours[stop]))), sight) for stop in (0, len(colours) // 2, -1))
    assert stops[len(stops) // 2] == 0.5
    assert (middle[0] < 20) if dark else (middle[0] > 90)
    assert min(np.linalg.norm(low - middle), np.linalg.norm(high - middle), np.linalg.norm(low - high)) > APART
