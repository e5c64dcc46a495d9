"""LMDB files on the local disk.

The files are mapped into memory. If a file has been truncated, the operating system kills any
process that touches a page past its end.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import lmdb

from mdt.stores.own_directory import claim

DAMAGED = (lmdb.InvalidError, lmdb.CorruptedError, lmdb.PageNotFoundError)
"""Errors that LMDB raises for a damaged file.

For a file of another LMDB version, which may belong to somebody, it raises a different error.
"""
_DATA = "data.mdb"
_LOCKS = "lock.mdb"
_TURN = "turn"
"""Lock file: openers of the environment hold a shared lock on it, removers an exclusive lock."""


_READERS_MAX = 512
_READER_BYTES = 64
"""Size of a reader in the lock file."""


def open_environment(directory: str, kind: str, **settings: Any) -> lmdb.Environment:
    """Open the LMDB environment in ``directory``, creating a store of this ``kind`` if necessary.

    Args:
        settings: Arguments of ``lmdb.open``, except ``mode`` and ``max_readers``.

    Raises lmdb.Error or OSError if the store cannot be used, including
    mdt.stores.own_directory.NotOurs.
    """
    claim(directory, kind)
    _make_lock_file(directory)
    env = lmdb.open(os.fsencode(directory), mode=0o600, max_readers=_READERS_MAX, **settings)
    try:
        _fill_up(env, os.path.join(directory, _DATA))
    except BaseException:
        env.close()
        raise
    return env


@contextmanager
def opening_lock(directory: str, kind: str) -> Iterator[int]:
    """Lock ``directory`` while an environment is opened, and yield the lock for :func:`remove`.

    Raises OSError without waiting if another process is removing the store, and if the directory is
    not a store of this ``kind``.
    """
    claim(directory, kind)
    # flock locks would be inherited by forked processes and outlive this one.
    descriptor = os.open(
        os.path.join(directory, _TURN), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield descriptor
    finally:
        os.close(descriptor)


def identity(directory: str) -> tuple[int, int]:
    """Return the device and inode of the file in ``directory``, which identify it after a
    replacement.

    Raises OSError if there is no file.
    """
    status = os.stat(os.path.join(directory, _DATA))
    return status.st_dev, status.st_ino


def remove(directory: str, lock: int) -> None:
    """Remove the environment in ``directory``. ``lock`` is the lock from :func:`opening_lock`.

    Processes that have it open keep the old files and locks, and do not see the next environment.
    Raises OSError if another process is opening it.
    """
    fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for name in (_LOCKS, _DATA):  # locks first: old locks must never refer to new data
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(directory, name))


def _make_lock_file(directory: str) -> None:
    """Create the lock file with all its blocks. Raises OSError if the disk is full.

    LMDB leaves them to be allocated on first use. On a full disk that would kill the process,
    because the file is mapped into memory.
    """
    path = os.path.join(directory, _LOCKS)
    if os.path.exists(path) or not hasattr(os, "posix_fallocate"):
        return
    descriptor, name = tempfile.mkstemp(prefix="lock-", dir=directory)
    try:
        os.posix_fallocate(descriptor, 0, (_READERS_MAX - 1) * _READER_BYTES)
        with suppress(OSError):  # another process has made it, or there are no hard links
            os.link(name, path)
    finally:
        os.close(descriptor)
        os.unlink(name)


def _fill_up(env: lmdb.Environment, path: str) -> None:
    """Extend a file that ends before its last page with zeros, which LMDB rejects as pages.

    A valid file may end early, because a page that was freed immediately need not be written.
    """
    info = env.info()
    size = (info["last_pgno"] + 1) * env.stat()["psize"]
    if os.stat(path).st_size >= size:
        return
    if size > info["map_size"]:
        raise lmdb.CorruptedError(f"{path} claims a size of {size} bytes")
    with env.begin(write=True):  # excludes other writers
        if os.stat(path).st_size < size:
            os.truncate(path, size)
