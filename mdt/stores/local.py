"""Storage in a directory of a local or mounted file system.

Durability: an object is flushed (fsync) before its name appears, and its directory afterwards.
Objects that need not survive a power cut are not flushed.

``put_if_absent`` writes a hidden temporary file and hard-links it to the final name. link(2) fails
if the name exists, and a reader never sees a partial object. On file systems without hard links it
falls back to O_EXCL. That is equally exclusive, but a crash may leave a part of the object.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import time
from collections.abc import Callable, Container, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import pyarrow as pa

from mdt import errors
from mdt.forking import OwnLock
from mdt.session import in_session
from mdt.stores.concurrent_io import StorageThreads
from mdt.stores.contract import (
    Data,
    Listing,
    Names,
    ObjectInfo,
    Storage,
    check_directory,
    check_path,
    check_range,
    check_size,
    is_between,
    is_temporary,
    missing,
    name_taken,
    parts,
    temporary_name,
)
from mdt.stores.safe_open import SEARCH, open_beneath

T = TypeVar("T")

_SECOND_NS = 1_000_000_000
_TICK_NS = 50_000_000
"""Longer than the tick (at most 10 ms) of the kernel clock that local file systems use for
modification times.
"""
_COARSE_TICK_NS = 2_500_000_000
"""The same for file systems with times in whole seconds. FAT counts only even seconds."""

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
"""Opening a pipe must not wait for a writer."""
_LOOK = getattr(os, "O_PATH", _READ) | os.O_NOFOLLOW
"""Only to read the status of a file."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_NO_FILE = {errno.ELOOP: "a symbolic link", errno.ENXIO: "a socket", errno.ENODEV: "a device"}
_HINTS = {
    errno.ENOSPC: "free some space on the disk",
    errno.EDQUOT: "free some space, or ask for a larger quota",
    errno.EACCES: "check this user's permissions on the table's directory",
    errno.EPERM: "check this user's permissions on the table's directory",
    errno.EROFS: "the file system is mounted read-only",
    errno.EIO: "the disk reported an error; check the system log",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}
_REFUSALS = {errno.EACCES, errno.EPERM, errno.EROFS}
"""Errors that the same call will meet again."""


