"""What the table asks of a storage, and what every storage shares.

Paths are relative to the root of the table, "/"-separated, without empty, "." or ".." components.
Nothing is ever appended to; an object is created once, replaced as a whole or deleted.  The clock
and randomness are here too, so that a test can make a whole history repeatable.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

from mdt import errors
from mdt.limits import FRAME_BYTES_MAX, OPERATIONS_AT_ONCE_MAX
from mdt.stores import clock

T = TypeVar("T")

Buffer: TypeAlias = bytes | bytearray | memoryview | pa.Buffer
"""Bytes in memory, without a copy."""
Data: TypeAlias = Buffer | Sequence[Buffer]
"""What is written: one buffer, or several that are stored one after the other."""

TEMPORARY_SUFFIX = ".mdt-tmp"
"""How the names of half-written objects end; listings hide them."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One stored object: ``path`` from the root, ``size`` in bytes, ``modified_us`` UTC
    microseconds.
    """

    path: str
    size: int
    modified_us: int


Listing = list[ObjectInfo]
"""Objects sorted by path."""
Names = list[str]
"""Names without directories, sorted."""

Answers = list[Any]
"""What several operations have returned, in the order in which they were given."""


class Storage(ABC):
    """Bytes under names, with one atomic operation: :meth:`put_if_absent`.  Safe for use by several
    threads.

    Every method raises ``errors.Invalid`` for a path that could leave the root, and
    ``errors.Unavailable`` when the storage fails; it is then unknown whether a change was made.
    """

    url: str
    """The root, in the form that ``open_storage`` takes."""

    public_options: Mapping[str, str] = MappingProxyType({})
    """``storage_options`` without secrets: what another process is told to open the same root."""

    is_remote: bool = False
    """Whether a read costs a request, so that what was read is worth keeping on the local disk."""

    is_durable: bool = True
    """Whether what was written survives a power cut; may be set, local directories are then written
    without flushing.
    """

    conditional_put: bool = True
    """Whether :meth:`put_if_absent` is atomic here."""

    @abstractmethod
    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return ``length`` bytes from ``offset``, or everything from there on.

        Raises ``errors.Missing`` for an absent object, and ``errors.Corrupt`` if it ends before
        offset + length.
        """

    @abstractmethod
    def open(self, path: str) -> Any:
        """Return a ``pa.NativeFile`` for random access; raises ``errors.Missing``.  The caller
        closes it.
        """

    @abstractmethod
    def create(self, path: str, data: Data) -> None:
        """Store a new object under a name that nobody else uses; durable on return.

        A crash may leave a part of it under the name.  Raises ``errors.Internal`` if the name
        exists.
        """

    @abstractmethod
    def put_if_absent(self, path: str, data: Data) -> bool:
        """Store an object if the name is free: whole or not at all, durable on return.

        Returns False if an object was there.  On a network that object may stem from this very call
        (an earlier try whose reply was lost), so a caller to whom it matters reads it back.
        """

    def put_passing(self, path: str, data: Data) -> bool:
        """Store an object as :meth:`put_if_absent` does, of which nothing needs to be left after a
        power cut: not even its name.
        """
        return self.put_if_absent(path, data)

    @abstractmethod
    def replace(self, path: str, data: Data) -> None:
        """Store an object over whatever is there; readers see the old bytes or the new ones."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove an object; an absent one is fine."""

    @abstractmethod
    def list(self, prefix: str) -> Listing:
        """Return all objects below the directory ``prefix`` ("" = the root), recursively, sorted by
        path.
        """

    @abstractmethod
    def list_dir(
        self, prefix: str, *, after: str = "", before: str = "", known: Container[str] = frozenset()
    ) -> Listing:
        """Return the objects directly in the directory ``prefix``, sorted by path.

        ``after``, ``before``: paths between which they must stand, if given; ``known``: paths that
        are left out; the rest costs next to nothing.
        """

    @abstractmethod
    def children(self, prefix: str) -> Names:
        """Return the names of the objects and directories directly in the directory ``prefix``,
        sorted.
        """

    def is_file(self) -> bool:
        """Return whether the root is a file instead of a directory."""
        return False

    def neighbours(self) -> Names:
        """Return the names of the directories beside the root, where that is cheap to say; for
        messages.
        """
        return []

    def stamp(self, path: str) -> Hashable | None:
        """Return a value that differs whenever the object or directory ``path`` has changed, or
        None: look yourself.

        A directory changes when an object directly in it is created, replaced or deleted; an absent
        one has a stamp too.
        """
        return None

    @abstractmethod
    def size(self, path: str) -> int | None:
        """Return the size of an object in bytes, or None if it is absent."""

    def begin(self, act: Callable[[], T]) -> Callable[[], T]:
        """Begin ``act``, operations that nothing else waits for yet; return what waits for its
        result, which is called once.

        Here it is done at once, and raises its errors; a storage on which operations take long does
        it in another thread.
        """
        found = act()
        return lambda: found

    def begin_storing(self, act: Callable[[], T]) -> Callable[[], T]:
        """Begin ``act``, which stores objects, as :meth:`begin` does; in another thread, too, where
        only that takes long: until bytes are on a disk.
        """
        return self.begin(act)

    def together(self, *acts: Callable[[], Any]) -> Answers:
        """Return what each of ``acts`` returns, none of which depends on another: they begin in
        this order, and may end in any.

        An error is raised when those that have begun have ended.
        """
        return awaited([self.begin(act) for act in acts])

    def each(self, acts: Iterable[Callable[[], T]]) -> Iterator[T]:
        """Yield what each of ``acts`` returns, none of which depends on another; where operations
        take long, of some :meth:`together`.
        """
        waiting = iter(acts)
        while some := [*islice(waiting, OPERATIONS_AT_ONCE_MAX if self.is_remote else 1)]:
            yield from self.together(*some)

    def __reduce__(self) -> Any:
        """Return what a pickle keeps, where another process can open the same root.  Raises
        ``errors.Unsupported`` elsewhere.
        """
        raise errors.Unsupported(
            f"the storage {self.url} lives in this process only, so it and its tables cannot be"
            " pickled",
            hint="keep the table on a disk or in an object store",
        )

    def now_us(self) -> int:
        """Return the time in UTC microseconds, by this machine's clock unless a store has its
        own.
        """
        return clock.now_us()

    def random_hex(self, bytes: int) -> str:
        """Return ``bytes`` random bytes as twice as many hexadecimal digits."""
        return os.urandom(bytes).hex()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    @abstractmethod
    def uri(self, path: str) -> str:
        """Return the name by which Hadoop's ``Path(String)`` finds the object; it is not
        percent-encoded.
        """

    def local_path(self, path: str) -> str | None:
        """Return the absolute name on the local file system, or None if there is none."""
        return None

    def read_whole(self, path: str, bytes_max: int) -> bytes:
        """Return the whole object.  Raises ``errors.Corrupt`` before it is read if it has more than
        ``bytes_max`` bytes.
        """
        size = self.size(path)
        if size is None:
            raise missing(path)
        return self.read(path, 0, check_size(path, size, bytes_max))

    def read_if_exists(self, path: str, bytes_max: int = FRAME_BYTES_MAX) -> bytes | None:
        """Return the whole object as :meth:`read_whole` does, or None if it is absent."""
        try:
            return self.read_whole(path, bytes_max)
        except errors.Missing:
            return None

    def delete_many(self, paths: Iterable[str]) -> None:
        """Remove objects; absent ones are fine."""
        for path in paths:
            self.delete(path)

    def drop_directories(self, prefix: str, before: str) -> None:
        """Remove the directories directly in ``prefix`` that hold nothing and whose names sort
        before ``before``, where there are such things.

        Nobody may still write into them.
        """
        check_directory(prefix)

    def require_conditional_put(self) -> None:
        """Raise ``errors.Unsupported`` unless several writers can be told apart here; called at
        open-for-write.
        """
        if not self.conditional_put:
            raise errors.Unsupported(
                f"the storage {self.url} cannot put an object only if it is absent, so commits"
                " could overwrite each other",
                hint="write to a local disk, S3, GCS or Azure; reading works everywhere",
            )


