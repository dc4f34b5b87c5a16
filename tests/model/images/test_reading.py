"""Tests of a user's image: how it is read, and the message of each refusal."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from i18n import Message
from model.images.patches import grid_tokens
from model.images.reading import picture_of, read_picture

PIXELS = np.arange(9 * 14 * 3, dtype=np.uint8).reshape(9, 14, 3)


def file_of(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png_header(wide: int, high: int) -> bytes:
    """Return a PNG of a few bytes whose header states this size."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(bytes(10)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + data + chunk(b"IEND", b"")


@pytest.mark.parametrize(("kind", "options"), [("PNG", {}), ("WEBP", {"lossless": True})])
def test_pixels_are_read_as_they_are(kind: str, options: dict[str, object]) -> None:
    np.testing.assert_array_equal(np.asarray(read_picture(file_of(Image.fromarray(PIXELS), kind, **options))), PIXELS)


def test_exif_orientation_is_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be rotated clockwise
    found = np.asarray(read_picture(file_of(Image.fromarray(PIXELS), exif=exif)))
    np.testing.assert_array_equal(found, np.rot90(PIXELS, -1))


def test_a_phones_photo_is_its_first_image() -> None:
    """A smaller second image follows the JPEG, and all viewers skip it."""
    photo, preview = Image.fromarray(PIXELS), Image.new("RGB", (16, 8), "red")
    found = read_picture(file_of(photo, "MPO", save_all=True, append_images=[preview]))
    np.testing.assert_array_equal(np.asarray(found), np.asarray(read_picture(file_of(photo, "JPEG"))))


@pytest.mark.parametrize(("tag", "kind"), [(0x011A, 2), (0x0100, 7)])
def test_an_image_is_turned_whatever_else_its_exif_says(tag: int, kind: int) -> None:
    """The resolution or the width is text, which Pillow reads but cannot write again."""
    entries = (0x0112, 3, 1, b"\x06\0\0\0"), (tag, kind, 4, b"abc\0")
    exif = b"Exif\0\0II*\0\x08\0\0\0\x02\0" + b"".join(struct.pack("<HHI4s", *one) for one in entries) + bytes(4)
    found = np.asarray(read_picture(file_of(Image.fromarray(PIXELS), exif=exif)))
    np.testing.assert_array_equal(found, np.rot90(PIXELS, -1))


def test_transparent_is_white_and_16_bits_keep_their_brightness() -> None:
    clear = Image.new("RGBA", (9, 14), (0, 0, 0, 0))
    assert np.asarray(read_picture(file_of(clear))).min() == 255
    grey = Image.fromarray(np.full((9, 14), 128 * 256, np.uint16))
    assert set(np.asarray(read_picture(file_of(grey))).ravel()) == {128}
    swapped = Image.frombytes("I;16B", (14, 9), np.full((9, 14), 128 * 256, ">u2").tobytes())
    assert set(np.asarray(picture_of(swapped)).ravel()) == {128}


@pytest.mark.parametrize(("clear", "shown"), [(40_000, [0, 255, 255, 3]), (156, [0, 255, 156, 3])])
def test_a_transparent_level_of_16_bits_is_that_level_alone(clear: int, shown: list[int]) -> None:
    grey = Image.fromarray(np.tile(np.array([0, 65_535, 40_000, 1_000], np.uint16), (8, 2)))
    found = np.asarray(read_picture(file_of(grey, transparency=clear)))
    np.testing.assert_array_equal(found, np.tile(np.array(shown), (8, 2))[..., None].repeat(3, 2))


BROKEN = file_of(Image.fromarray(PIXELS))
ANIMATED = file_of(Image.new("RGB", (9, 14)), save_all=True, append_images=[Image.new("RGB", (9, 14), "red")])
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "PNG, JPEG or WebP"), (SVG, "PNG, JPEG or WebP"), (file_of(Image.new("P", (9, 9)), "GIF"), "PNG, JPEG"),
        (BROKEN[:-30], "damaged"), (BROKEN[:60] + b"\0" * 20 + BROKEN[80:], "damaged"), (ANIMATED, "animated"),
        (file_of(Image.new("RGB", (1, 10_000))), "1 × 10000"), (file_of(Image.new("RGB", (8, 161))), "8 × 161"),
        (png_header(5_001, 5_000), "25 megapixels"), (png_header(10_000, 10_000), "25 megapixels"),
        (png_header(60_000, 60_000), "25 megapixels"), (png_header(9, 14), "damaged"), (bytes(5 * 2**20 + 1), "5 MB"),
    ],
)  # fmt: skip
def test_what_is_refused_is_said_in_a_sentence(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_picture(data)
    assert isinstance(caught.value.args[0], Message)


def test_a_grid_covers_its_region_and_is_cut_to_the_image() -> None:
    tokens = grid_tokens(2, 3, (-4, 0, 20, 8), (18, 10))
    assert [one.position for one in tokens] == [0, 1, 2, 3, 4, 5]
    assert [one.box for one in tokens[:3]] == [(0, 0, 4, 4), (4, 0, 12, 4), (12, 0, 18, 4)]
    assert [one.box[1::2] for one in tokens[3:]] == [(4, 8)] * 3
    assert [one.overlap((8, 2, 100, 100)) for one in tokens[:3]] == [0, 0.25, 0.5]
