"""FORMAT.md, section 7: key parts that are decoded by what the page says alone; the other two are
in test_format_doc.py.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

from indexes.key_testing import hashed
from indexes.keys.bucket import BucketKeyIndex
from indexes.keys.simple import SimpleKeyIndex


def checked(key_part: bytes, magic: bytes) -> bytes:
    """Return a key part without its crc, which holds."""
    assert key_part[:8] == magic
    assert zlib.crc32(key_part[:-4]) == struct.unpack("<I", key_part[-4:])[0]
    return key_part[:-4]


def test_a_simple_key_part_names_the_groups_that_have_keys() -> None:
    key_part = checked(
        SimpleKeyIndex().build(*hashed(["a", "b", "c"]), np.array([4, 1, 4]), 6), b"MDTSIM\0\1"
    )
    assert struct.unpack_from("<Q", key_part, 8) == (6,)
    assert struct.unpack(f"<{len(key_part) // 4 - 4}I", key_part[16:]) == (1, 4)


def bucket_of(values: list[str], buckets: int) -> int:
    h = 1
    for value in values:
        s = 0
        units = value.encode("utf-16-be")
        for at in range(0, len(units), 2):
            s = 31 * s + int.from_bytes(units[at : at + 2])
        h = (31 * h + s) % 2**32
    return (h & 0x7FFFFFFF) % buckets


def test_a_bucket_key_part_names_the_buckets_of_each_group() -> None:
    keys = ["id:a,day:x", "id:b\U0001f600,day:y", "plain"]
    made = BucketKeyIndex("9", "id,day").build(*hashed(keys), np.array([4, 1, 4]), 6)
    key_part = checked(made, b"MDTBUC\0\1")
    groups, buckets, p = struct.unpack_from("<QII", key_part, 8)
    words = struct.unpack(f"<{2 * p}I", key_part[24:])
    assert (groups, buckets) == (6, 9)
    expected = [
        (bucket_of(["a", "x"], 9), 4),
        (bucket_of(["b\U0001f600", "y"], 9), 1),
        (bucket_of(["plain"], 9), 4),
    ]
    assert list(zip(words[:p], words[p:], strict=True)) == sorted(set(expected))
