"""A packet, read as viz/components/packet.js reads it."""

import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np


def unpacked(packet: bytes) -> tuple[dict[str, Any], np.ndarray]:
    """The header, and the bytes after it uint8 [N]."""
    (length,) = struct.unpack_from("<I", packet)
    return json.loads(packet[4 : 4 + length]), np.frombuffer(zlib.decompress(packet[4 + length :]), np.uint8)


def read(packet: bytes) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """The overview's: the header, the palette uint8 [255,3] and the pixels uint8 [L,H,tall,wide]."""
    header, body = unpacked(packet)
    shape = (header["layers"], header["heads"], header["tall"], header["wide"])
    pixels = 3 * 255 + int(np.prod(shape))
    assert len(body) == pixels + 2 * len(header["measures"]) * header["layers"] * header["heads"]
    return header, body[: 3 * 255].reshape(255, 3), body[3 * 255 : pixels].reshape(shape)


def read_measures(packet: bytes) -> dict[str, np.ndarray]:
    """The overview's measures by their titles, float [L,H], NaN where there is nothing to measure."""
    header, body = unpacked(packet)
    shape = (len(header["measures"]), header["layers"], header["heads"])
    parts = body[len(body) - 2 * int(np.prod(shape)) :].tobytes()
    values = np.frombuffer(parts, "<u2").reshape(shape).astype(float)
    titles = [measure["title"] for measure in header["measures"]]
    return dict(zip(titles, np.where(values == 65535, np.nan, values / 65534), strict=True))


@dataclass(frozen=True, eq=False)
class Growing:
    """The packet of growing.js: its header, the palette uint8 [255,3], for each cell the number of its reason, and
    float32 [T,T] twice; the hatching's PNG."""

    header: dict[str, Any]
    palette: np.ndarray
    reasons: np.ndarray
    weights: np.ndarray
    scores: np.ndarray
    hatching: bytes


def read_growing(packet: bytes) -> Growing:
    header, every = unpacked(packet)
    body, size = every.tobytes(), header["size"]
    cells, begin = size * size, 3 * 255
    palette = np.frombuffer(body, np.uint8, begin).reshape(255, 3)
    reasons = np.frombuffer(body, np.uint8, cells, begin).reshape(size, size)
    numbers = np.frombuffer(body, "<f4", 2 * cells, begin + cells).reshape(2, size, size)
    return Growing(header, palette, reasons, *numbers, body[begin + 9 * cells :])
