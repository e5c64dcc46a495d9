"""A directory of a local (or mounted) file system.

Durability: an object is flushed (fsync) before its name appears, and its directory afterwards.  ``put_if_absent``
writes a hidden temporary name, then makes a hard link to the final name: link(2) fails if the name exists, and a reader
never sees a part.  Where hard links are not supported it falls back to O_EXCL, which is just as exclusive but may
leave a part of the object behind after a crash.
"""

from __future__ import annotations

import errno
import io
import os
import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from mdt import errors
from mdt.stores.contract import (
    Data,
    Listing,
    Names,
    ObjectInfo,
    Storage,
    check_directory,
    check_path,
    check_range,
    is_between,
    is_temporary,
    missing,
    name_taken,
    parts,
    temporary_name,
)

_SECOND_NS = 1_000_000_000
_TICK_NS = 50_000_000
"""Longer than the tick of the kernel's clock, by which local file systems date changes (at most 10 ms)."""
_COARSE_TICK_NS = 2_500_000_000
"""Where times end on whole seconds: some file systems count only every second one."""

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_HINTS = {
    errno.ENOSPC: "free some space on the disk",
    errno.EDQUOT: "free some space, or ask for a larger quota",
    errno.EACCES: "check the rights of this user on the table's directory",
    errno.EPERM: "check the rights of this user on the table's directory",
    errno.EROFS: "the file system is mounted read-only",
    errno.EIO: "the disk reports a failure; look at the system's log",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


class LocalStorage(Storage):
    """The directory ``root``, which is made on the first write.

    ``durable=False`` leaves out every fsync: for tests and scratch tables that a power cut may destroy.
    """

    def __init__(self, root: str | os.PathLike[str], *, durable: bool = True) -> None:
        self._root = os.path.abspath(os.fspath(root))
        self._durable = durable
        self._directories: set[str] = set()
        self._lock = threading.Lock()
        self.url = Path(self._root).as_uri()

    def __reduce__(self) -> Any:
        """A pickle opens the same directory anew."""
        return _reopened, (self._root, self._durable)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """See :class:`Storage`."""
        with _translated(path), open(self._absolute(path), "rb", buffering=0) as file:
            count = check_range(path, offset, length, os.fstat(file.fileno()).st_size)
            file.seek(offset)
            data = _read_exactly(file, count)
        if len(data) < count:
            raise errors.Corrupt("the object shrank while it was read", path=path, offset=offset + len(data))
        return data

    def open(self, path: str) -> Any:
        """See :class:`Storage`; the file is mapped into memory."""
        with _translated(path):
            return pa.memory_map(self._absolute(path))

    def create(self, path: str, data: Data) -> None:
        """See :class:`Storage`."""
        with _translated(path):
            try:
                self._write_new(self._absolute(path), data)
            except FileExistsError:
                raise name_taken(path) from None

    def put_if_absent(self, path: str, data: Data) -> bool:
        """See :class:`Storage`."""
        target = self._absolute(path)
        if os.path.lexists(target):
            return False
        temporary = self._absolute(temporary_name(path, self.random_hex(8)))
        with _translated(path):
            self._write_new(temporary, data, sync_directory=False)
            try:
                created = self._link(temporary, target, data)
            finally:
                with suppress(OSError):
                    os.unlink(temporary)
            self._sync_directory(os.path.dirname(target))
        return created

    def replace(self, path: str, data: Data) -> None:
        """See :class:`Storage`."""
        target = self._absolute(path)
        temporary = self._absolute(temporary_name(path, self.random_hex(8)))
        with _translated(path):
            self._write_new(temporary, data, sync_directory=False)
            try:
                os.replace(temporary, target)
            except OSError:
                os.unlink(temporary)
                raise
            self._sync_directory(os.path.dirname(target))

    def delete(self, path: str) -> None:
        """See :class:`Storage`."""
        with _translated(path), suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self._absolute(path))

    def list(self, prefix: str) -> Listing:
        """See :class:`Storage`; links to directories are not followed."""
        with _translated(prefix):
            return sorted(self._walk(check_directory(prefix), recursive=True), key=lambda info: info.path)

    def list_dir(self, prefix: str, *, after: str = "", before: str = "") -> Listing:
        """See :class:`Storage`; what stands outside of the bounds is not even asked for its size."""
        with _translated(prefix):
            found = self._walk(check_directory(prefix), recursive=False, after=after, before=before)
            return sorted(found, key=lambda info: info.path)

    def children(self, prefix: str) -> Names:
        """See :class:`Storage`."""
        with _translated(prefix), suppress(FileNotFoundError, NotADirectoryError):
            directory = check_directory(prefix)
            return sorted(name for name in os.listdir(f"{self._root}/{directory}") if not is_temporary(name))
        return []

    def is_file(self) -> bool:
        """See :class:`Storage`."""
        return os.path.isfile(self._root)

    def neighbours(self) -> Names:
        """See :class:`Storage`."""
        with suppress(OSError), os.scandir(os.path.dirname(self._root)) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
        return []

    def stamp(self, path: str) -> Hashable | None:
        """See :class:`Storage`; None for a while after a change, since a second one in the same tick would not show."""
        with _translated(path):
            try:
                status = os.stat(self._absolute(path))
            except (FileNotFoundError, NotADirectoryError):
                return "absent"
        changed = status.st_mtime_ns
        tick = _TICK_NS if changed % _SECOND_NS else _COARSE_TICK_NS
        if time.time_ns() - changed < tick:
            return None
        return (status.st_ino, status.st_size, changed)

    def size(self, path: str) -> int | None:
        """See :class:`Storage`."""
        with _translated(path):
            try:
                return os.stat(self._absolute(path)).st_size
            except (FileNotFoundError, NotADirectoryError):
                return None

    def uri(self, path: str) -> str:
        """See :class:`Storage`."""
        return f"file://{self._root}/{path}" if path else f"file://{self._root}"

    def local_path(self, path: str) -> str | None:
        """See :class:`Storage`."""
        return self._absolute(path) if path else self._root

    def _absolute(self, path: str) -> str:
        return f"{self._root}/{check_path(path)}"

    def _write_new(self, target: str, data: Data, *, sync_directory: bool = True) -> None:
        directory = os.path.dirname(target)
        self._make_directory(directory)
        try:
            descriptor = _open_new(target)
        except FileNotFoundError:
            # Somebody removed a directory that we had made: make it again, once.
            with self._lock:
                self._directories.clear()
            self._make_directory(directory)
            descriptor = _open_new(target)
        try:
            self._write(descriptor, data)
        except BaseException:
            with suppress(OSError):
                os.unlink(target)
            raise
        if sync_directory:
            self._sync_directory(directory)

    def _write(self, descriptor: int, data: Data) -> None:
        with open(descriptor, "wb") as file:
            file.writelines(parts(data))
            file.flush()
            if self._durable:
                os.fsync(descriptor)

    def _link(self, temporary: str, target: str, data: Data) -> bool:
        try:
            os.link(temporary, target)
        except FileExistsError:
            # On NFS the reply to a link that was made can be lost; two names for our file say that it was (open(2)).
            return os.stat(temporary).st_nlink == 2
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return self._create_exclusively(target, data)
        return True

    def _create_exclusively(self, target: str, data: Data) -> bool:
        try:
            self._write_new(target, data, sync_directory=False)
        except FileExistsError:
            return False
        return True

    def _make_directory(self, directory: str) -> None:
        """Make ``directory`` and its parents so that they survive a crash; remembered, so usually free."""
        if directory in self._directories:
            return
        parent = os.path.dirname(directory)
        if directory != self._root:
            self._make_directory(parent)
            with suppress(FileExistsError):
                os.mkdir(directory)
        else:
            try:
                os.makedirs(directory, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise errors.Invalid(
                    f"{directory} cannot be a directory: a file is in the way", hint="choose another path"
                ) from None
        self._sync_directory(parent)
        with self._lock:
            self._directories.add(directory)

    def _sync_directory(self, directory: str) -> None:
        if not self._durable:
            return
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _walk(self, prefix: str, *, recursive: bool, after: str = "", before: str = "") -> Iterator[ObjectInfo]:
        pending = [prefix]
        while pending:
            directory = pending.pop()
            try:
                with os.scandir(f"{self._root}/{directory}") as entries:
                    children = list(entries)
            except (FileNotFoundError, NotADirectoryError):
                continue
            for entry in children:
                path = f"{directory}/{entry.name}" if directory else entry.name
                if not is_between(path, after, before):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    pending.extend([path] if recursive else [])
                elif not is_temporary(path):
                    yield from _info(path, entry)


def _info(path: str, entry: os.DirEntry[str]) -> Iterator[ObjectInfo]:
    """Yield what is known of a file; nothing if it has vanished since it was listed, or is a link to a directory."""
    with suppress(FileNotFoundError):
        if entry.is_file():
            status = entry.stat()
            yield ObjectInfo(path, status.st_size, status.st_mtime_ns // 1000)


def _open_new(target: str) -> int:
    return os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)


def _read_exactly(file: io.FileIO, count: int) -> bytes:
    """Return ``count`` bytes, or fewer at the end; one system call unless the read is huge (Linux stops at 2 GiB)."""
    data = file.read(count) or b""
    while len(data) < count and (more := file.read(count - len(data))):
        data += more
    return data


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Turn what the operating system says into our kinds of error."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise missing(path) from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise errors.Invalid(
                f"the name {path[:80]!r}… is too long for this file system",
                hint="partition by shorter values; most file systems allow 255 bytes for each part of a path",
            ) from error
        hint = _HINTS.get(error.errno or 0, "")
        raise errors.Unavailable(f"the file system failed on {path!r}: {error}", hint=hint) from error


def _reopened(root: str, durable: bool) -> LocalStorage:
    return LocalStorage(root, durable=durable)
