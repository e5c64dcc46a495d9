"""Where bytes stand inside an object: what metadata say of a larger part instead of carrying it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ObjectRange:
    """A part of an object: the object's path, byte range and CRC-32 of the range."""

    path: str
    offset: int
    length: int
    crc: int
