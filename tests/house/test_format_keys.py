"""FORMAT.md, section 7: key parts that are decoded by what the page says alone; the other two are in test_format_doc.py."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from indexes.key_testing import hashed
from indexes.keys.simple import SimpleKeyIndex


def checked(key_part: bytes, magic: bytes) -> bytes:
    """Return a key part without its crc, which holds."""
    assert key_part[:8] == magic
    assert zlib.crc32(key_part[:-4]) == struct.unpack("<I", key_part[-4:])[0]
    return key_part[:-4]


def test_a_simple_key_part_names_the_groups_that_have_keys() -> None:
    key_part = checked(SimpleKeyIndex().build(*hashed(["a", "b", "c"]), np.array([4, 1, 4]), 6), b"MDTSIM\0\1")
    assert struct.unpack_from("<Q", key_part, 8) == (6,)
    assert struct.unpack(f"<{len(key_part) // 4 - 4}I", key_part[16:]) == (1, 4)
