"""A directory of this machine with what mdt has imported from a table of other Hudi writers.

A large table opens from there in milliseconds, because only later commits are imported. Everything
in it can be made again, so it may be removed while no process uses it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from mdt.stores.local import LocalStorage
from mdt.stores.own_directory import NotOurs, claim, user_directory

_KIND = "imported tables"
_USERS, _IMPORTING = "users", "importing"
"""Lock files: users hold a shared lock on the first one, and an importer an exclusive lock on the
second one.
"""


class TableFolder:
    """A folder that this process uses until the object is released. Thread-safe.

    Attributes:
        path: Path of the folder.
        storage: The objects in it, below ``.hoodie/.mdt`` as in a table of mdt.
    """

    def __init__(self, path: str, descriptor: int) -> None:
        """Use a folder.

        Args:
            descriptor: The lock file of the users, with a shared lock.
        """
        self.path = path
        self.storage = LocalStorage(path)
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)

    @contextmanager
    def importing(self) -> Iterator[None]:
        """Context for an import. Other processes wait."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(os.path.join(self.path, _IMPORTING), flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a forked child may have inherited it
            os.close(descriptor)

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Context in which no other process or object uses the folder. Yields False if one does."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
        except BlockingIOError:
            yield False
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def remove(self) -> bool:
        """Remove the folder, unless others use it. Return True if it was removed."""
        with self.alone() as is_alone:
            if is_alone:
                removed = f"{self.path}-removed-{os.urandom(4).hex()}"
                os.rename(self.path, removed)  # nobody opens a folder that is half removed
                shutil.rmtree(removed, ignore_errors=True)
            return is_alone


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
    root = f"{os.path.abspath(directory)}-tables" if directory else user_directory("tables")
    path = os.path.join(root, name)
    if not create and not os.path.isdir(path):
        return None
    try:
        claim(root, _KIND)
        if create:
            _evict(root, bytes_max)
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)
        return _used(path)
    except NotOurs:
        raise
    except OSError:
        return None  # work without it


def _used(path: str) -> TableFolder | None:
    """Return a folder with the lock of a user, or None if it was just removed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    users = os.path.join(path, _USERS)
    descriptor = os.open(users, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.utime(descriptor)
        if os.path.samestat(os.fstat(descriptor), os.stat(users)):
            return TableFolder(path, descriptor)
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _evict(root: str, bytes_max: int) -> None:
    """Remove folders that no process uses, the oldest first, until all are small enough."""
    folders = [entry.path for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)]
    sizes = {path: _size(path) for path in folders}
    total = sum(sizes.values())
    for path in sorted(folders, key=_last_use):
        if total <= bytes_max:
            return
        with suppress(OSError):
            folder = _used(path)
            if folder is not None and folder.remove():
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
