"""LMDB files on the local disk.  They are mapped: where one was cut, the system would kill the
process that touches a page behind its end.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import lmdb

from mdt.stores.own_directory import claim

DAMAGED = (lmdb.InvalidError, lmdb.CorruptedError, lmdb.PageNotFoundError)
"""What LMDB raises for a file that is damaged; for one of another version, which is somebody's, it
raises another error.
"""
_DATA = "data.mdb"
_LOCKS = "lock.mdb"
_TURN = "turn"
"""Of this file, whoever opens an environment holds a shared lock meanwhile, and whoever removes one
an exclusive lock.
"""


def opened(directory: str, kind: str, **settings: Any) -> lmdb.Environment:
    """Return the environment in ``directory``, a store of this ``kind`` that is made if need be;
    ``settings``: as ``lmdb.open`` takes them.

    Raises lmdb.Error or OSError if it cannot be used, mdt.stores.own_directory.NotOurs among them.
    """
    claim(directory, kind)
    env = lmdb.open(directory, mode=0o600, **settings)
    try:
        _fill_up(env, os.path.join(directory, _DATA))
    except BaseException:
        env.close()
        raise
    return env


@contextmanager
def turn(directory: str, kind: str) -> Iterator[int]:
    """Yield what :func:`remove` needs; environments in ``directory`` are opened within, as long as
    nobody removes them.

    Raises OSError, and does not wait, if somebody is doing that, and where the directory is not a
    store of ours of this ``kind``.
    """
    claim(directory, kind)
    # Locks of another kind would be inherited by processes that are forked meanwhile, and stay.
    descriptor = os.open(
        os.path.join(directory, _TURN), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield descriptor
    finally:
        os.close(descriptor)


def identity(directory: str) -> tuple[int, int]:
    """Return what tells the file in ``directory`` from one that has taken its place.  Raises
    OSError if there is none.
    """
    told = os.stat(os.path.join(directory, _DATA))
    return told.st_dev, told.st_ino


def remove(directory: str, holding: int) -> None:
    """Remove the environment in ``directory``, in the :func:`turn` that is ``holding``.  Raises
    OSError if others are opening it.

    Who has it open keeps its files, with their locks, and sees nothing of the next one.
    """
    fcntl.lockf(holding, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for name in (_LOCKS, _DATA):  # new data under old locks would be taken for the old ones
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(directory, name))


def _fill_up(env: lmdb.Environment, path: str) -> None:
    """Let zeros stand, which LMDB refuses, where the file ends before its last page; a page that
    was given back at once may lack in a whole one.
    """
    info = env.info()
    size = (info["last_pgno"] + 1) * env.stat()["psize"]
    if os.stat(path).st_size >= size:
        return
    if size > info["map_size"]:
        raise lmdb.CorruptedError(f"{path} says that it has {size} bytes")
    with env.begin(write=True):  # nobody else makes it longer meanwhile
        if os.stat(path).st_size < size:
            os.truncate(path, size)
