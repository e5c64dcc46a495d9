"""Data files that stay mapped between look-ups, so that reading a few rows of many files opens none
of them again.
"""

from __future__ import annotations

import pyarrow as pa

from mdt.errors import Corrupt, Missing
from mdt.limits import DATA_FILES_MAPPED_MAX
from mdt.session import Recent
from mdt.stores.storage import Storage


class MappedFiles:
    """Whole files as buffers that take no memory of their own; safe for many threads."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._buffers: Recent[str, pa.Buffer] = Recent(DATA_FILES_MAPPED_MAX)
        self._mappable = True

    def get(self, path: str, size: int) -> pa.Buffer | None:
        """Return the bytes of a file of ``size`` bytes, or None if this storage can only read
        ranges.

        Raises Corrupt (Missing) if the file has another size (is gone), however long it has been
        mapped.
        """
        if not self._mappable:
            return None
        found = self._buffers.get(path)
        if found is None:
            return self._map(path, size)
        # Who reads a mapping behind the end of its file is killed, so a file that was cut must be
        # found before.
        _require_size(path, size, self._storage.size(path))
        return found

    def _map(self, path: str, size: int) -> pa.Buffer | None:
        file = self._storage.open(path)
        if not isinstance(file, (pa.MemoryMappedFile, pa.BufferReader)):
            file.close()
            self._mappable = False
            return None
        _require_size(path, size, file.size())
        buffer = file.read_buffer()
        if isinstance(file, pa.MemoryMappedFile):
            self._buffers.put(path, buffer)
        return buffer


def _require_size(path: str, expected: int, got: int | None) -> None:
    if got is None:
        raise Missing("there is no such object", path=path)
    if got != expected:
        raise Corrupt(
            "a data file has another size", path=path, expected=str(expected), got=str(got)
        )
