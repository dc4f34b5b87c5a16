"""Bytes for the canvases: what components/packet.js reads."""

import json
import struct
import zlib
from typing import Any


def packed(header: dict[str, Any], *planes: bytes) -> bytes:
    """The length of a JSON header (4 bytes, little-endian), the header, then the planes, deflated as one."""
    text = json.dumps(header).encode()
    return struct.pack("<I", len(text)) + text + zlib.compress(b"".join(planes), 1)
