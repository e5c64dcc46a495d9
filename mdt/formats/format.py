"""The interface of a table format that is derived from our commits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from mdt.formats.data_files import DataFile
from mdt.formats.derivation import Derivation
from mdt.schema.definition import TableDefinition
from mdt.stores.storage import Storage

Objects = Sequence[tuple[str, bytes]]
"""(path, content) of objects."""


class Format(ABC):
    """A table format whose metadata follow from the commit records.

    Attributes:
        name: Its name in the option ``mdt.formats``.
        title: Its name in messages.
        folder: Its directory in a table.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    folder: ClassVar[str]

    @abstractmethod
    def refusals(self, definition: TableDefinition) -> Iterator[tuple[str, str]]:
        """Yield the columns that the format cannot express: path and reason."""

    @abstractmethod
    def path(self, seq: int) -> str:
        """Return the path of the version that a commit makes. Its readers see the commit when this
        object exists.
        """

    @abstractmethod
    def content(self, derivation: Derivation) -> bytes:
        """Return the content of that object. A pure function of the derivation."""

    @abstractmethod
    def objects(self, derivation: Derivation) -> Objects:
        """Return the other objects that the version names, besides twins."""

    @abstractmethod
    def foreign_writer(self, content: bytes) -> str:
        """Return the name of the program that has written a version, "" if it is unknown."""

    @abstractmethod
    def is_same(self, path: str, stored: bytes | None, expected: bytes) -> bool:
        """Return True if the stored object at ``path`` has the expected bytes or facts."""

    @abstractmethod
    def checkpoint_path(self, seq: int) -> str:
        """Return the path of the checkpoint of a version."""

    @abstractmethod
    def checkpoint(
        self, seq: int, files: Sequence[DataFile], definition: TableDefinition
    ) -> tuple[str, bytes]:
        """Return path and content of the checkpoint of version ``seq`` with all its ``files``."""

    @abstractmethod
    def advanced_checkpoint(
        self, storage: Storage, seq: int, definition: TableDefinition
    ) -> bytes | None:
        """Return the content of :meth:`checkpoint`, made of stored objects of earlier versions, or
        None if that is not possible.
        """

    @abstractmethod
    def newest_checkpoint(self, storage: Storage) -> int:
        """Return the version of the checkpoint with which readers begin, or -1."""

    @abstractmethod
    def checkpoints(self, storage: Storage) -> Sequence[int]:
        """Return the versions that have checkpoints, ascending."""

    def foreign_objects(self, storage: Storage, newest: Callable[[], int]) -> list[str]:
        """Return the paths of objects that readers follow and that no commit of ours has put.

        Args:
            newest: Returns the seq of the newest commit.
        """
        return []

    @abstractmethod
    def point_to(self, storage: Storage, seq: int, content: bytes) -> None:
        """Let readers begin with the checkpoint of version ``seq``, which exists with this
        content.
        """

    @property
    @abstractmethod
    def vectors_folder(self) -> str:
        """The directory of the objects of large deletion vectors."""

    @abstractmethod
    def vector_path(self, file: DataFile, table_id: str) -> str:
        """Return the path of the object with the deletion vector of a file, "" for none."""

    @abstractmethod
    def remove(self, storage: Storage, end: int) -> None:
        """Delete all versions before ``end``, the commit that removed the format from the table,
        the newest first. Versions of a later begin stay.
        """

    @abstractmethod
    def expire(self, storage: Storage, oldest: int) -> None:
        """Delete the versions that no reader of version ``oldest`` or a later one needs."""
