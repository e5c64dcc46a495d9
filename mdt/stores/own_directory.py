"""Private directories on the local disk, each holding one of our stores and a marker file.

The marker is a small file with a fixed text, and the first file written into a directory. A
directory with other files but no marker belongs to somebody else: nothing in it is opened, written
or removed.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from mdt.stores.trusted_cache import cache_root, is_ours, is_ours_alone

MARK = "mdt-store"
"""Name of the marker file."""
_MARK_BYTES_MAX = 64


class NotOurs(OSError):
    """A directory cannot be used as a store. The message contains the reason and a remedy."""


def claim(directory: str, kind: str) -> None:
    """Create ``directory``, or check that it is our store of this ``kind``, e.g. "pages".

    Raises NotOurs for a symbolic link, for a directory that another user owns or can access, and
    for a directory with other files and no marker. Raises another OSError if it cannot be created.
    Many processes may call it concurrently, and again after a crash.
    """
    _make_parent(os.path.dirname(directory))
    with suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    if os.path.islink(directory):
        raise NotOurs(f"{directory} is a symbolic link; give the path of the directory itself")
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        names = set(os.listdir(folder))
        _check_directory(directory, os.fstat(folder), names)
        _check_mark(directory, folder, f"mdt store 1: {kind}\n".encode(), may_write=names <= {MARK})
    finally:
        os.close(folder)


def store_directory(directory: str, name: str) -> str:
    """Return the absolute path of a directory, in which a leading ``~/`` is the home directory. ""
    means ``mdt/<name>`` in this user's cache directory.
    """
    if directory:
        return os.path.abspath(os.path.expanduser(directory))
    return os.path.abspath(os.path.join(cache_root(), "mdt", name))


def _make_parent(parent: str) -> None:
    """Create the directory above a store.

    The user's cache directory, and ``mdt`` in it, are only created below a directory of the user.
    """
    root = os.path.abspath(cache_root())
    if parent != os.path.join(root, "mdt"):
        os.makedirs(parent, mode=0o700, exist_ok=True)
        return
    if not os.path.isabs(cache_root()):
        raise NotOurs("this user has no home directory; set XDG_CACHE_HOME to a directory")
    for folder in (root, parent):
        if not os.path.lexists(folder):
            _require_ours(os.path.dirname(folder))
            with suppress(FileExistsError):
                os.mkdir(folder, 0o700)
        _require_ours(folder)
    if os.path.islink(parent):
        raise NotOurs(f"{parent} is a symbolic link; set XDG_CACHE_HOME to another directory")


def _require_ours(folder: str) -> None:
    if not is_ours(os.stat(folder)):
        raise NotOurs(
            f"{folder} belongs to another user; set XDG_CACHE_HOME to a directory of your own"
        )


def _check_directory(directory: str, status: os.stat_result, names: set[str]) -> None:
    if names and MARK not in names:
        raise NotOurs(
            f"{directory} contains files of another program; choose an empty or a new directory"
        )
    if not is_ours(status):
        raise NotOurs(f"{directory} belongs to another user; choose a directory of your own")
    if not is_ours_alone(status):
        raise NotOurs(
            f"{directory} is accessible to other users; make it private: chmod 700 {directory}"
        )


def _check_mark(directory: str, folder: int, mark: bytes, *, may_write: bool) -> None:
    """Check the marker of a directory.

    Args:
        may_write: True if the directory has no other files. An absent or incomplete marker is then
            written.
    """
    flags = os.O_RDWR | os.O_CREAT if may_write else os.O_RDONLY
    try:
        descriptor = os.open(
            MARK, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=folder
        )
    except OSError as error:
        raise NotOurs(
            f"{directory} has no readable file {MARK}: {error.strerror}; choose another directory"
        ) from error
    try:
        _check_content(directory, descriptor, mark, may_write=may_write)
    finally:
        os.close(descriptor)


def _check_content(directory: str, descriptor: int, mark: bytes, *, may_write: bool) -> None:
    status, content = os.fstat(descriptor), os.pread(descriptor, _MARK_BYTES_MAX, 0)
    is_plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and is_ours_alone(status)
    if is_plain and may_write and mark.startswith(content):
        os.pwrite(descriptor, mark, 0)
    elif not is_plain or content != mark:
        raise NotOurs(
            f"the file {MARK} in {directory} is not from this store; choose another directory"
        )
