"""Byte ranges of objects. Metadata refer to large parts by range instead of containing them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ObjectRange:
    """A part of an object: path, offset and length in bytes, and CRC-32 of the range."""

    path: str
    offset: int
    length: int
    crc: int
