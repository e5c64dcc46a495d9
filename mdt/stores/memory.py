"""A storage in memory: thread-safe, with a clock and randomness that repeat, for tests and examples."""

from __future__ import annotations

import random
import threading
from typing import Any

import pyarrow as pa

from mdt.stores.contract import (
    Data,
    Listing,
    ObjectInfo,
    Storage,
    check_directory,
    check_path,
    check_range,
    is_temporary,
    joined,
    missing,
    name_taken,
)

_CLOCK_START_US = 1_700_000_000_000_000
_CLOCK_TICK_US = 1_000


class MemoryStorage(Storage):
    """A dictionary of objects.

    The clock starts at a fixed time, goes on by 1 ms with each question and by the whole length of each sleep, which
    returns at once.  Randomness follows from ``seed``.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self.url = "mdt-memory://"
        self._objects: dict[str, tuple[bytes, int]] = {}
        self._now_us = _CLOCK_START_US
        self._random = random.Random(seed)
        self._lock = threading.RLock()

    def copy(self) -> MemoryStorage:
        """Return an independent storage in the same state, clock and randomness included.  O(objects)."""
        other = MemoryStorage()
        with self._lock:
            other._objects = dict(self._objects)
            other._now_us = self._now_us
            other._random.setstate(self._random.getstate())
        return other

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """See :class:`Storage`."""
        data = self._get(path)
        count = check_range(path, offset, length, len(data))
        return data if count == len(data) else data[offset : offset + count]

    def open(self, path: str) -> Any:
        """See :class:`Storage`."""
        return pa.BufferReader(self._get(path))

    def create(self, path: str, data: Data) -> None:
        """See :class:`Storage`."""
        if not self.put_if_absent(path, data):
            raise name_taken(path)

    def put_if_absent(self, path: str, data: Data) -> bool:
        """See :class:`Storage`."""
        content = joined(data)
        with self._lock:
            if check_path(path) in self._objects:
                return False
            self._objects[path] = (content, self._now_us)
        return True

    def replace(self, path: str, data: Data) -> None:
        """See :class:`Storage`."""
        content = joined(data)
        with self._lock:
            self._objects[check_path(path)] = (content, self._now_us)

    def delete(self, path: str) -> None:
        """See :class:`Storage`."""
        with self._lock:
            self._objects.pop(check_path(path), None)

    def list(self, prefix: str) -> Listing:
        """See :class:`Storage`."""
        directory = check_directory(prefix)
        start = directory + "/" if directory else ""
        with self._lock:
            found = [(path, *entry) for path, entry in self._objects.items() if path.startswith(start)]
        return sorted(
            (ObjectInfo(path, len(data), modified) for path, data, modified in found if not is_temporary(path)),
            key=lambda info: info.path,
        )

    def list_dir(self, prefix: str) -> Listing:
        """See :class:`Storage`."""
        directory = check_directory(prefix)
        return [info for info in self.list(prefix) if info.path.rpartition("/")[0] == directory]

    def size(self, path: str) -> int | None:
        """See :class:`Storage`."""
        with self._lock:
            entry = self._objects.get(check_path(path))
        return None if entry is None else len(entry[0])

    def now_us(self) -> int:
        """See :class:`Storage`."""
        with self._lock:
            self._now_us += _CLOCK_TICK_US
            return self._now_us

    def random_hex(self, bytes: int) -> str:
        """See :class:`Storage`."""
        with self._lock:
            return self._random.randbytes(bytes).hex()

    def sleep(self, seconds: float) -> None:
        """See :class:`Storage`; returns at once."""
        with self._lock:
            self._now_us += round(seconds * 1e6)

    def uri(self, path: str) -> str:
        """See :class:`Storage`; nothing but this object can read it."""
        return f"{self.url}/{path}"

    def _get(self, path: str) -> bytes:
        with self._lock:
            entry = self._objects.get(check_path(path))
        if entry is None:
            raise missing(path)
        return entry[0]
