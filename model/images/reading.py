"""A user's image as pixels. Untrusted: bounded before it is decoded, and never stored."""

import io
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from i18n import N_, Message, msg
from model.files import read_regular

FORMATS = ("PNG", "JPEG", "WEBP")
MOST_BYTES, MOST_PIXELS = 5 * 2**20, 25_000_000
LEAST_SIDE, MOST_RATIO = 8, 20  # pixels; of the longer side to the shorter


def read_picture(data: bytes) -> Image.Image:
    """A PNG, JPEG or WebP as RGB, turned as its EXIF orientation says, on white where it is transparent.

    Raises ValueError, with a sentence, for another format (SVG among them), a damaged or animated image, and one of
    more than MOST_BYTES or MOST_PIXELS or of a shape that no grid of patches fits.
    """
    if len(data) > MOST_BYTES:
        raise _too_many(len(data))
    return _decoded(lambda: Image.open(io.BytesIO(data), formats=FORMATS))


def picture_of(source: Any) -> Image.Image:
    """The same of a file by its path, its bytes, an image of Pillow, or an array [height, width] or [height, width, 3
    or 4] of whole numbers from 0 to 255 or floats from 0 to 1.

    Raises ValueError as read_picture does and for anything else, OSError for a file that cannot be read.
    """
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if path.stat().st_size > MOST_BYTES:
            raise _too_many(path.stat().st_size)
        source = read_regular(path, MOST_BYTES)
    if isinstance(source, bytes):
        return read_picture(source)
    image = source if isinstance(source, Image.Image) else Image.fromarray(_levels(source))
    return _decoded(lambda: image)


def _too_many(size: int) -> ValueError:
    most, found = MOST_BYTES // 2**20, size / 2**20
    return ValueError(msg("expected an image of at most {most} MB, got {found:.1f} MB", most=most, found=found))


def _decoded(opened: Callable[[], Image.Image]) -> Image.Image:
    try:
        with warnings.catch_warnings():  # Pillow warns of a decompression bomb before it refuses one
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = opened()
            _check(image)
            image.load()
            return _on_white(ImageOps.exif_transpose(image))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ValueError(msg(TOO_LARGE, most=MOST_PIXELS / 1e6)) from None
    except UnidentifiedImageError:
        raise ValueError(msg("expected a PNG, JPEG or WebP image, got something else")) from None
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        if isinstance(str(error), Message):
            raise  # one of ours
        raise ValueError(msg("expected a whole image, got a damaged or truncated one")) from None


def _levels(source: Any) -> np.ndarray:
    """Raises ValueError for what is no picture."""
    levels = np.asarray(source)
    wanted = levels.ndim == 2 or (levels.ndim == 3 and levels.shape[2] in (3, 4))
    whole = levels.dtype.kind in "ui"
    if not wanted or not (whole or levels.dtype.kind == "f") or not levels.size:
        got = f"{levels.dtype} {list(levels.shape)}"
        raise ValueError(
            msg("expected an image: a path, bytes, Pillow's, or an array [height, width, 3], got {got}", got=got)
        )
    most = 255 if whole else 1
    if not 0 <= levels.min() <= levels.max() <= most:  # not for NaN either
        raise ValueError(
            msg(
                "expected levels from 0 to {most}, got {least:g} to {largest:g}",
                most=most,
                least=levels.min(),
                largest=levels.max(),
            )
        )
    return levels.astype(np.uint8) if whole else (levels * 255).round().astype(np.uint8)


TOO_LARGE = N_("expected an image of at most {most:.0f} megapixels, got a larger one")


def _check(image: Image.Image) -> None:
    """By its header alone, before a pixel is decoded."""
    wide, high = image.size
    if wide * high > MOST_PIXELS:
        raise ValueError(msg(TOO_LARGE, most=MOST_PIXELS / 1e6))
    if min(wide, high) < LEAST_SIDE or max(wide, high) > MOST_RATIO * min(wide, high):
        words = N_("expected sides of at least {least} pixels, at most {ratio} : 1, got {wide} × {high}")
        raise ValueError(msg(words, least=LEAST_SIDE, ratio=MOST_RATIO, wide=wide, high=high))
    if getattr(image, "n_frames", 1) > 1:
        raise ValueError(msg("expected a still image, got an animated one"))


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits, which convert would cut off at 255
        image = image.point(lambda value: value / 256).convert("L")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")
