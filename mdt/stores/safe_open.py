"""Opens paths below a directory without following symbolic links.

A table from somebody else may contain links that lead outside. Linux opens a whole path without
links in one call (openat2, since 5.6). Where that is not available, each directory of the path is
opened in turn.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Callable
from functools import cache

SEARCH = os.O_DIRECTORY | getattr(os, "O_PATH", 0) | os.O_CLOEXEC
"""Flags for a directory that is only passed through. On Linux no read permission is needed."""

_OPENAT2 = 437
"""Number of the system call, the same on every architecture except Alpha."""
_NO_SYMLINKS = 4
_CURRENT_DIRECTORY = -100
"""AT_FDCWD."""
_ABSENT = {errno.ENOSYS, errno.EPERM, errno.E2BIG, errno.EINVAL}
"""Errors of the call if the kernel does not have it or a sandbox forbids it."""


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(root: str, path: str, flags: int) -> int:
    """Open ``path`` below the directory ``root`` and return a descriptor. "" is the root itself.

    The root may be a link or lie behind links. Raises OSError like ``os.open``, with ELOOP if any
    part of ``path`` is a link.
    """
    if not path:
        return os.open(root, flags | os.O_CLOEXEC)
    at = os.open(root, SEARCH)
    try:
        call = _kernel_call()
        return _walk(at, path, flags) if call is None else call(at, path, flags)
    finally:
        os.close(at)


@cache
def _kernel_call() -> Callable[[int, str, int], int] | None:
    """Return a function that calls openat2, or None if it is not available."""
    if not sys.platform.startswith("linux"):
        return None
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    size = ctypes.c_size_t(ctypes.sizeof(_How))

    def call(at: int, path: str, flags: int) -> int:
        options = _How(flags | os.O_CLOEXEC, 0, _NO_SYMLINKS)
        while True:
            descriptor = int(syscall(_OPENAT2, at, os.fsencode(path), ctypes.byref(options), size))
            if descriptor >= 0:
                return descriptor
            code = ctypes.get_errno()
            if code != errno.EINTR:
                raise OSError(code, os.strerror(code), path)

    try:
        os.close(call(_CURRENT_DIRECTORY, ".", SEARCH))
    except OSError as error:
        if error.errno in _ABSENT:
            return None
    return call


def _walk(at: int, path: str, flags: int) -> int:
    """Open ``path`` below the directory ``at``, one component at a time, and return a
    descriptor.
    """
    *directories, name = path.split("/")
    current = os.dup(at)
    try:
        for directory in directories:
            below = _open_at(current, directory, SEARCH)
            os.close(current)
            current = below
        return _open_at(current, name, flags)
    finally:
        os.close(current)


def _open_at(at: int, name: str, flags: int) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    except NotADirectoryError:
        # O_DIRECTORY raises this for a link, too.
        if stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise
