"""The storage contract, and helpers that all storages share.

Paths are relative to the root of the table, separated by "/", without empty, "." or ".."
components. Objects are never appended to: they are created once, replaced as a whole, or deleted.
The clock and randomness are part of the contract, which lets a test repeat a whole history.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import unquote

import pyarrow as pa

from mdt import errors
from mdt.limits import FRAME_BYTES_MAX, OPERATIONS_AT_ONCE_MAX
from mdt.stores import clock

if TYPE_CHECKING:
    from mdt.hudi.read.key_indexes import KeyIndexes

T = TypeVar("T")

Buffer: TypeAlias = bytes | bytearray | memoryview | pa.Buffer
"""A buffer in memory; it is not copied."""
Data: TypeAlias = Buffer | Sequence[Buffer]
"""Data to write: one buffer, or several that are stored one after the other."""

TEMPORARY_SUFFIX = ".mdt-tmp"
"""Suffix of the names of unfinished objects. Listings hide them."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """A stored object.

    Attributes:
        path: Path from the root.
        size: Size in bytes.
        modified_us: Modification time in UTC microseconds.
    """

    path: str
    size: int
    modified_us: int


Listing = list[ObjectInfo]
"""Objects, sorted by path."""
Names = list[str]
"""Names without directories, sorted."""

Answers = list[Any]
"""Results of several operations, in the order of the operations."""


class Storage(ABC):
    """Objects under names, with one atomic operation: :meth:`put_if_absent`. Thread-safe.

    Every method raises ``errors.Invalid`` for a path that could leave the root, and
    ``errors.Unavailable`` if the storage fails. After ``Unavailable`` a change may or may not have
    been made.
    """

    url: str
    """The root, in a form that ``open_storage`` accepts."""

    public_options: Mapping[str, str] = MappingProxyType({})
    """``storage_options`` without secrets. Another process needs them to open the same root."""

    is_remote: bool = False
    """True if each read costs a request, which makes a cache on the local disk worthwhile."""

    is_durable: bool = True
    """True if written objects survive a power cut.

    Set it to False on a local directory to skip fsync.
    """

    is_imported: bool = False
    """True if the objects below ``.hoodie/.mdt/`` describe a table of other writers, in memory."""

    is_unread: bool = False
    """True if ``is_imported``, and the files of the table were not opened yet."""

    left_out: int = 0
    """Number of file groups of a table of other writers that have no row of a filter, and were left
    out.
    """

    computes_keys: bool = True
    """False for a table of other writers whose record keys are not texts of the key columns."""

    knows_changes: bool = True
    """False if the records of the log contain the files that changed, but not the rows."""

    def key_indexes(self, seq: int) -> KeyIndexes | None:
        """Return Hudi's own indexes of record keys at commit number ``seq``, or None if they do not
        exist or describe another state. Only tables of other writers have them.
        """
        return None

    conditional_put: bool = True
    """True if :meth:`put_if_absent` is atomic here."""

    @abstractmethod
    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return ``length`` bytes from ``offset``, or everything after ``offset`` if ``length`` is
        None.

        Raises ``errors.Missing`` for an absent object, and ``errors.Corrupt`` if it ends before
        offset + length.
        """

    @abstractmethod
    def open(self, path: str) -> Any:
        """Open an object for random access and return a ``pa.NativeFile``, which the caller closes.

        Raises ``errors.Missing``.
        """

    @abstractmethod
    def create(self, path: str, data: Data) -> None:
        """Store a new object under a name that nobody else uses. It is durable on return.

        A crash may leave a part of the object. Raises ``errors.Internal`` if the name exists.
        """

    @abstractmethod
    def put_if_absent(self, path: str, data: Data) -> bool:
        """Store an object unless the name is taken. The write is atomic, and durable on return.

        Returns False if the object exists. On a network, the existing object may come from an
        earlier try of this very call whose reply was lost. A caller that must know reads the object
        back.
        """

    def put_passing(self, path: str, data: Data) -> bool:
        """Store an object like :meth:`put_if_absent`, but without durability: a power cut may lose
        it.
        """
        return self.put_if_absent(path, data)

    def read_with_version(self, path: str, bytes_max: int) -> tuple[bytes, str] | None:
        """Return a whole object and its version, or None if it is absent.

        Only object stores have versions: see :meth:`require_versions`. Raises ``errors.Corrupt`` if
        the object is larger than ``bytes_max`` bytes.
        """
        raise no_versions(self.url)

    def replace_version(self, path: str, data: Data, version: str) -> str | None:
        """Replace an object if it still has ``version``. Return the new version, or None if
        another writer has replaced it.
        """
        raise no_versions(self.url)

    has_versions: bool = False
    """True if objects have versions, which a replacement can require."""

    def require_versions(self) -> None:
        """Raise ``errors.Unsupported`` if objects have no versions here."""
        if not self.has_versions:
            raise no_versions(self.url)

    @abstractmethod
    def replace(self, path: str, data: Data) -> None:
        """Store an object, replacing any existing object. Readers see the old bytes or the new
        bytes.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete an object. An absent object is not an error."""

    @abstractmethod
    def list(self, prefix: str) -> Listing:
        """Return all objects below the directory ``prefix`` ("" = the root), recursively, sorted by
        path.
        """

    @abstractmethod
    def list_dir(
        self, prefix: str, *, after: str = "", before: str = "", skip: Container[str] = frozenset()
    ) -> Listing:
        """Return the objects directly in the directory ``prefix``, sorted by path.

        Args:
            after, before: Exclusive bounds of the paths. An empty bound has no effect.
            skip: Paths to leave out. Skipped entries cost almost nothing.
        """

    @abstractmethod
    def children(self, prefix: str) -> Names:
        """Return the names of the objects and directories directly in ``prefix``, sorted."""

    def is_file(self) -> bool:
        """Return True if the root is a file instead of a directory."""
        return False

    def neighbours(self) -> Names:
        """Return the names of the directories next to the root, for messages.

        Returns an empty list where such a listing is not cheap.
        """
        return []

    def stamp(self, path: str) -> Hashable | None:
        """Return a value that changes whenever the object or directory ``path`` changes.

        Returns None if the caller has to compare contents itself. A directory changes when an
        object directly in it is created, replaced or deleted. An absent path has a stamp too.
        """
        return None

    @abstractmethod
    def size(self, path: str) -> int | None:
        """Return the size of an object in bytes, or None if it is absent."""

    def begin(self, act: Callable[[], T]) -> Callable[[], T]:
        """Start ``act`` and return a function that waits for its result. Call that function once.

        By default ``act`` runs immediately, and its errors are raised here. A storage with slow
        operations runs it in another thread.
        """
        result = act()
        return lambda: result

    def begin_storing(self, act: Callable[[], T]) -> Callable[[], T]:
        """Start ``act``, which stores objects, like :meth:`begin`.

        A local storage uses another thread for this alone, because flushing to disk is its only
        slow operation.
        """
        return self.begin(act)

    def together(self, *acts: Callable[[], Any]) -> Answers:
        """Run independent ``acts`` and return their results in order.

        They start in this order and may end in any order. An error is raised after all started
        operations have ended.
        """
        return wait_all([self.begin(act) for act in acts])

    def each(self, acts: Iterable[Callable[[], T]]) -> Iterator[T]:
        """Run independent ``acts`` and yield their results in order.

        On a remote storage they run in concurrent batches, elsewhere one at a time.
        """
        remaining = iter(acts)
        while batch := [*islice(remaining, OPERATIONS_AT_ONCE_MAX if self.is_remote else 1)]:
            yield from self.together(*batch)

    def __reduce__(self) -> Any:
        """Pickle the storage if another process can open the same root.

        Raises ``errors.Unsupported`` otherwise.
        """
        raise errors.Unsupported(
            f"the storage {self.url} exists in this process only, so it and its tables cannot be"
            " pickled",
            hint="keep the table on a disk or in an object store",
        )

    def now_us(self) -> int:
        """Return the time in UTC microseconds, from this machine's clock unless a storage has its
        own.
        """
        return clock.now_us()

    def random_hex(self, bytes: int) -> str:
        """Return ``bytes`` random bytes as twice as many hexadecimal digits."""
        return os.urandom(bytes).hex()

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        time.sleep(seconds)

    @abstractmethod
    def uri(self, path: str) -> str:
        """Return the name of the object for Hadoop's ``Path(String)``, without percent-encoding."""

    @property
    def location(self) -> str:
        """The root as the metadata of other formats name it, without percent-encoding."""
        return unquote(self.url) if self.is_remote else self.url

    def is_at(self, location: str) -> bool:
        """Return True if ``location`` is the root."""
        return location == self.location

    def local_path(self, path: str) -> str | None:
        """Return the absolute path on the local file system, or None if the object is not a local
        file.
        """
        return None

    def read_whole(self, path: str, bytes_max: int) -> bytes:
        """Return the whole object.

        Raises ``errors.Corrupt`` without reading it if it is larger than ``bytes_max`` bytes.
        """
        size = self.size(path)
        if size is None:
            raise missing(path)
        return self.read(path, 0, check_size(path, size, bytes_max))

    def read_if_exists(self, path: str, bytes_max: int = FRAME_BYTES_MAX) -> bytes | None:
        """Return the whole object like :meth:`read_whole`, or None if it is absent."""
        try:
            return self.read_whole(path, bytes_max)
        except errors.Missing:
            return None

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete objects. Absent objects are not an error."""
        for path in paths:
            self.delete(path)

    def drop_directories(self, prefix: str, before: str, *, start: str = "") -> None:
        """Remove the empty directories directly in ``prefix`` whose names sort before ``before``,
        and not before ``start``.

        Has no effect on storages without directories. No writer may still use these directories.
        """
        check_directory(prefix)

    def require_conditional_put(self) -> None:
        """Raise ``errors.Unsupported`` if concurrent writers could overwrite each other's commits.

        Called before a table is opened for writing.
        """
        if not self.conditional_put:
            raise errors.Unsupported(
                f"the storage {self.url} does not support conditional puts, so concurrent commits"
                " could overwrite each other",
                hint="write to a local disk, S3, GCS or Azure; reading works everywhere",
            )


def wait_all(waiting: Sequence[Callable[[], T]]) -> list[T]:
    """Call all functions in ``waiting`` and return their results.

    If some fail, the first error is raised after all have ended.

    >>> wait_all([lambda: 1, lambda: 2])
    [1, 2]
    """
    results: list[T] = []
    first_error: BaseException | None = None
    for wait in waiting:
        try:
            results.append(wait())
        except BaseException as error:  # noqa: BLE001 - wait for the rest first
            first_error = first_error or error
    if first_error is not None:
        raise first_error
    return results


def is_path(path: str) -> bool:
    """Return True if a path names an object below the root and cannot leave it.

    >>> [is_path(path) for path in ("log/7", "../7", "a//b")]
    [True, False, False]
    """
    return "\0" not in path and {"", ".", ".."}.isdisjoint(path.split("/"))


def check_path(path: str) -> str:
    """Return ``path`` if it cannot leave the root. Raises ``errors.Invalid`` otherwise.

    >>> check_path("log/7")
    'log/7'
    """
    if not is_path(path):
        raise errors.Invalid(
            f"{path!r} is not a path below the table's root",
            hint="paths are relative, separated by '/', without empty, '.' or '..' components",
        )
    return path


def check_directory(prefix: str) -> str:
    """Return the directory ``prefix`` without a trailing slash, checked like :func:`check_path`."""
    directory = prefix.removesuffix("/")
    return directory and check_path(directory)


def check_range(path: str, offset: int, length: int | None, size: int) -> int:
    """Return the number of bytes to read from an object of ``size`` bytes.

    Raises ``errors.Corrupt`` if the object is too short.
    """
    if offset < 0 or (length is not None and length < 0):
        raise errors.Internal(f"invalid range of {path}: offset {offset}, length {length}")
    end = offset if length is None else offset + length
    if end > size:
        raise errors.Corrupt(
            "the object is too short",
            path=path,
            offset=size,
            expected=f"at least {end} bytes",
            got=f"{size}",
        )
    return size - offset if length is None else length


def check_size(path: str, size: int, bytes_max: int) -> int:
    """Return ``size`` if it is at most ``bytes_max``. Raises ``errors.Corrupt`` otherwise."""
    if size > bytes_max:
        raise errors.Corrupt(
            "the object is too large",
            path=path,
            expected=f"at most {bytes_max} bytes",
            got=f"{size}",
        )
    return size


def parts(data: Data) -> list[memoryview]:
    """Return ``data`` as flat views of bytes, in order, without a copy."""
    buffers: Sequence[Any] = data if isinstance(data, (list, tuple)) else [data]
    return [memoryview(buffer).cast("B") for buffer in buffers if len(memoryview(buffer))]


def to_bytes(data: Data) -> bytes:
    """Return ``data`` as one bytes object. A bytes object is not copied.

    >>> to_bytes([b"ab", b"c"])
    b'abc'
    """
    return data if isinstance(data, bytes) else b"".join(parts(data))


def is_between(path: str, after: str, before: str) -> bool:
    """Return True if ``path`` sorts strictly between ``after`` and ``before``.

    An empty bound has no effect.
    """
    return path > after and (not before or path < before)


def infos_between(
    infos: Listing, directory: str, after: str, before: str, skip: Container[str]
) -> Listing:
    """Return the objects that :meth:`Storage.list_dir` returns, of those below ``directory``."""
    return [
        info
        for info in infos
        if info.path.rpartition("/")[0] == directory
        and is_between(info.path, after, before)
        and info.path not in skip
    ]


def is_temporary(path: str) -> bool:
    """Return True if ``path`` names an unfinished object."""
    return path.endswith(TEMPORARY_SUFFIX)


def temporary_name(path: str, token: str) -> str:
    """Return a hidden name in the same directory, for writing ``path`` before it is renamed.

    >>> temporary_name("log/7", "c0ffee")
    'log/.7.c0ffee.mdt-tmp'
    """
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}.{name[:100]}.{token}{TEMPORARY_SUFFIX}"


def missing(path: str) -> errors.Missing:
    """Return the error for an absent object."""
    hint = (
        "if a table refers to it, somebody has deleted it: mdt check PATH lists all missing"
        " objects; restore them from a backup or from older versions in the bucket"
    )
    return errors.Missing("there is no such object", path=path, hint=hint)


def no_versions(url: str) -> errors.Unsupported:
    """Return the error for a storage whose objects have no versions."""
    return errors.Unsupported(
        f"the storage {url} has no versions of objects, which Hudi's storage-based lock needs",
        hint="use mdt.lock.provider=file_system on a file system",
    )


def name_taken(path: str) -> errors.Internal:
    """Return the error for a new name that already exists."""
    return errors.Internal(f"the new object {path} already exists, but its name must be unique")
