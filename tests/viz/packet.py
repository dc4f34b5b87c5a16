"""Readers of packets, which do what viz/components/packet.js does."""

import json
import struct
import zlib
from typing import Any

import numpy as np


def unpacked(packet: bytes) -> tuple[dict[str, Any], np.ndarray]:
    """Return the header, and the bytes after it as uint8 [N]."""
    (length,) = struct.unpack_from("<I", packet)
    return json.loads(packet[4 : 4 + length]), np.frombuffer(zlib.decompress(packet[4 + length :]), np.uint8)


def read(packet: bytes) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Return an overview's header, palette uint8 [255,3] and pixels uint8 [L,H,tall,wide]."""
    header, body = unpacked(packet)
    shape = (header["layers"], header["heads"], header["tall"], header["wide"])
    pixels = 3 * 255 + int(np.prod(shape))
    assert len(body) == pixels + 4 * len(header["measures"]) * header["layers"] * header["heads"]
    return header, body[: 3 * 255].reshape(255, 3), body[3 * 255 : pixels].reshape(shape)


def read_measures(packet: bytes) -> dict[str, np.ndarray]:
    """Return an overview's measures by their titles, float [L,H], NaN where there is nothing to measure."""
    header, body = unpacked(packet)
    shape = (len(header["measures"]), header["layers"], header["heads"])
    values = np.frombuffer(body[len(body) - 4 * int(np.prod(shape)) :].tobytes(), "<f4").reshape(shape)
    return dict(zip([measure["title"] for measure in header["measures"]], values, strict=True))


def read_cells(packet: bytes) -> tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray]:
    """Return a scored head's header, weights float32, what blocks each cell uint16, and scores float32, each [Q,K]."""
    header, body = unpacked(packet)
    shape = len(header["queries"]), len(header["keys"])
    count = shape[0] * shape[1]
    numbers = [body[part].tobytes() for part in (slice(4 * count), slice(6 * count, None))]
    weights, scores = (np.frombuffer(one, "<f4").reshape(shape) for one in numbers)
    return header, weights, body[4 * count : 6 * count].view("<u2").reshape(shape), scores
