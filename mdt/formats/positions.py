"""Deleted positions of a file in the bytes that Delta and Iceberg share: a magic number, and a
64-bit roaring bitmap.
"""

from __future__ import annotations

import struct
import zlib

from pyroaring import BitMap

from mdt.metadata.files.deletion_vectors import serialize

_MAGIC = 1681511377
_HEAD = struct.Struct("<iqI")
"""Magic number, number of 32-bit bitmaps, and the high half of the first one's positions."""


def position_bytes(dead: BitMap) -> bytes:
    """Return positions below 2³² as bytes."""
    return _HEAD.pack(_MAGIC, 1, 0) + serialize(dead)


def framed(data: bytes) -> bytes:
    """Return the bytes of positions with their size before and their CRC-32 after them."""
    size, crc = (struct.pack(">I", number) for number in (len(data), zlib.crc32(data)))
    return size + data + crc
