"""A directory of this machine with what mdt has imported from a table of other Hudi writers.

A large table opens from there in milliseconds, because only later commits are imported. Everything
in it can be made again, so it may be removed while no process uses it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from mdt.limits import TABLE_FOLDER_WAIT_SECONDS
from mdt.stores.local import LocalStorage
from mdt.stores.own_directory import NotOurs, claim, store_directory

_KIND = "imported tables"
_USERS = "users"
"""File on which each user of a folder holds a shared lock."""
_POLL_SECONDS = 0.02
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class TableFolder:
    """A folder that this process uses until the object is released. Thread-safe.

    Attributes:
        path: Path of the folder.
        storage: The objects in it, below ``.hoodie/.mdt`` as in a table of mdt.
    """

    def __init__(self, path: str) -> None:
        """Use a folder, which must be locked.

        Raises OSError if it does not exist.
        """
        self.path = path
        self.storage = LocalStorage(path)
        self._descriptor = os.open(os.path.join(path, _USERS), _FLAGS, 0o600)
        weakref.finalize(self, os.close, self._descriptor)
        fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.utime(self._descriptor)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Context in which no other process or object opens, changes or removes the folder.

        Raises OSError if another one works in it for too long.
        """
        with _locked(self.path, TABLE_FOLDER_WAIT_SECONDS):
            yield

    def is_alone(self) -> bool:
        """Return True if no other process or object uses the folder, which must be locked."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False
        finally:  # the change of a lock gives it up first, which only another user could notice
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def remove(self) -> bool:
        """Remove the folder, unless others use it. Return True if it was removed."""
        removed = f"{self.path}-removed-{os.urandom(4).hex()}"
        try:
            with self.locked():
                if not self.is_alone():
                    return False
                os.rename(self.path, removed)  # nobody opens a folder that is half removed
                os.unlink(_lock_file(self.path))
        except OSError:
            return False
        shutil.rmtree(removed, ignore_errors=True)
        return True


def open_folder(directory: str, bytes_max: int, name: str, *, create: bool) -> TableFolder | None:
    """Return the folder ``name``, or None if there is none or it cannot be used.

    Args:
        directory: The directory of the page cache, "" for the user's cache directory.
        bytes_max: Size of all folders, 0 for no folders.
        create: Create the folder. If all are larger than ``bytes_max``, those that were not used
            for the longest time are removed first.

    Raises mdt.stores.own_directory.NotOurs if the directory is not our store.
    """
    if not bytes_max:
        return None
    root = store_directory(directory, "tables")
    if directory:
        root += "-tables"
    path = os.path.join(root, name)
    if not create and not os.path.isdir(path):
        return None
    try:
        claim(root, _KIND)
        if create:
            _evict(root, bytes_max)
        with _locked(path, TABLE_FOLDER_WAIT_SECONDS):
            if create:
                with suppress(FileExistsError):
                    os.mkdir(path, 0o700)
            return TableFolder(path)
    except NotOurs:
        raise
    except OSError:
        return None  # work without it


@contextmanager
def _locked(path: str, seconds: float) -> Iterator[None]:
    """Context with the lock of a folder. Raises OSError if it cannot be locked within ``seconds``.

    The lock file is beside the folder, so that the folder can be removed under its lock.
    """
    until = time.monotonic() + seconds
    descriptor = _lock(path)
    while descriptor is None:
        if time.monotonic() > until:
            raise TimeoutError(f"another process works in {path}")
        time.sleep(_POLL_SECONDS)
        descriptor = _lock(path)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a forked child may have inherited it
        os.close(descriptor)


def _lock(path: str) -> int | None:
    """Return the locked lock file of a folder, or None if another process has locked or removed
    it.
    """
    descriptor = os.open(_lock_file(path), _FLAGS, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(_lock_file(path))):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _lock_file(path: str) -> str:
    return f"{path}.lock"


def _evict(root: str, bytes_max: int) -> None:
    """Remove folders that no process uses, the oldest first, until all are small enough."""
    folders = [entry.path for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)]
    sizes = {path: _size(path) for path in folders}
    total = sum(sizes.values())
    for path in sorted(folders, key=_last_use):
        if total <= bytes_max:
            return
        with suppress(OSError):
            with _locked(path, 0):
                folder = TableFolder(path)
            if folder.remove():
                total -= sizes[path]


def _size(path: str) -> int:
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def _last_use(path: str) -> float:
    try:
        return os.lstat(os.path.join(path, _USERS)).st_mtime
    except OSError:
        return 0.0
