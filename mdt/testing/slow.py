"""Storages that simulate an object store: one is slow, one counts round trips."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from threading import RLock
from typing import Any, TypeVar

import pyarrow as pa

from mdt.stores.concurrent_io import StorageThreads
from mdt.stores.contract import Storage
from mdt.stores.positioned_file import RangeFile
from mdt.testing.faulty import FaultyStorage

Result = TypeVar("Result")


class FarStorage(FaultyStorage):
    """A wrapper of ``inner`` without features of local disks: mapped files and stamps."""

    is_remote = True

    def local_path(self, path: str) -> str | None:
        """See :class:`Storage`. Always None."""
        return None

    def stamp(self, path: str) -> Hashable | None:
        """See :class:`Storage`. Always None, without a request."""
        return None

    def delete_many(self, paths: Iterable[str]) -> None:
        """See :class:`Storage`. A single request."""
        doomed = list(paths)
        if doomed:
            self._change("delete", doomed[-1], lambda: self.inner.delete_many(doomed), lambda: None)

    def open(self, path: str) -> Any:
        """See :class:`Storage`. A request for the size, and one for each read."""
        size = self.size(path)
        return (
            super().open(path)
            if size is None
            else pa.PythonFile(RangeFile(self, path, size), mode="r")
        )


class SlowStorage(FarStorage):
    """A wrapper of ``inner`` that delays every operation by ``seconds``. Independent operations run
    concurrently.

    >>> from mdt.stores.memory import MemoryStorage
    >>> storage = SlowStorage(MemoryStorage(), 0.05)
    >>> storage.create("one", b"1")
    >>> storage.inner.now_us() - MemoryStorage().now_us() >= 50_000
    True
    """

    def __init__(self, inner: Storage, seconds: float) -> None:
        super().__init__(inner)
        self.seconds = seconds
        self._at_once = StorageThreads()

    def begin(self, act: Callable[[], Result]) -> Callable[[], Result]:
        """See :class:`Storage`. Runs in another thread."""
        return self._at_once.begin(act)

    def _look(self, name: str, path: str, act: Callable[[], Result]) -> Result:
        self.inner.sleep(self.seconds)
        return super()._look(name, path, act)

    def _change(
        self, name: str, path: str, act: Callable[[], Result], tear: Callable[[], object]
    ) -> Result:
        self.inner.sleep(self.seconds)
        return super()._change(name, path, act, tear)


class CountingStorage(FarStorage):
    """A wrapper of ``inner`` that counts round trips in ``rounds``. Independent operations share a
    round trip.

    Nothing waits, and the calling thread executes all operations, so the number is exact. ``made``
    lists (round, operation).

    >>> from mdt.stores.memory import MemoryStorage
    >>> storage = CountingStorage(MemoryStorage())
    >>> storage.together(
    ...     lambda: storage.size("one"), lambda: (storage.size("two"), storage.size("three"))
    ... )
    [None, (None, None)]
    >>> storage.rounds, storage.made
    (2, [(1, 'size one'), (1, 'size two'), (2, 'size three')])
    """

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner, count_reads=True)
        self.rounds = 0
        self.made: list[tuple[int, str]] = []
        self._one = RLock()

    def begin(self, act: Callable[[], Result]) -> Callable[[], Result]:
        """See :class:`Storage`."""
        with self._one:
            before = self.rounds
            result = act()
            ended, self.rounds = self.rounds, before

        def wait() -> Result:
            with self._one:
                self.rounds = max(self.rounds, ended)
            return result

        return wait

    def _change(
        self, name: str, path: str, act: Callable[[], Result], tear: Callable[[], object]
    ) -> Result:
        with self._one:
            self.rounds += 1
            self.made.append((self.rounds, f"{name} {path}"))
        return super()._change(name, path, act, tear)