def awaited(waiting: Sequence[Callable[[], T]]) -> list[T]:
    """Return what each of ``waiting`` returns; the first error is raised when all have ended.

    >>> awaited([lambda: 1, lambda: 2])
    [1, 2]
    """
    found: list[T] = []
    failed: BaseException | None = None
    for wait in waiting:
        try:
            found.append(wait())
        except BaseException as error:  # noqa: BLE001 - what goes on behind an error is waited for
            failed = failed or error
    if failed is not None:
        raise failed
    return found


def check_path(path: str, *, root_allowed: bool = False) -> str:
    """Return ``path`` if it cannot leave the root; raises ``errors.Invalid`` otherwise."""
    if not path and root_allowed:
        return path
    if "\0" in path or not all(part not in ("", ".", "..") for part in path.split("/")):
        raise errors.Invalid(
            f"{path!r} is not a path below the table's root",
            hint="paths are relative, separated by '/', without empty, '.' or '..' components",
        )
    return path


def check_directory(prefix: str) -> str:
    """Return the directory ``prefix`` without the slash that may end it; raises ``errors.Invalid``
    as check_path.
    """
    return check_path(prefix.removesuffix("/"), root_allowed=True)


def check_range(path: str, offset: int, length: int | None, size: int) -> int:
    """Return the number of bytes to read; raises ``errors.Corrupt`` if the object of ``size`` bytes
    is too short.
    """
    if offset < 0 or (length is not None and length < 0):
        raise errors.Internal(f"a read of {path} from byte {offset}, {length} bytes long")
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
    """Return ``size`` if it is at most ``bytes_max``; raises ``errors.Corrupt`` otherwise."""
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


def joined(data: Data) -> bytes:
    """Return ``data`` as one bytes object; no copy if it is one already."""
    return data if isinstance(data, bytes) else b"".join(parts(data))


def is_between(path: str, after: str, before: str) -> bool:
    """Return whether ``path`` stands after ``after`` and before ``before``; an empty bound is
    none.
    """
    return path > after and (not before or path < before)


def is_temporary(path: str) -> bool:
    """Return whether ``path`` names a half-written object."""
    return path.endswith(TEMPORARY_SUFFIX)


def temporary_name(path: str, token: str) -> str:
    """Return the name under which ``path`` is written before it is moved; same directory,
    hidden.
    """
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}.{name[:100]}.{token}{TEMPORARY_SUFFIX}"


def missing(path: str) -> errors.Missing:
    """Return the error for an absent object."""
    hint = (
        "if a table refers to it, somebody has removed it: mdt check PATH names all that is"
        " missing; restore them from a copy or from the bucket's older versions"
    )
    return errors.Missing("there is no such object", path=path, hint=hint)


def name_taken(path: str) -> errors.Internal:
    """Return the error for a new name that exists."""
    return errors.Internal(f"the new object {path} exists already; its name was to be unique")
