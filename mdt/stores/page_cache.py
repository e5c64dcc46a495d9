"""Cache of remote metadata pages on the local disk, in an LMDB file shared by a user's processes.

It may be deleted at any time. A full cache works like an empty one, a damaged file is deleted and
recreated, and readers verify the pages. The key of a page determines its content, so entries never
become stale.
"""

from __future__ import annotations

import struct
from contextlib import suppress

import lmdb

from mdt.limits import DIRECTORIES_OPEN_MAX
from mdt.session import Guarded, Recent, in_session
from mdt.stores.contract import Buffer
from mdt.stores.lmdb_file import DAMAGED, identity, open_environment, opening_lock, remove
from mdt.stores.own_directory import NotOurs, store_directory

_KIND = "pages"
_AGE = struct.Struct(">Q")
_TOTAL = b"total"
_FILL = 0.9
_LEFT_AFTER_EVICTION = 0.7
_SLACK_BYTES = 16 << 20
"""Extra space for LMDB's trees, and for pages written while old versions are still being read."""


class PageCache:
    """A page cache of at most ``bytes_max`` bytes in ``directory``, which evicts the oldest pages.

    Safe for threads and processes.

    Attributes:
        refusal: Why the directory is not used, if it is not our store.
        said: Messages that have been logged about it.
    """

    def __init__(self, directory: str, bytes_max: int) -> None:
        self.hits = self.misses = 0
        self._bytes_max = bytes_max
        self._directory = directory
        self._env: lmdb.Environment | None = None
        self.refusal, self.said = "", set[str]()
        try:
            with suppress(lmdb.Error), opening_lock(directory, _KIND) as holding:
                try:
                    self._open()
                except DAMAGED:
                    remove(directory, holding)
                    self._open()
        except NotOurs as error:
            self.refusal = str(error)
        except OSError:
            pass  # work without a cache

    def _open(self) -> None:
        size = self._bytes_max + self._bytes_max // 4 + _SLACK_BYTES
        env = open_environment(
            self._directory,
            _KIND,
            map_size=size,
            max_dbs=3,
            sync=False,
            metasync=False,
        )
        try:
            self._pages, self._ages, self._state = (
                env.open_db(name) for name in (b"pages", b"ages", b"state")
            )
            self._identity = identity(self._directory)
        except BaseException:
            env.close()
            raise
        self._env = env

    def get(self, key: bytes) -> bytes | None:
        """Return a page, unverified, or None if it is not cached."""
        page, env = None, self._env
        if env is not None:
            try:
                with env.begin(db=self._pages) as txn:
                    page = txn.get(key)
            except DAMAGED:
                self._give_up()
            except lmdb.Error:
                pass
        self.hits += page is not None
        self.misses += page is None
        return page

    def put(self, key: bytes, data: Buffer) -> None:
        """Cache a page if possible."""
        size, env = memoryview(data).nbytes, self._env
        if env is None or size > self._bytes_max // 4:
            return
        try:
            with env.begin(write=True) as txn:
                self._put(txn, key, bytes(data))
        except (*DAMAGED, struct.error):
            self._give_up()
        except lmdb.Error:
            pass

    def _put(self, txn: lmdb.Transaction, key: bytes, data: bytes) -> None:
        if not txn.put(key, data, db=self._pages, overwrite=False):
            return
        total = self._total(txn) + len(data)
        if total > _FILL * self._bytes_max:
            total -= self._evict(txn, total - int(_LEFT_AFTER_EVICTION * self._bytes_max))
        txn.put(_AGE.pack(self._newest(txn) + 1), key, db=self._ages)
        txn.put(_TOTAL, _AGE.pack(total), db=self._state)

    def _give_up(self) -> None:
        """Stop using a damaged file and delete it, so that the next process creates a new one.

        Processes that have it open keep it.
        """
        self._env = None
        with suppress(OSError), opening_lock(self._directory, _KIND) as holding:
            if identity(self._directory) == self._identity:
                remove(self._directory, holding)

    def _total(self, txn: lmdb.Transaction) -> int:
        packed = txn.get(_TOTAL, db=self._state)
        return 0 if packed is None else int(_AGE.unpack(packed)[0])

    def _newest(self, txn: lmdb.Transaction) -> int:
        with txn.cursor(db=self._ages) as cursor:
            return int(_AGE.unpack(cursor.key())[0]) if cursor.last() else 0

    def _evict(self, txn: lmdb.Transaction, size: int) -> int:
        """Remove the oldest pages, at least ``size`` bytes if available. Return the number of bytes
        freed.
        """
        freed = 0
        with txn.cursor(db=self._ages) as cursor:
            while freed < size and cursor.first():
                key = cursor.value()
                freed += len(txn.get(key, db=self._pages) or b"")
                txn.delete(key, db=self._pages)
                cursor.delete()
        return freed


@in_session
def _open_caches() -> Guarded[Recent[str, PageCache]]:
    """Return the caches that this process has open, by directory."""
    return Guarded(Recent(DIRECTORIES_OPEN_MAX))


def open_page_cache(directory: str, bytes_max: int) -> PageCache:
    """Return the cache in ``directory``, shared by all callers in the process.

    "" means a directory in the user's cache directory.
    """
    path = store_directory(directory, "pages-2")
    caches = _open_caches()
    with caches.lock:
        return caches.value.made(path, lambda: PageCache(path, bytes_max))
