"""The interface of a table format that is derived from our commits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

from mdt.formats.data_files import DataFile
from mdt.formats.derivation import Derivation
from mdt.formats.earlier import Earlier
from mdt.schema.definition import TableDefinition
from mdt.stores.storage import Storage

Objects = Sequence[tuple[str, bytes]]
"""(path, content) of objects."""
Strays = Sequence[tuple[str, bytes | None]]
"""(path, content that belongs there, or None if the object is to be deleted)."""
FilesOf = Callable[[], Iterable[DataFile]]
"""Returns the files of a state."""


class Format(ABC):
    """A table format whose metadata follow from the commit records.

    Attributes:
        name: Its name in the option ``mdt.formats``.
        title: Its name in messages.
        folder: Its directory in a table.
        stays_at_start: True if readers may see only the version with which they begin, and False
            if all go on to later ones.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    folder: ClassVar[str]
    stays_at_start: ClassVar[bool]

    @abstractmethod
    def refusals(self, definition: TableDefinition) -> Iterator[tuple[str, str]]:
        """Yield the columns that the format cannot express: path and reason."""

    @abstractmethod
    def path(self, seq: int) -> str:
        """Return the path of the version that a commit makes. Its readers see the commit when this
        object exists.
        """

    @abstractmethod
    def objects(self, derivation: Derivation, earlier: Earlier) -> Objects:
        """Return the objects of the version of a commit besides twins, and that of :meth:`path`
        last. A pure function of the derivation and of earlier versions. The first version has all
        files.

        Raises Corrupt or Missing if it needs an earlier version that is damaged or missing.
        """

    @abstractmethod
    def foreign_writer(self, content: bytes) -> str:
        """Return the name of the program that has written a version, "" if it is unknown."""

    @abstractmethod
    def is_same(self, path: str, stored: bytes | None, expected: bytes) -> bool:
        """Return True if the stored object at ``path`` has the expected bytes or facts."""

    @abstractmethod
    def is_start(self, seq: int) -> bool:
        """Return True if readers can begin with version ``seq`` after :meth:`put_start`. They can
        begin with that of the horizon, too.
        """

    @abstractmethod
    def put_start(self, storage: Storage, seq: int, definition: TableDefinition) -> None:
        """Let readers begin with version ``seq``, which exists, unless they begin with a later one.

        Args:
            definition: The definition at the version.
        """

    @abstractmethod
    def newest_start(self, storage: Storage) -> int:
        """Return the version with which readers begin, or -1."""

    @abstractmethod
    def starts(self, storage: Storage, horizon: int) -> Sequence[int]:
        """Return the versions whose :meth:`start_objects` a check compares, ascending."""

    @abstractmethod
    def start_objects(self, derivation: Derivation, files: FilesOf, earlier: Earlier) -> Objects:
        """Return the objects that have all files of a version, without a look at older versions.

        Args:
            derivation: The commit of the version, without its change.
            files: Returns all files of the version. O(files).
        """

    @abstractmethod
    def strays(self, storage: Storage, newest: Callable[[], int]) -> Strays:
        """Return the objects that readers follow and that no commit of ours has put, and the
        pointer with which they begin if it leads nowhere.

        Args:
            newest: Returns the seq of the newest commit.
        """

    @abstractmethod
    def remove(self, storage: Storage, end: int) -> None:
        """Delete all versions before ``end``, the commit that removed the format from the table,
        the newest first. Versions of a later begin stay.
        """

    @abstractmethod
    def expire(self, storage: Storage, oldest: int, table_id: str) -> None:
        """Delete the objects that no reader of version ``oldest`` or a later one needs."""

    @abstractmethod
    def delete_unused(self, storage: Storage, end: int, table_id: str) -> None:
        """Delete the objects outside its directory that commits before ``end`` have put, the one
        that removed the format from the table.
        """
