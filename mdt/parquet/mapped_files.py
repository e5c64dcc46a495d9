"""Data files that stay mapped between look-ups, which avoids opening them again for a few rows
each.
"""

from __future__ import annotations

import pyarrow as pa

from mdt.errors import Corrupt, Missing
from mdt.limits import DATA_FILES_MAPPED_MAX
from mdt.session import Recent
from mdt.stores.storage import Storage


class MappedFiles:
    """Memory-mapped whole files. Thread-safe."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._buffers: Recent[str, pa.Buffer] = Recent(DATA_FILES_MAPPED_MAX)
        self._mappable = True

    def get(self, path: str, size: int) -> pa.Buffer | None:
        """Return the bytes of a file of ``size`` bytes, or None if the storage only supports range
        reads.

        Raises Corrupt if the file now has another size, and Missing if it has been deleted.
        """
        if not self._mappable:
            return None
        buffer = self._buffers.get(path)
        if buffer is None:
            return self._map(path, size)
        # Reading a mapping past the end of its file kills the process, so check for a truncated
        # file first.
        _require_size(path, size, self._storage.size(path))
        return buffer

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


def _require_size(path: str, expected: int, actual: int | None) -> None:
    if actual is None:
        raise Missing("there is no such object", path=path)
    if actual != expected:
        raise Corrupt(
            "a data file has the wrong size", path=path, expected=str(expected), got=str(actual)
        )
