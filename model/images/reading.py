"""Decoding of a user's image. It is untrusted: checked against limits before it is decoded, and never stored."""

import io
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from i18n import N_, Message, msg
from model.files import read_regular

FORMATS = ("PNG", "JPEG", "WEBP")
MAX_BYTES, MAX_PIXELS = 5 * 2**20, 25_000_000
# EXIF orientation, from 2 -> transpose; ImageOps.exif_transpose rewrites all of the EXIF and fails on unusual ones
TURNS: dict[Any, Image.Transpose] = dict(enumerate(map(Image.Transpose, (0, 3, 1, 5, 4, 6, 2)), 2))
MIN_SIDE, MAX_RATIO = 8, 20  # pixels; of the longer side to the shorter
NO_PICTURE = N_("expected an image: a path, bytes, Pillow's, or an array of uint8 [height, width, 3], got {got}")
TOO_LARGE = N_("expected an image of at most {most:.0f} megapixels, got a larger one")


def read_picture(data: bytes) -> Image.Image:
    """Decode a PNG, JPEG or WebP to RGB, rotated by its EXIF orientation, on white where it is transparent.

    Raises ValueError, with a sentence, for another format (SVG included), a damaged or animated image, and one of more
    than MAX_BYTES or MAX_PIXELS or of a shape that no grid of patches fits.
    """
    if len(data) > MAX_BYTES:
        most, found = MAX_BYTES // 2**20, len(data) / 2**20
        raise ValueError(msg("expected an image of at most {most} MB, got {found:.1f} MB", most=most, found=found))
    return _decoded(lambda: Image.open(io.BytesIO(data), formats=FORMATS))


def picture_of(source: Any) -> Image.Image:
    """Decode an image, as read_picture does, from a path, bytes, a Pillow image or an array, uint8, [height, width] or
    [height, width, 3 or 4]. Raises ValueError also for anything else, OSError for a file that cannot be read."""
    if isinstance(source, str | os.PathLike):
        source = read_regular(Path(source), MAX_BYTES)
    if isinstance(source, bytes):
        return read_picture(source)
    if isinstance(source, Image.Image):
        if source.mode in ("I", "F"):  # their levels of black and white are unknown
            raise ValueError(msg(NO_PICTURE, got=f"mode {source.mode}"))
        return _decoded(lambda: source)
    levels = np.asarray(source)
    if levels.dtype != np.uint8 or levels.ndim not in (2, 3) or levels.shape[2:] not in ((), (3,), (4,)):
        raise ValueError(msg(NO_PICTURE, got=f"{levels.dtype} {list(levels.shape)}"))
    return _decoded(lambda: Image.fromarray(levels))


def _decoded(opened: Callable[[], Image.Image]) -> Image.Image:
    try:
        with warnings.catch_warnings():  # Pillow warns of a decompression bomb before it refuses one
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = opened()
            _check(image)
            image.load()
            turn = TURNS.get(image.getexif().get(ExifTags.Base.Orientation))
            image = image if turn is None else image.transpose(turn)
            if image.mode.startswith("I"):  # 16 bits, which convert would clip at 255; so has the transparent level
                levels, clear = np.asarray(image.convert("I")), image.info.get("transparency")
                image = Image.fromarray(np.where(levels == clear, 255, (levels // 256).astype(np.uint8)))
            if image.has_transparency_data:
                image = image.convert("RGBA")
                image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
            return image.convert("RGB")
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ValueError(msg(TOO_LARGE, most=MAX_PIXELS / 1e6)) from None
    except UnidentifiedImageError:
        raise ValueError(msg("expected a PNG, JPEG or WebP image, got something else")) from None
    except Exception as error:  # damaged files make Pillow raise many types
        if isinstance(str(error), Message):
            raise  # raised by Unmask
        raise ValueError(msg("expected a whole image, got a damaged or truncated one")) from None


def _check(image: Image.Image) -> None:
    """Check an image by its header alone, before any pixel is decoded."""
    wide, high = image.size
    if wide * high > MAX_PIXELS:
        raise ValueError(msg(TOO_LARGE, most=MAX_PIXELS / 1e6))
    if min(wide, high) < MIN_SIDE or max(wide, high) > MAX_RATIO * min(wide, high):
        template = N_("expected sides of at least {least} pixels, at most {ratio} : 1, got {wide} × {high}")
        raise ValueError(msg(template, least=MIN_SIDE, ratio=MAX_RATIO, wide=wide, high=high))
    still = image.format == "MPO"  # a phone's photo: a JPEG followed by a preview or brightness map
    if getattr(image, "n_frames", 1) > 1 and not still:
        raise ValueError(msg("expected a still image, got an animated one"))
