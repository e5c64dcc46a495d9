"""Summaries of skipping indexes as the indexes read them: in memory, or by ranges of the object where they stand."""

from __future__ import annotations

from dataclasses import dataclass

from indexes.base import InMemory, SkippingIndex, Summary
from mdt.blobs import Blobs
from mdt.file_group import Blob


@dataclass(frozen=True, slots=True)
class Stored:
    """A summary that stands in an object.  Its index checks the parts that it reads."""

    blobs: Blobs
    blob: Blob

    def __len__(self) -> int:
        return self.blob.length

    def read(self, start: int, stop: int) -> memoryview:
        """Return bytes [start, stop).  Raises Corrupt if the object is too short, Unavailable if storage fails."""
        stop = min(stop, self.blob.length)
        start = min(start, stop)
        part = Blob(self.blob.path, self.blob.offset + start, stop - start, 0)
        return memoryview(self.blobs.read(part, verify=False))


def readable(blobs: Blobs, index: SkippingIndex, found: bytes | Blob) -> Summary:
    """Return a summary for ``index``: by ranges if it knows positions, else whole and checked.  Raises Corrupt."""
    if not isinstance(found, Blob):
        return InMemory(found)
    if index.finds_rows:
        return Stored(blobs, found)
    return InMemory(memoryview(blobs.read(found, verify=True)))
