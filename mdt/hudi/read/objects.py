"""The part of a storage that is needed to read a table."""

from __future__ import annotations

from typing import Any, Protocol

from mdt.stores.contract import Listing, Names, check_size


class TableObjects(Protocol):
    """The objects of a table. :class:`mdt.stores.contract.Storage` fulfils this protocol."""

    def list(self, prefix: str) -> Listing:
        """Return all objects below the directory ``prefix``, recursively, sorted by path."""
        ...

    def list_dir(self, prefix: str) -> Listing:
        """Return the objects directly in the directory ``prefix``, sorted by path."""
        ...

    def children(self, prefix: str) -> Names:
        """Return the names of the objects and directories directly in ``prefix``, sorted."""
        ...

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return ``length`` bytes from ``offset``, or everything after ``offset``.

        Raises Missing for an absent object.
        """
        ...

    def read_whole(self, path: str, bytes_max: int) -> bytes:
        """Return an object. Raises Missing, and Corrupt if it is larger than ``bytes_max``."""
        ...

    def open(self, path: str) -> Any:
        """Open an object as a ``pa.NativeFile``, which the caller closes. Raises Missing."""
        ...


def read_listed(objects: TableObjects, path: str, size: int, bytes_max: int) -> bytes:
    """Return an object of a listing.

    Raises Corrupt without reading it if it is larger than ``bytes_max`` bytes, and Missing.
    """
    return objects.read(path, 0, check_size(path, size, bytes_max))
