"""Deletion vectors: the positions of the rows of a segment that are no longer live, as roaring bitmaps."""

from __future__ import annotations

from pyroaring import BitMap

from indexes import positions as roaring
from mdt.errors import Corrupt


def positions(data: bytes | None, rows: int, *, path: str) -> BitMap:
    """Return the dead positions of a segment of ``rows`` rows.  Raises Corrupt for bytes that are none."""
    try:
        return roaring.checked(b"" if data is None else data, rows)
    except ValueError as error:
        raise Corrupt(f"a deletion vector cannot be read: {error}", path=path) from error
