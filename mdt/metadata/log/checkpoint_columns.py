"""The columns of a checkpoint: the compacted metadata table, read by column and page.

A checkpoint is one manifest and a few objects of *pages*.  A page is one Arrow IPC stream with rows
of one column or of one small family of columns.  The manifest has the position, length and CRC-32
of each page.  A page is read, checked and decoded on first use.  On a local disk it is mapped, and
Arrow reads it in place.

A damaged page costs time, never rows: its columns are made again from the log.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from indexes.arrays import column, numbers
from indexes.bounds import Bounds
from indexes.column_stats import STATS_SCHEMA
from mdt.limits import METADATA_CACHE_BYTES_MAX
from mdt.metadata.files.deletion_vectors import StoredVectors, positions
from mdt.metadata.files.file_group import FILES
from mdt.metadata.log.commit_log import KEY_PARTS, STATS, SUMMARIES, TOMBSTONES
from mdt.session import Recent, memo, session

HISTORY = pa.schema(
    [
        ("seq", pa.int64()),
        ("instant", pa.string()),
        ("action", pa.string()),
        ("operation", pa.string()),
        ("txn", pa.string()),
        ("inserted", pa.int64()),
        ("updated", pa.int64()),
        ("deleted", pa.int64()),
        ("late", pa.int64()),
        ("rolled_back", pa.list_(pa.string())),
        ("token", pa.int64()),
        ("dead_instants", pa.list_(pa.string())),
        ("dead_tokens", pa.list_(pa.int64())),
        ("files", pa.int64()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("metadata", pa.map_(pa.string(), pa.string())),
    ]
)
"""One row per commit record, oldest first.

``token`` is null if a record has none.  ``files``, ``rows`` and ``bytes`` count the data files that
the record added.  ``metadata`` is the user's commit metadata, or null.
"""
HISTORY_ADDED = 4
"""Number of trailing columns that older objects lack.  They read as null."""

SUMMARY = pa.schema([SUMMARIES.field(name) for name in SUMMARIES.names[2:]])
"""A summary, or its object range.  All null if the segment is not covered."""

NUMBERED_KEY_PARTS = pa.schema(
    [pa.field("groups", pa.list_(pa.int32())) if f.name == "groups" else f for f in KEY_PARTS]
)
"""KEY_PARTS with the checkpoint's numbers of file groups, -1 for groups that no longer exist.

