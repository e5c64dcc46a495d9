"""The tables that are compared, behind one small contract; a peer is imported only in the process
that runs it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from benchmarks.queries import Query
from benchmarks.trips import FILES, MORE_BYTES, Key

PEERS = {
    "mdt": "benchmarks.peers.mdt_peer:Mdt",
    "mdt with a Delta log": "benchmarks.peers.mdt_peer:MdtDelta",
    "mdt with Delta and Iceberg": "benchmarks.peers.mdt_peer:MdtAll",
    "duckdb": "benchmarks.peers.duckdb_peer:DuckDB",
    "deltalake": "benchmarks.peers.deltalake_peer:DeltaLake",
    "deltalake with feed": "benchmarks.peers.deltalake_peer:DeltaLakeFeed",
    "ducklake": "benchmarks.peers.ducklake_peer:DuckLake",
    "lance": "benchmarks.peers.lance_peer:Lance",
    "arrow": "benchmarks.peers.arrow_peer:ArrowDataset",
    "pyiceberg upsert": "benchmarks.peers.iceberg_peer:Iceberg",
    "pypaimon": "benchmarks.peers.paimon_peer:Paimon",
}
"""Name -> module:class."""


class Peer(ABC):
    """A table of trips in the directory ``path``, which is empty at first."""

    upserts: ClassVar[bool] = True
    """Whether the peer can replace rows by key."""

    def __init__(self, path: str, files: int | None = FILES) -> None:
        """``files``: of the load; None: as many as the peer makes by itself."""
        self.path = path
        self.files = files

    @abstractmethod
    def load(self, rows: pa.Table) -> None:
        """Write the table, with whatever finds keys quickly."""

    @abstractmethod
    def lookup(self, keys: Sequence[Key]) -> pa.Table:
        """Return the rows of ``keys``."""

    filters: ClassVar[bool] = False
    """Whether :meth:`filtered` is another way than :meth:`lookup`."""

    def filtered(self, keys: Sequence[Key]) -> pa.Table:
        """Return the rows of ``keys`` by a filter on the key column."""
        return self.lookup(keys)

    @abstractmethod
    def scan(self) -> pa.Table:
        """Return all rows and columns, in memory."""

    indexes: ClassVar[bool] = False
    """Whether the peer has secondary indexes."""

    def index(self) -> int:
        """Build secondary indexes on all columns that W6 filters on; return their bytes."""
        raise NotImplementedError

    def query(self, query: Query) -> pa.Table:
        """Return the rows, all columns, that match a query of W6."""
        raise NotImplementedError

    def upsert(self, rows: pa.Table) -> None:
        """Replace or insert by key, durable on return."""
        raise NotImplementedError

    def delete_where(self, where: str) -> int | None:
        """Delete the rows that match; return how many, None if the peer does not say."""
        raise NotImplementedError

    def update_where(self, column: str, value: str, where: str) -> int | None:
        """Set a column to an expression in SQL where rows match; return as :meth:`delete_where`
        does.
        """
        raise NotImplementedError

    def merge(self, rows: pa.Table, *, whole: bool) -> int:
        """Merge by key: insert new rows, and replace those that are there, as a ``whole``, or fare
        and ts where ts is larger; return how many changed.
        """
        raise NotImplementedError

    def tidy(self) -> None:
        """Compact small files and delete what no reader needs, as far as the peer does not do that
        by itself.
        """
        return

    def referred(self) -> int | None:
        """Return the bytes of all files that some readable state refers to, None where the peer
        cannot tell.
        """
        return None

    def compact(self) -> None:
        """Rewrite what commits have left into fewer or better files; nothing is deleted."""
        raise NotImplementedError

    def cluster(self, by: Sequence[str], curve: str) -> None:
        """Put all rows in order by columns, along a curve, into about as many files; nothing is
        deleted.
        """
        raise NotImplementedError

    def commit(self) -> int:
        """Return the number of the newest commit, for :meth:`changes`."""
        raise NotImplementedError

    after_only: ClassVar[bool] = False
    """Whether :meth:`changes` can do without rows before updates."""

    def changes(self, commit: int, before: bool = True) -> pa.Table:
        """Return every row that one commit inserted, deleted or, with ``before``, replaced, and
        what it replaced it by.
        """
        raise NotImplementedError

    @contextmanager
    def reads_counted(self) -> Iterator[None]:
        """Read by system calls alone, as far as the peer has other ways, on a table opened anew."""
        self.reopen()
        yield

    def reopen(self) -> None:
        """Forget what is known of the table, and open it as another process would."""
        raise NotImplementedError


def open_peer(name: str, path: str, files: int | None = FILES) -> Peer:
    """Return the peer called ``name`` at ``path``; ``files``: see :class:`Peer`."""
    module, _, kind = PEERS[name].partition(":")
    peer: Peer = getattr(import_module(module), kind)(path, files)
    return peer


def bytes_below(path: str) -> int:
    """Return the bytes of all files under ``path``."""
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())


def bytes_a_row(rows: pa.Table, flat: int) -> int:
    """Return about how many bytes a peer stores for a row that takes ``flat`` bytes without the
    columns MORE.
    """
    return flat + (MORE_BYTES if "geo" in rows.schema.names else 0)


def sql_list(keys: Sequence[Key]) -> str:
    """Return keys as a SQL list of literals: ``('a', 'b')``, ``(1, 2)``."""
    return "(" + ", ".join(str(key) if isinstance(key, int) else f"'{key}'" for key in keys) + ")"
