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
    assert len(body) == 3 * 255 + np.prod(shape)
    return header, body[: 3 * 255].reshape(255, 3), body[3 * 255 :].reshape(shape)


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
