"""Encoding shared by all key parts: group numbers of 32 bits, and a checksum at the end."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from indexes.base import Int64Array

GROUPS_MAX = 2**32
"""Group numbers have 32 bits."""
_CRC = struct.Struct("<I")


def check_groups(kind: str, groups: int) -> None:
    """Raise ValueError if a key part of this ``kind`` cannot have so many groups."""
    if not 0 <= groups <= GROUPS_MAX:
        raise ValueError(f"a {kind} key part supports up to {GROUPS_MAX} groups, got {groups}")


def check_renumbering(kind: str, groups: int, new: Int64Array) -> None:
    """Raise ValueError unless ``new`` has a number for each group of a key part."""
    if len(new) != groups:
        raise ValueError(f"{kind} key part: {groups} groups, but {len(new)} new numbers")


def seal(data: bytes) -> bytes:
    """Return ``data`` followed by its CRC-32."""
    return data + _CRC.pack(zlib.crc32(data))


def unseal(
    kind: str, key_part: bytes | memoryview, header: struct.Struct, magic: bytes
) -> tuple[memoryview, list[Any]]:
    """Return the bytes that :func:`seal` got, and the fields of their header after ``magic``.

    Raises ValueError for bytes that are damaged or have another magic.

    >>> header = struct.Struct("<8sI")
    >>> _, fields = unseal("simple", seal(header.pack(b"MDTSIM__", 3)), header, b"MDTSIM__")
    >>> fields
    [3]
    """
    view = memoryview(key_part).cast("B")
    end = len(view) - _CRC.size
    if end < header.size:
        raise ValueError(f"{kind} key part: {len(view)} bytes are too few for a header")
    name, *fields = header.unpack_from(view)
    if name != magic or zlib.crc32(view[:end]) != _CRC.unpack_from(view, end)[0]:
        raise ValueError(f"{kind} key part: not a key part of version 1, or damaged (CRC)")
    return view[:end], fields
