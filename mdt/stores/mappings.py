"""Memory-mapped metadata objects, and detection of truncated files."""

from __future__ import annotations

import os
from collections import OrderedDict

import pyarrow as pa

from mdt.forking import OwnLock
from mdt.limits import COPIED_OBJECT_BYTES_MAX, MAPPINGS_WATCHED_MAX
from mdt.stores.storage import Storage


class Mappings:
    """Maps objects of one storage into memory. Thread-safe."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._watched: OrderedDict[str, tuple[str, int]] = OrderedDict()
        """Path -> (path on the local file system, number of mapped bytes)."""
        self._lock = OwnLock()

    def open(self, path: str) -> pa.NativeFile:
        """Open an object, mapped without a file descriptor where possible. Small objects are
        copied.

        Raises Missing, Corrupt.
        """
        file = self._storage.open(path)
        name = self._storage.local_path(path)
        if name is None or not isinstance(file, pa.MemoryMappedFile):
            return file
        data = file.read_buffer()
        if len(data) <= COPIED_OBJECT_BYTES_MAX:
            return pa.BufferReader(data.to_pybytes())
        with self._lock:
            self._watched[path] = name, len(data)
            if len(self._watched) > MAPPINGS_WATCHED_MAX:
                self._watched.popitem(last=False)
        return pa.BufferReader(data)

    def truncated_path(self) -> str | None:
        """Return the path of an object that has become shorter since it was mapped, or None.

        The operating system kills a process that reads a mapping past the end of its file, so call
        this first. A deleted object stays readable while it is mapped, and is no longer watched.
        """
        with self._lock:
            watched = [*self._watched.items()]
        for path, (name, size) in watched:
            try:
                if os.stat(name).st_size < size:
                    return path
            except FileNotFoundError:
                with self._lock:
                    self._watched.pop(path, None)
            except OSError:
                continue
        return None
