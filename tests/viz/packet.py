"""A packet, read as viz/components/packet.js reads it."""

import json
import struct
import zlib
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