A row with index "" has the groups that the key index does not cover completely.
"""

STORED_TOMBSTONES = TOMBSTONES.append(pa.field("deleted_us", pa.int64()))
"""Tombstones with the time of the delete, in microseconds since 1970."""

PAGES = pa.schema(
    [("object", pa.int32()), ("offset", pa.int64()), ("length", pa.int64()), ("crc", pa.int64())]
)
"""Positions of the pages of a checkpoint, in the order of its columns."""

_SIMPLE: Mapping[str, pa.DataType] = {
    "dead": pa.int64(),
    "stripe_start": pa.int32(),
    "vector": pa.binary(),
    "group": pa.int32(),
    "members": pa.int32(),
    "members_start": pa.int32(),
    "group_name": pa.string(),
    "group_hash": pa.uint64(),
    "group_by_hash": pa.int32(),
    "group_partition": pa.int32(),
    "group_bytes": pa.int64(),
    "group_logs": pa.int32(),
    "group_by_size": pa.int32(),
    "partition_name": pa.string(),
    "partition_start": pa.int32(),
    "partition_bytes": pa.int64(),
    "partition_rows": pa.int64(),
}
_FAMILIES: Mapping[str, pa.Schema] = {
    "stats": STATS_SCHEMA,
    "partition_stats": STATS_SCHEMA,
    "summaries": SUMMARY,
    "sizes": pa.schema([("size", pa.int64())]),
}
_TABLES: Mapping[str, pa.Schema] = {
    "vector_range": pa.schema([("length", pa.int64()), ("crc", pa.int64())]),
    "row_groups": STATS,
    "history": HISTORY,
    "key_parts": NUMBERED_KEY_PARTS,
    "tombstones": STORED_TOMBSTONES,
}

ALWAYS = frozenset(
    (
        *(f"files/{name}" for name in FILES.names),
        *_SIMPLE.keys() - {"stripe_start"},
        "vector_range",
        "history",
        "key_parts",
    )
)
"""The columns that every checkpoint has."""

MAPPED_BYTES = 1 << 10
"""Memory charged for a mapped page or column: its Arrow objects."""

Ints = npt.NDArray[Any]


def schema_of(name: str) -> pa.Schema | None:
    """Return the schema of the pages of column ``name``, or None if the name is unknown.

    >>> schema_of("files/rows").names, schema_of("dead").names, schema_of("stats/fare").names[:2]
    (['rows'], ['value'], ['min', 'max'])
    """
    family, _, rest = name.partition("/")
    if family == "files" and rest in FILES.names:
        return pa.schema([FILES.field(rest)])
    if rest and family in _FAMILIES:
        return _FAMILIES[family]
    if name in _SIMPLE:
        return pa.schema([("value", _SIMPLE[name])])
    return _TABLES.get(name)


def no_rows(schema: pa.Schema) -> pa.Table:
    """Return a table without rows.

    ``schema.empty_table()`` would import pandas if it is installed.
    """
    return pa.Table.from_batches([], schema)


def simple(name: str, values: Any) -> pa.Table:
    """Return ``values`` as the table of a column with one value per row."""
    return pa.Table.from_arrays([pa.array(values, _SIMPLE[name])], schema=schema_of(name))


@dataclass(frozen=True, slots=True)
class Column:
    """A column in memory, in a single chunk.

    ``every`` is the number of files per page, or 0 for a single page.  ``cuts`` are the first rows
    of the pages in ``table`` and its length, for columns with any number of rows per file.
    """

    table: pa.Table
    every: int = 0
    cuts: Sequence[int] | None = None

    def pages(self) -> list[pa.Table]:
        """Return the pages, as views of ``table``."""
        if not self.every:
            return [self.table]
        cuts = self.cuts or [*range(0, len(self.table), self.every), len(self.table)]
        return [self.table.slice(a, b - a) for a, b in pairwise(cuts)]


class Columns(ABC):
    """The state of a table after record ``seq``: ``rows`` live files, in the order of their
    segments.
    """

    seq: int
    rows: int

    def __init__(self, seq: int, rows: int) -> None:
        self.seq = seq
        self.rows = rows
        self._derived: dict[str, Any] = {}
        self._recent: Recent[tuple[str, int], Any] = Recent(
            METADATA_CACHE_BYTES_MAX, session().memory
        )
        self.statistics_hits = self.statistics_misses = 0

    def memo(self, key: str, make: Callable[[], Any]) -> Any:
        """Return the cached result of ``make`` under ``key``."""
        value = self._derived.get(key)
        if value is None:
            value = self._derived[key] = make()
        return value

    def statistics(self, name: str, part: int, make: Callable[[], Bounds]) -> Bounds:
        """Return the bounds that ``make`` reads from page ``part`` of a column, cached while there
        is room.
        """
        key = f"bounds of {name}", part
        bounds: Bounds | None = self._recent.get(key)
        self.statistics_hits += bounds is not None
        self.statistics_misses += bounds is None
        if bounds is None:
            bounds = make()
            self._recent.put(key, bounds, bounds.nbytes + MAPPED_BYTES)
        return bounds

    @abstractmethod
    def __contains__(self, name: object) -> bool: ...

    @abstractmethod
    def table(self, name: str) -> pa.Table:
        """Return a whole column.  Cached."""

    @abstractmethod
    def page(self, name: str, row: int) -> tuple[pa.Table, int]:
        """Return the page with file ``row`` and the number of the page's first file."""

    @abstractmethod
    def every(self, name: str) -> int:
        """Return the number of files per page of a column, or 0 if it has one page."""

    @abstractmethod
    def names(self, family: str) -> list[str]:
        """Return the names of the columns of a family, in order, without its prefix."""

    def optional(self, name: str) -> pa.Table:
        """Return a whole column that readers can do without.

        Raises Corrupt if it is damaged, instead of making it again.
        """
        return self.table(name)

    @abstractmethod
    def load(self, names: Sequence[str], rows: Sequence[int] | None = None) -> None:
        """Read whole columns, or the pages with files ``rows``.  Remote storage is read in
        threads.
        """

    def numpy(self, name: str) -> Ints:
        """Return a numeric column as an array, with 0 for null.  Zero copy without nulls."""
        values = self.table(name).column(0)
        if values.null_count:
            values = values.fill_null(0)
        return numbers(values)

    def stripe_starts(self) -> Ints | None:
        """Return the first file of each stripe and the number of files, or None if they are wrong.

        Raises Corrupt if they are damaged.
        """
        starts = numbers(self.optional("stripe_start")["value"].fill_null(-1)).astype(np.int64)
        is_whole = len(starts) >= 2 and starts[0] == 0 and starts[-1] == self.rows
        return starts if is_whole and bool((np.diff(starts) > 0).all()) else None

    def vector(self, file: int) -> BitMap:
        """Return the dead positions of a file that has any, cached while there is room.

        Callers must not change the result.  Raises Corrupt.
        """
        key = "dead positions", file
        vector: BitMap | None = self._recent.get(key)
        if vector is None:
            data, rows = self.value("vector", file).as_py(), int(self.numpy("files/rows")[file])
            vector = self._recent.put(
                key, positions(data, rows, path=f"checkpoint {self.seq}"), len(data) + MAPPED_BYTES
            )
        return vector

    def vectors(self, files: npt.NDArray[np.int64]) -> StoredVectors | None:
        """Return the object ranges of the deletion vectors of ``files`` (ascending).

        None if only their bytes are available.
        """
        return None

    def vector_bytes(self, files: npt.NDArray[np.int64]) -> list[bytes | None]:
        """Return the stored deletion vectors of ``files`` (ascending), None for files without.

        Checks the CRC of the pages, but does not decode the vectors.
        """
        vectors: list[bytes | None] = []
        while len(vectors) < len(files):
            table, first = self.page("vector", int(files[len(vectors)]))
            end = int(np.searchsorted(files, first + len(table)))
            vectors += table["value"].take(column(files[len(vectors) : end] - first)).to_pylist()
        return vectors

    def value(self, name: str, row: int) -> pa.Scalar:
        """Return the value of a simple column for file (or file group) ``row``.  Reads a page."""
        table, first = self.page(name, row)
        return table.column(0)[row - first]


