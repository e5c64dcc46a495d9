"""Files in the user's cache directory that nobody but the user may have written: what is kept there
is code, and is run.

A cache and nothing else: it may be deleted at any time, and where it cannot be had, or anything
about it is odd, there is nothing in it. A file is believed if it says the digest of its name and
bytes, and if nobody but this process's user could have put it there:

* The cache directory, ``mdt`` in it and the folder belong to the user, and the latter two are no
  links.
* The folder, and the file, which is a plain one, can be reached by nobody else (modes 0700 and
  0600).

The digest finds damage.  It is no signature: whoever can write files of the user can run code of
the user without us.  Folders are opened one beneath the other and files beneath these, so what was
checked is what is read.  Files come under their names when they are complete.
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
"""Nobody writes a file of some megabytes for so long: who began it is dead."""
_DIGEST_BYTES = 32


def cache_root() -> str:
    """Return this user's cache directory, as the environment says; a path that is not absolute only
    where there is no home.

    A relative XDG_CACHE_HOME is none (XDG Base Directory Specification 0.8): else each working
    directory would have a cache of its own.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    return given if os.path.isabs(given) else os.path.join(os.path.expanduser("~"), ".cache")


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """At most ``files_max`` files in the folder ``mdt/<folder>`` of the cache directory, those that
    were used last.  Safe for threads and processes.
    """

    folder: str
    files_max: int

    def get(self, name: str) -> bytes | None:
        """Return what was kept under a name; None where there is nothing to be believed."""
        assert _NAME.fullmatch(name), "names are those of files"
        with suppress(OSError), self._opened() as folder:
            descriptor = os.open(
                name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
            )
            with os.fdopen(descriptor, "rb") as file:
                told = os.fstat(descriptor)
                if not stat.S_ISREG(told.st_mode) or not is_ours_alone(told):
                    return None
                found = file.read(OWN_FILE_BYTES_MAX + 1)
            if len(found) > OWN_FILE_BYTES_MAX or found[:_DIGEST_BYTES] != _digest(
                name, found[_DIGEST_BYTES:]
            ):
                return None
            with suppress(OSError):
                os.utime(name, dir_fd=folder, follow_symlinks=False)  # it was used
            return found[_DIGEST_BYTES:]
        return None

    def put(self, name: str, data: bytes) -> None:
        """Keep ``data`` under a name if it is possible, and drop files that others were used
        after.
        """
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
        """Forget the file of a name if it is possible."""
        with suppress(OSError), self._opened() as folder:
            os.unlink(name, dir_fd=folder)

    def _make_root(self, root: str) -> None:
        """Make the user's cache directory if there is none; not in somebody else's home, where it
        would be in his way.
        """
        if not os.path.lexists(root):
            _require(is_ours(os.stat(os.path.dirname(root))), root)
            with suppress(FileExistsError):
                os.mkdir(root, 0o700)

    @contextmanager
    def _opened(self, *, make: bool = False) -> Iterator[int]:
        """Open the folder, and close it.  Raises OSError where it is not to be had or not to be
        believed.
        """
        root = cache_root()
        if not os.path.isabs(root) or not hasattr(os, "geteuid"):
            raise FileNotFoundError(root)
        if make:
            self._make_root(root)
        opened = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
        try:
            _require(is_ours(os.fstat(opened[-1])), root)
            for name in ("mdt", self.folder):
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=opened[-1])
                way = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                opened.append(os.open(name, way, dir_fd=opened[-1]))
                _require(is_ours(os.fstat(opened[-1])), name)
            _require(is_ours_alone(os.fstat(opened[-1])), self.folder)
            yield opened[-1]
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _tidy(self, folder: int, newest: str) -> None:
        """Drop files that others were used after, ``newest`` never, and what dead processes left
        unfinished.
        """
        now, used = time.time(), []
        for name in set(os.listdir(folder)) - {newest}:
            with suppress(OSError):
                told = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if name.startswith(_UNFINISHED):
                    if abs(now - told.st_mtime) > _UNFINISHED_SECONDS:
                        os.unlink(name, dir_fd=folder)
                elif stat.S_ISREG(told.st_mode) and _NAME.fullmatch(name):
                    used.append((told.st_mtime_ns, name))
        used.sort()
        for _, name in used[: max(0, len(used) + 1 - self.files_max)]:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)


def _require(is_so: bool, name: str) -> None:
    if not is_so:
        raise PermissionError(name)


def is_ours(told: os.stat_result) -> bool:
    """Return whether a file belongs to the user of this process."""
    return told.st_uid == os.geteuid()


def is_ours_alone(told: os.stat_result) -> bool:
    """Return whether a file belongs to the user of this process, and nobody else can reach it."""
    return is_ours(told) and not told.st_mode & 0o077


def _digest(name: str, data: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + data).digest()
