"""Objects of the metadata that are mapped into memory, and whether one of them has been cut."""

from __future__ import annotations

import os
from collections import OrderedDict

import pyarrow as pa

from mdt.forking import OwnLock
from mdt.limits import COPIED_OBJECT_BYTES_MAX, MAPPINGS_WATCHED_MAX
from mdt.stores.storage import Storage


class Mappings:
    """Maps objects of one storage; safe for many threads."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._watched: OrderedDict[str, tuple[str, int]] = OrderedDict()
        """Path -> its name on the local file system, and how many bytes are mapped."""
        self._lock = OwnLock()

    def open(self, path: str) -> pa.NativeFile:
        """Return an open object, without a descriptor where it can be mapped; a small one is
        copied.  Raises Missing, Corrupt.
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

    def cut(self) -> str | None:
        """Return the path of an object that is shorter now than when it was mapped, None if there
        is none.

        The system kills who reads a mapping behind the end of its file, so somebody must ask before
        that.  An object that is gone has its bytes as long as it is mapped, and is watched no more.
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
