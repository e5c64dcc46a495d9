"""A cache of compiled code in the user's cache directory, which no other user can have written.

It may be deleted at any time. If it is unavailable or anything about it is suspicious, it is
treated as empty. A file is trusted if it contains the SHA-256 digest of its name and bytes, and if
only the user of this process can have written it:

* The cache directory, the directory ``mdt`` in it and the folder belong to the user. The latter two
  are not links.
* The file is a regular file. Neither it nor the folder is accessible to anybody else (modes 0600
  and 0700).

The digest detects damage. It is not a signature: anybody who can write the user's files can run
code as the user anyway. Folders and files are opened relative to their parents, so the checked file
is the file that is read. A file gets its name when it is complete.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from mdt.limits import OWN_FILE_BYTES_MAX

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
_UNFINISHED = ".unfinished-"
_UNFINISHED_SECONDS = 3600
"""No process writes a file of a few megabytes for so long, so the writer must be dead."""
_DIGEST_BYTES = 32


def cache_root() -> str:
    """Return this user's cache directory: XDG_CACHE_HOME or ``~/.cache``.

    A relative XDG_CACHE_HOME is ignored (XDG Base Directory Specification 0.8), because each
    working directory would have its own cache. The result is relative only if there is no home
    directory.
    """
    path = os.environ.get("XDG_CACHE_HOME", "")
    return path if os.path.isabs(path) else os.path.join(os.path.expanduser("~"), ".cache")


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """The ``files_max`` most recently used files in the folder ``mdt/<folder>`` of the cache
    directory.

    Safe for threads and processes.
    """

    folder: str
    files_max: int

    def get(self, name: str) -> bytes | None:
        """Return the cached bytes, or None if there is no trusted file with this name."""
        assert _NAME.fullmatch(name), "names are those of files"
        with suppress(OSError), self._opened() as folder:
            descriptor = os.open(
                name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
            )
            with os.fdopen(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode) or not is_ours_alone(status):
                    return None
                content = file.read(OWN_FILE_BYTES_MAX + 1)
            if len(content) > OWN_FILE_BYTES_MAX or content[:_DIGEST_BYTES] != _digest(
                name, content[_DIGEST_BYTES:]
            ):
                return None
            with suppress(OSError):
                os.utime(name, dir_fd=folder, follow_symlinks=False)  # mark as recently used
            return content[_DIGEST_BYTES:]
        return None

    def put(self, name: str, data: bytes) -> None:
        """Cache ``data`` under a name if possible, and delete the least recently used files."""
        assert _NAME.fullmatch(name), "names are those of files"
        if len(data) + _DIGEST_BYTES > OWN_FILE_BYTES_MAX:
            return
        with suppress(OSError), self._opened(make=True) as folder:
            unfinished = _UNFINISHED + secrets.token_hex(16)
            descriptor = os.open(
                unfinished,
                os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o600,
                dir_fd=folder,
            )
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(_digest(name, data) + data)
                os.rename(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                with suppress(OSError):
                    os.unlink(unfinished, dir_fd=folder)
            self._tidy(folder, name)

    def drop(self, name: str) -> None:
        """Delete the file with this name if possible."""
        with suppress(OSError), self._opened() as folder:
            os.unlink(name, dir_fd=folder)

    def _make_root(self, root: str) -> None:
        """Create the user's cache directory if it is absent and its parent belongs to the user."""
        if not os.path.lexists(root):
            _require(is_ours(os.stat(os.path.dirname(root))), root)
            with suppress(FileExistsError):
                os.mkdir(root, 0o700)

    @contextmanager
    def _opened(self, *, make: bool = False) -> Iterator[int]:
        """Open the folder and yield its descriptor. Raises OSError if it is absent or not
        trusted.
        """
        root = cache_root()
        if not os.path.isabs(root) or not hasattr(os, "geteuid"):
            raise FileNotFoundError(root)
        if make:
            self._make_root(root)
        descriptors = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
        try:
            _require(is_ours(os.fstat(descriptors[-1])), root)
            for name in ("mdt", self.folder):
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=descriptors[-1])
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                descriptors.append(os.open(name, flags, dir_fd=descriptors[-1]))
                _require(is_ours(os.fstat(descriptors[-1])), name)
            _require(is_ours_alone(os.fstat(descriptors[-1])), self.folder)
            yield descriptors[-1]
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _tidy(self, folder: int, newest: str) -> None:
        """Delete the least recently used files except ``newest``, and unfinished files of dead
        processes.
        """
        now, used = time.time(), []
        for name in set(os.listdir(folder)) - {newest}:
            with suppress(OSError):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if name.startswith(_UNFINISHED):
                    if abs(now - status.st_mtime) > _UNFINISHED_SECONDS:
                        os.unlink(name, dir_fd=folder)
                elif stat.S_ISREG(status.st_mode) and _NAME.fullmatch(name):
                    used.append((status.st_mtime_ns, name))
        used.sort()
        for _, name in used[: max(0, len(used) + 1 - self.files_max)]:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)


def _require(is_so: bool, name: str) -> None:
    if not is_so:
        raise PermissionError(name)


def is_ours(status: os.stat_result) -> bool:
    """Return True if a file belongs to the user of this process."""
    return status.st_uid == os.geteuid()


def is_ours_alone(status: os.stat_result) -> bool:
    """Return True if a file belongs to the user of this process and nobody else can access it."""
    return is_ours(status) and not status.st_mode & 0o077


def _digest(name: str, data: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + data).digest()