class LocalStorage(Storage):
    """The directory ``root``, created on the first write.

    Symbolic links below the root are not followed; the root itself may be a link or lie behind
    links. A link, pipe, device or directory in the place of a file is not an object. It is neither
    listed nor deleted, and reading it raises ``errors.Corrupt``. ``durable=False`` skips every
    fsync, for tests and scratch tables that a power cut may destroy.

    >>> storage = LocalStorage("trips")
    >>> storage.put_if_absent("log/7", b"commit"), storage.put_if_absent("log/7", b"late")
    (True, False)
    >>> storage.children("log")
    ['7']
    """

    def __init__(self, root: str | os.PathLike[str], *, durable: bool = True) -> None:
        try:
            self._root = os.path.abspath(os.fspath(root))
        except FileNotFoundError:
            raise errors.Invalid(
                f"the path {root!s} is relative, and the working directory was deleted",
                hint="give an absolute path",
            ) from None
        self.is_durable = durable
        self._directories: set[str] = set()
        self._lock = OwnLock()
        # A plain path, because Spark does not decode percent signs in a URL as open_storage does.
        self.url = self._root

    def __reduce__(self) -> Any:
        """Pickle the path. Unpickling opens the same directory."""
        return _open_local, (self._root, self.is_durable)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """See :class:`Storage`."""
        with _translated(path), open(self._open_file(path), "rb", buffering=0) as file:
            count = check_range(path, offset, length, os.fstat(file.fileno()).st_size)
            file.seek(offset)
            return _read_exactly(path, file, count)

    def read_whole(self, path: str, bytes_max: int) -> bytes:
        """See :class:`Storage`."""
        with _translated(path), open(self._open_file(path), "rb", buffering=0) as file:
            return _read_exactly(
                path, file, check_size(path, os.fstat(file.fileno()).st_size, bytes_max)
            )

    def open(self, path: str) -> Any:
        """See :class:`Storage`. The file is mapped into memory."""
        with _translated(path):
            descriptor = self._open_file(path)
            try:
                # Arrow opens by name, and the name may refer to another file by now.
                file = pa.memory_map(self._absolute(path))
                if not os.path.samestat(os.fstat(descriptor), os.fstat(file.fileno())):
                    file.close()
                    raise errors.Corrupt(
                        "the object was replaced while it was being opened", path=path
                    )
                return file
            finally:
                os.close(descriptor)

    def create(self, path: str, data: Data) -> None:
        """See :class:`Storage`."""
        with _translated(path), self._directory_of(path) as (directory, name):
            try:
                self._write_new(directory, name, data)
            except FileExistsError:
                raise name_taken(path) from None
            self._sync(directory)

    def put_if_absent(self, path: str, data: Data) -> bool:
        """See :class:`Storage`."""
        with _translated(path), self._directory_of(path) as (directory, name):
            if _status(directory, name) is not None:
                return False
            temporary = temporary_name(name, self.random_hex(8))
            self._write_new(directory, temporary, data)
            try:
                created = self._link(directory, temporary, name, data)
            finally:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=directory)
            self._sync(directory)
        return created

    def put_passing(self, path: str, data: Data) -> bool:
        """See :class:`Storage`. An empty object is complete as soon as its name exists, so nothing
        is flushed.
        """
        if parts(data):
            return self.put_if_absent(path, data)
        with _translated(path), self._directory_of(path, lasts=False) as (directory, name):
            try:
                os.close(os.open(name, _NEW, 0o666, dir_fd=directory))
            except FileExistsError:
                return False
        return True

    def begin_storing(self, act: Callable[[], T]) -> Callable[[], T]:
        """See :class:`Storage`. Several concurrent flushes take little longer than one."""
        return _flushing().begin(act) if self.is_durable else self.begin(act)

    def replace(self, path: str, data: Data) -> None:
        """See :class:`Storage`."""
        with _translated(path), self._directory_of(path) as (directory, name):
            temporary = temporary_name(name, self.random_hex(8))
            self._write_new(directory, temporary, data)
            try:
                os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            except OSError:
                os.unlink(temporary, dir_fd=directory)
                raise
            self._sync(directory)

    def delete(self, path: str) -> None:
        """See :class:`Storage`. Links, directories and devices are not deleted."""
        parent, _, name = check_path(path).rpartition("/")
        with _translated(path), self._opened(parent, SEARCH) as directory:
            status = None if directory is None else _status(directory, name)
            if status is not None and stat.S_ISREG(status.st_mode):
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=directory)

    def list(self, prefix: str) -> Listing:
        """See :class:`Storage`."""
        with _translated(prefix):
            return self._walk(check_directory(prefix), recursive=True)

    def list_dir(
        self, prefix: str, *, after: str = "", before: str = "", skip: Container[str] = frozenset()
    ) -> Listing:
        """See :class:`Storage`. Skips the stat call for files that are filtered out."""
        with _translated(prefix):
            return self._walk(
                check_directory(prefix), recursive=False, after=after, before=before, skip=skip
            )

    def children(self, prefix: str) -> Names:
        """See :class:`Storage`."""
        with _translated(prefix), self._opened(check_directory(prefix)) as descriptor:
            names = [] if descriptor is None else os.listdir(descriptor)
        return sorted(name for name in names if not is_temporary(name))

    def drop_directories(self, prefix: str, before: str, *, start: str = "") -> None:
        """See :class:`Storage`."""
        directory = check_directory(prefix)
        with _translated(prefix), self._opened(directory) as descriptor:
            names = [] if descriptor is None else os.listdir(descriptor)
            old = [name for name in names if start <= name < before]
            for name in old:
                with suppress(OSError):  # not empty, or not a directory
                    os.rmdir(name, dir_fd=descriptor)
        with self._lock:
            self._directories.difference_update(f"{directory}/{name}".lstrip("/") for name in old)

    def is_file(self) -> bool:
        """See :class:`Storage`."""
        return os.path.isfile(self._root)

    def neighbours(self) -> Names:
        """See :class:`Storage`."""
        with suppress(OSError), os.scandir(os.path.dirname(self._root)) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
        return []

    def stamp(self, path: str) -> Hashable | None:
        """See :class:`Storage`. None shortly after a change, since a second change within the same
        clock tick would not be visible.
        """
        status = self._look(path)
        if status is None:
            return "absent"
        changed = status.st_mtime_ns
        tick = _TICK_NS if changed % _SECOND_NS else _COARSE_TICK_NS
        if time.time_ns() - changed < tick:
            return None
        return (status.st_ino, status.st_size, changed)

    def size(self, path: str) -> int | None:
        """See :class:`Storage`."""
        status = self._look(path)
        return None if status is None else _require_file(path, status).st_size

    def uri(self, path: str) -> str:
        """See :class:`Storage`."""
        return f"file://{self._root}/{path}" if path else f"file://{self._root}"

    def is_at(self, location: str) -> bool:
        """See :class:`Storage`."""
        return os.path.realpath(location) == os.path.realpath(self._root)

    def local_path(self, path: str) -> str | None:
        """See :class:`Storage`."""
        return self._absolute(path) if path else self._root

    def _absolute(self, path: str) -> str:
        return f"{self._root}/{check_path(path)}"

    def _open_file(self, path: str) -> int:
        """Open an object and return its descriptor. Raises Corrupt if it is not a file."""
        descriptor = open_beneath(self._root, check_path(path), _READ)
        try:
            _require_file(path, os.fstat(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _look(self, path: str) -> os.stat_result | None:
        """Return the status of a file or directory, or None if it is absent."""
        with _translated(path):
            try:
                descriptor = open_beneath(self._root, check_path(path), _LOOK)
            except (FileNotFoundError, NotADirectoryError):
                return None
            try:
                return os.fstat(descriptor)
            finally:
                os.close(descriptor)

    @contextmanager
    def _opened(self, directory: str, flags: int = _DIRECTORY) -> Iterator[int | None]:
        """Yield a descriptor of a directory, or None if it is absent or behind a link."""
        descriptor = None
        try:
            descriptor = open_beneath(self._root, directory, flags)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
        try:
            yield descriptor
        finally:
            if descriptor is not None:
                os.close(descriptor)

    @contextmanager
    def _directory_of(self, path: str, *, lasts: bool = True) -> Iterator[tuple[int, str]]:
        """Yield a descriptor of the directory of ``path``, created if necessary, and the file name.

        Args:
            lasts: True if the directory must survive a crash.
        """
        parent, _, name = check_path(path).rpartition("/")
        self._make_directory(parent, lasts=lasts)
        try:
            descriptor = open_beneath(self._root, parent, _DIRECTORY)
        except FileNotFoundError:
            # A directory that we created has been removed: create it again, once.
            with self._lock:
                self._directories.clear()
            self._make_directory(parent, lasts=lasts)
            descriptor = open_beneath(self._root, parent, _DIRECTORY)
        try:
            yield descriptor, name
        finally:
            os.close(descriptor)

    def _write_new(self, directory: int, name: str, data: Data) -> None:
        descriptor = os.open(name, _NEW, 0o666, dir_fd=directory)
        try:
            with open(descriptor, "wb") as file:
                file.writelines(parts(data))
                file.flush()
                self._sync(descriptor)
        except BaseException:
            with suppress(OSError):
                os.unlink(name, dir_fd=directory)
            raise

    def _link(self, directory: int, temporary: str, name: str, data: Data) -> bool:
        try:
            os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except FileExistsError:
            # On NFS the reply to a successful link can be lost. A link count of 2 shows that it
            # succeeded (open(2)).
            return os.stat(temporary, dir_fd=directory).st_nlink == 2
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            try:
                self._write_new(directory, name, data)
            except FileExistsError:
                return False
        return True

    def _make_directory(self, directory: str, *, lasts: bool) -> None:
        """Make ``directory`` and its parents, so that they survive a crash if it ``lasts``.
        Directories that last are remembered, and usually cost nothing.
        """
        if directory in self._directories:
            return
        if directory:
            parent, _, name = directory.rpartition("/")
            self._make_directory(parent, lasts=lasts)
            descriptor = open_beneath(self._root, parent, _DIRECTORY)
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=descriptor)
        else:
            try:
                os.makedirs(self._root, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise errors.Invalid(
                    f"the directory {self._root} cannot be created: a file is in the way",
                    hint="choose another path",
                ) from None
            descriptor = os.open(os.path.dirname(self._root), _DIRECTORY)
        try:
            if lasts:
                self._sync(descriptor)
        finally:
            os.close(descriptor)
        if lasts:
            with self._lock:
                self._directories.add(directory)

    def _sync(self, descriptor: int) -> None:
        if self.is_durable:
            os.fsync(descriptor)

    def _walk(
        self,
        prefix: str,
        *,
        recursive: bool,
        after: str = "",
        before: str = "",
        skip: Container[str] = frozenset(),
    ) -> Listing:
        infos, pending = Listing(), [prefix]
        while pending:
            directory = pending.pop()
            with self._opened(directory) as descriptor:
                if descriptor is None:
                    continue
                with os.scandir(descriptor) as entries:
                    children = [*entries]
                for entry in children:
                    path = f"{directory}/{entry.name}" if directory else entry.name
                    if path in skip or not is_between(path, after, before):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.extend([path] if recursive else [])
                    elif not is_temporary(path):
                        infos += _info(path, entry)
        return sorted(infos, key=lambda info: info.path)


def _info(path: str, entry: os.DirEntry[str]) -> Iterator[ObjectInfo]:
    """Yield the path, size and time of a file, or nothing if it has vanished or is not a file."""
    with suppress(FileNotFoundError):
        if entry.is_file(follow_symlinks=False):
            status = entry.stat(follow_symlinks=False)
            yield ObjectInfo(path, status.st_size, status.st_mtime_ns // 1000)


def _status(directory: int, name: str) -> os.stat_result | None:
    """Return the status of a name, of a link itself rather than its target, or None if it is
    absent.
    """
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _require_file(path: str, status: os.stat_result) -> os.stat_result:
    """Return ``status`` if it is that of a regular file. Raises Corrupt otherwise."""
    if not stat.S_ISREG(status.st_mode):
        raise _no_file(path, _KINDS.get(stat.S_IFMT(status.st_mode), "something else"))
    return status


def _no_file(path: str, kind: str) -> errors.Corrupt:
    return errors.Corrupt(
        "this is not a regular file, and links are not followed below the table's root",
        path=path,
        expected="a file",
        got=kind,
        hint="mdt does not create it: find out who did, and put the file itself there",
    )


def _read_exactly(path: str, file: io.FileIO, count: int) -> bytes:
    """Return ``count`` bytes, usually with one system call (Linux reads at most 2 GiB per call)."""
    data = file.read(count) or b""
    while len(data) < count and (rest := file.read(count - len(data))):
        data += rest
    if len(data) < count:
        raise errors.Corrupt("the object shrank while it was read", path=path, offset=file.tell())
    return data


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Convert errors of the operating system to the errors of ``mdt.errors``."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise missing(path) from None
    except OSError as error:
        if error.errno in _NO_FILE:
            raise _no_file(path, _NO_FILE[error.errno]) from None
        if error.errno == errno.ENAMETOOLONG:
            raise errors.Invalid(
                f"the path of {path[:80]!r}… is too long for this file system",
                hint=(
                    "shorten the path of the table, or partition by shorter values; most file"
                    " systems allow 255 bytes for each part of a path"
                ),
            ) from error
        hint = _HINTS.get(error.errno or 0, "")
        failure = errors.Unavailable(f"the file system failed on {path!r}: {error}", hint=hint)
        failure.retryable = error.errno not in _REFUSALS
        raise failure from error


@in_session
def _flushing() -> StorageThreads:
    """Return the threads that wait for disks, shared by all local storages of the process."""
    return StorageThreads()


def _open_local(root: str, durable: bool) -> LocalStorage:
    return LocalStorage(root, durable=durable)