class BuiltColumns(Columns):
    """Columns in memory."""

    def __init__(self, seq: int, rows: int, columns: Mapping[str, Column]) -> None:
        super().__init__(seq, rows)
        self._columns = columns

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def table(self, name: str) -> pa.Table:
        return self._columns[name].table

    def everything(self) -> list[str]:
        """Return the names of all columns."""
        return list(self._columns)

    def page(self, name: str, row: int) -> tuple[pa.Table, int]:
        return self._columns[name].table, 0

    def every(self, name: str) -> int:
        return 0

    def load(self, names: Sequence[str], rows: Sequence[int] | None = None) -> None:
        return  # they are in memory

    def names(self, family: str) -> list[str]:
        return members_of(self._columns, family)


@memo(1)
def _columns_without_rows() -> dict[str, Column]:
    columns = {name: Column(no_rows(schema_of(name))) for name in ALWAYS}
    for name in ("members_start", "partition_start"):
        columns[name] = Column(simple(name, np.zeros(1, np.int64)))
    return columns


def no_files() -> BuiltColumns:
    """Return the state of a table before its first record, without files, groups and partitions."""
    return BuiltColumns(-1, 0, _columns_without_rows())


def members_of(names: Any, family: str) -> list[str]:
    """Return the names of a family's columns without its prefix."""
    return [name[len(family) + 1 :] for name in names if name.startswith(f"{family}/")]
