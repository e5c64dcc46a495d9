"""LMDB files on the local disk.  They are mapped: where one was cut, the system would kill the process that touches a page behind its end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lmdb


def opened(directory: str, **settings: Any) -> lmdb.Environment:
    """Return the environment in ``directory``, which is made if need be; ``settings``: as ``lmdb.open`` takes them.

    Raises lmdb.Error or OSError if it cannot be used.
    """
    Path(directory).mkdir(parents=True, exist_ok=True)
    env = lmdb.open(directory, **settings)
    try:
        _fill_up(env, os.path.join(directory, "data.mdb"))
    except BaseException:
        env.close()
        raise
    return env


def _fill_up(env: lmdb.Environment, path: str) -> None:
    """Let zeros stand, which LMDB refuses, where the file ends before its last page; a page that was given back at once may lack in a whole one."""
    info = env.info()
    size = (info["last_pgno"] + 1) * env.stat()["psize"]
    if os.stat(path).st_size >= size:
        return
    if size > info["map_size"]:
        raise lmdb.CorruptedError(f"{path} says that it has {size} bytes")
    with env.begin(write=True):  # nobody else makes it longer meanwhile
        if os.stat(path).st_size < size:
            os.truncate(path, size)
