"""In-memory storage with reproducible clock and randomness, for tests and examples. Thread-safe."""

from __future__ import annotations

import random
import threading
from collections.abc import Container, Hashable
from typing import Any

import pyarrow as pa

from mdt.stores.contract import (
    Data,
    Listing,
    Names,
    ObjectInfo,
    Storage,
    check_directory,
    check_path,
    check_range,
    check_size,
    infos_between,
    is_temporary,
    missing,
    name_taken,
    to_bytes,
)

_CLOCK_START_US = 1_700_000_000_000_000
_CLOCK_TICK_US = 1_000


class MemoryStorage(Storage):
    """Objects in a dictionary.

    The clock starts at a fixed time. Each reading advances it by 1 ms, and each sleep by its full
    length; sleeps return immediately. Random numbers depend on ``seed`` only.

    >>> storage = MemoryStorage()
    >>> storage.put_if_absent("log/7", b"mine"), storage.put_if_absent("log/7", b"theirs")
    (True, False)
    >>> storage.read("log/7", 1, 2), [info.path for info in storage.list("log")]
    (b'in', ['log/7'])
    """

    def __init__(self, *, seed: int = 0) -> None:
        self.url = "mdt-memory://"
        self._objects: dict[str, tuple[bytes, int]] = {}
        self._stamps: dict[str, int] = {}
        self._changes = 0
        self._now_us = _CLOCK_START_US
        self._random = random.Random(seed)
        self._lock = threading.RLock()

    def copy(self) -> MemoryStorage:
        """Return an independent storage in the same state, including clock and randomness.
        O(objects).
        """
        clone = MemoryStorage()
        with self._lock:
            clone._objects = dict(self._objects)
            clone._stamps, clone._changes = dict(self._stamps), self._changes
            clone._now_us = self._now_us
            clone._random.setstate(self._random.getstate())
        return clone

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """See :class:`Storage`."""
        data = self._get(path)
        count = check_range(path, offset, length, len(data))
        return data if count == len(data) else data[offset : offset + count]

    def read_whole(self, path: str, bytes_max: int) -> bytes:
        """See :class:`Storage`."""
        data = self.read(path)
        check_size(path, len(data), bytes_max)
        return data

    def open(self, path: str) -> Any:
        """See :class:`Storage`."""
        return pa.BufferReader(self._get(path))

    def create(self, path: str, data: Data) -> None:
        """See :class:`Storage`."""
        if not self.put_if_absent(path, data):
            raise name_taken(path)

    def put_if_absent(self, path: str, data: Data) -> bool:
        """See :class:`Storage`."""
        content = to_bytes(data)
        with self._lock:
            if check_path(path) in self._objects:
                return False
            self._objects[path] = (content, self._now_us)
            self._touch(path)
        return True

    has_versions = True

    def read_with_version(self, path: str, bytes_max: int) -> tuple[bytes, str] | None:
        """See :class:`Storage`."""
        with self._lock:
            entry = self._objects.get(check_path(path))
            if entry is None:
                return None
            check_size(path, len(entry[0]), bytes_max)
            return entry[0], str(self._stamps[path])

    def replace_version(self, path: str, data: Data, version: str) -> str | None:
        """See :class:`Storage`."""
        with self._lock:
            if check_path(path) not in self._objects or str(self._stamps[path]) != version:
                return None
            self.replace(path, data)
            return str(self._stamps[path])

    def replace(self, path: str, data: Data) -> None:
        """See :class:`Storage`."""
        content = to_bytes(data)
        with self._lock:
            self._objects[check_path(path)] = (content, self._now_us)
            self._touch(path)

    def delete(self, path: str) -> None:
        """See :class:`Storage`."""
        with self._lock:
            if self._objects.pop(check_path(path), None) is not None:
                self._touch(path)

    def list(self, prefix: str) -> Listing:
        """See :class:`Storage`."""
        directory = check_directory(prefix)
        start = directory + "/" if directory else ""
        with self._lock:
            entries = [
                (path, *entry) for path, entry in self._objects.items() if path.startswith(start)
            ]
        return sorted(
            (
                ObjectInfo(path, len(data), modified)
                for path, data, modified in entries
                if not is_temporary(path)
            ),
            key=lambda info: info.path,
        )

    def list_dir(
        self, prefix: str, *, after: str = "", before: str = "", skip: Container[str] = frozenset()
    ) -> Listing:
        """See :class:`Storage`."""
        directory = check_directory(prefix)
        return infos_between(self.list(prefix), directory, after, before, skip)

    def children(self, prefix: str) -> Names:
        """See :class:`Storage`."""
        directory = check_directory(prefix)
        skipped = len(directory) + bool(directory)
        return sorted({info.path[skipped:].partition("/")[0] for info in self.list(prefix)})

    def stamp(self, path: str) -> Hashable | None:
        """See :class:`Storage`."""
        with self._lock:
            return self._stamps.get(path, 0)

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
        """See :class:`Storage`. Returns immediately."""
        with self._lock:
            self._now_us += round(seconds * 1e6)

    def uri(self, path: str) -> str:
        """See :class:`Storage`. Only this object can read it."""
        return f"{self.url}/{path}"

    def _touch(self, path: str) -> None:
        """Give an object and its directory new unique stamps. The caller holds the lock."""
        self._changes += 1
        self._stamps[path] = self._stamps[path.rpartition("/")[0]] = self._changes

    def _get(self, path: str) -> bytes:
        with self._lock:
            entry = self._objects.get(check_path(path))
        if entry is None:
            raise missing(path)
        return entry[0]
