"""Sorted key-value stores next to a table: in process memory, or in an LMDB file that processes
share.

Writes happen in transactions. A transaction is atomic even if the process dies, and excludes other
writers. The contents can be rebuilt: if a store cannot be used it raises :class:`StoreFailed`, and
the caller continues without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import lmdb
from sortedcontainers import SortedDict

from mdt.forking import OwnLock
from mdt.limits import DIRECTORIES_OPEN_MAX
from mdt.session import Guarded, Recent, in_session
from mdt.stores.contract import Buffer
from mdt.stores.lmdb_file import open_environment
from mdt.stores.own_directory import store_directory

_MAP_BYTES = 1 << 36
"""Address space for the file, not its size. Enough for about five billion keys."""


class StoreFailed(Exception):
    """The store is damaged, full, or cannot be opened."""


class View(Protocol):
    """A store within a transaction.

    Returned buffers are valid until the store changes or the transaction ends.
    """

    def items(self, prefix: bytes) -> list[tuple[bytes, Buffer]]:
        """Return the entries whose keys begin with ``prefix``, in ascending order of keys."""

    def put(self, key: bytes, data: Buffer) -> None:
        """Set an entry."""

    def delete(self, key: bytes) -> None:
        """Remove an entry, if it exists."""


class KeyStore(Protocol):
    """A sorted key-value store. Thread-safe."""

    def begin(self, *, write: bool) -> AbstractContextManager[View]:
        """Return a transaction, to be used in a ``with`` statement. Raises StoreFailed."""


class MemoryStore:
    """A sorted map in this process. Writers change a copy, which never blocks readers."""

    def __init__(self) -> None:
        self._view = _MemoryView(SortedDict())
        self._lock = OwnLock()

    @contextmanager
    def begin(self, *, write: bool) -> Iterator[View]:
        """See :class:`KeyStore`."""
        if not write:
            yield self._view
            return
        with self._lock:
            changed = _MemoryView(self._view.entries.copy())
            yield changed
            self._view = changed


class _MemoryView:
    def __init__(self, entries: SortedDict) -> None:
        self.entries = entries

    def items(self, prefix: bytes) -> list[tuple[bytes, Buffer]]:
        entries = []
        for key in self.entries.irange(prefix):
            if not key.startswith(prefix):
                break
            entries.append((key, self.entries[key]))
        return entries

    def put(self, key: bytes, data: Buffer) -> None:
        self.entries[key] = bytes(data)

    def delete(self, key: bytes) -> None:
        self.entries.pop(key, None)


class _LmdbView:
    def __init__(self, txn: lmdb.Transaction) -> None:
        self._txn = txn

    def items(self, prefix: bytes) -> list[tuple[bytes, Buffer]]:
        entries: list[tuple[bytes, Buffer]] = []
        with self._txn.cursor() as cursor:
            if cursor.set_range(prefix):
                for key, data in cursor:
                    if not bytes(key).startswith(prefix):
                        break
                    entries.append((bytes(key), data))
        return entries

    def put(self, key: bytes, data: Buffer) -> None:
        self._txn.put(key, data)

    def delete(self, key: bytes) -> None:
        self._txn.delete(key)


class LmdbStore:
    """An LMDB file in ``directory``."""

    def __init__(self, directory: str, *, durable: bool) -> None:
        """Open or create the file.

        Args:
            durable: True if written data must survive a power cut.

        Raises StoreFailed if the file cannot be opened.
        """
        self._directory = directory
        try:
            self._env = open_environment(
                directory,
                "keys",
                map_size=_MAP_BYTES,
                sync=durable,
                metasync=durable,
            )
        except (lmdb.Error, OSError) as error:
            raise StoreFailed(f"the key store in {directory} cannot be opened: {error}") from error

    @contextmanager
    def begin(self, *, write: bool) -> Iterator[View]:
        """See :class:`KeyStore`. A writer waits for other writers on this machine, but not for
        killed processes.
        """
        try:
            with self._env.begin(write=write, buffers=True) as txn:
                yield _LmdbView(txn)
        except lmdb.Error as error:
            raise StoreFailed(f"the key store in {self._directory} failed: {error}") from error


@in_session
def _open_stores() -> Guarded[Recent[str, LmdbStore]]:
    """Return the stores on the local disk that this process has open, by directory."""
    return Guarded(Recent(DIRECTORIES_OPEN_MAX))


def open_key_store(directory: str, *, durable: bool) -> LmdbStore:
    """Return the store in ``directory``, shared by all callers in the process.

    "" means a directory in the user's cache directory. Raises StoreFailed.
    """
    path = store_directory(directory, "keys-2")
    stores = _open_stores()
    with stores.lock:
        return stores.value.made(path, lambda: LmdbStore(path, durable=durable))
