"""Pages of remote metadata on the local disk: an LMDB file that the processes of one user share.

A cache and nothing else: it may be deleted at any time, a damaged or full one is as good as none, and whoever reads from
it checks what he gets.  The key of a page says all that decides its content, so nothing in it can be out of date.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress

import lmdb

from mdt.stores.contract import Buffer
from mdt.stores.forking import OwnLock
from mdt.stores.lmdb_file import opened
from mdt.stores.own_files import cache_root

_AGE = struct.Struct(">Q")
_TOTAL = b"total"
_FILL = 0.9
_LEFT_AFTER_EVICTION = 0.7
_SLACK_BYTES = 16 << 20
"""What LMDB needs beside the pages: its trees, and pages that are written while old ones are still read."""

_open: dict[tuple[int, str], PageCache] = {}
_open_lock = OwnLock()


class PageCache:
    """At most ``bytes_max`` bytes of pages in ``directory``; the oldest make room.  Safe for threads and processes."""

    def __init__(self, directory: str, bytes_max: int) -> None:
        self.hits = self.misses = 0
        self._bytes_max = bytes_max
        self._env: lmdb.Environment | None = None
        with suppress(lmdb.Error, OSError):
            env = opened(
                directory, map_size=bytes_max + bytes_max // 4 + _SLACK_BYTES, max_dbs=3, sync=False, metasync=False,
                max_readers=512,
            )  # fmt: skip
            self._pages, self._ages, self._state = (env.open_db(name) for name in (b"pages", b"ages", b"state"))
            self._env = env

    def get(self, key: bytes) -> bytes | None:
        """Return a page or None; the caller checks it."""
        found = None
        if self._env is not None:
            with suppress(lmdb.Error), self._env.begin(db=self._pages) as txn:
                found = txn.get(key)
        self.hits += found is not None
        self.misses += found is None
        return found

    def put(self, key: bytes, data: Buffer) -> None:
        """Keep a page if it is possible."""
        size = memoryview(data).nbytes
        if self._env is None or size > self._bytes_max // 4:
            return
        with suppress(lmdb.Error, struct.error), self._env.begin(write=True) as txn:
            if not txn.put(key, bytes(data), db=self._pages, overwrite=False):
                return
            total = self._total(txn) + size
            if total > _FILL * self._bytes_max:
                total -= self._evict(txn, total - int(_LEFT_AFTER_EVICTION * self._bytes_max))
            txn.put(_AGE.pack(self._newest(txn) + 1), key, db=self._ages)
            txn.put(_TOTAL, _AGE.pack(total), db=self._state)

    def _total(self, txn: lmdb.Transaction) -> int:
        found = txn.get(_TOTAL, db=self._state)
        return 0 if found is None else int(_AGE.unpack(found)[0])

    def _newest(self, txn: lmdb.Transaction) -> int:
        with txn.cursor(db=self._ages) as cursor:
            return int(_AGE.unpack(cursor.key())[0]) if cursor.last() else 0

    def _evict(self, txn: lmdb.Transaction, size: int) -> int:
        """Remove the oldest pages, ``size`` bytes or a little more; return how many bytes."""
        freed = 0
        with txn.cursor(db=self._ages) as cursor:
            while freed < size and cursor.first():
                key = cursor.value()
                freed += len(txn.get(key, db=self._pages) or b"")
                txn.delete(key, db=self._pages)
                cursor.delete()
        return freed


def open_page_cache(directory: str, bytes_max: int) -> PageCache:
    """Return the cache in ``directory`` ("": in this user's cache directory), one for a process and directory."""
    where = os.path.abspath(directory or _user_directory())
    with _open_lock:
        # A child that was forked must not use its parent's environment.
        key = (os.getpid(), where)
        if key not in _open:
            _open[key] = PageCache(where, bytes_max)
        return _open[key]


def _user_directory() -> str:
    return os.path.join(cache_root(), "mdt", "pages-1")
