"""The columns of a checkpoint: the compacted state of the metadata table, read column by column and
page by page.

A checkpoint is one manifest and a few objects of *pages*.  A page is one Arrow IPC stream with some
rows of one column (or of one small family of columns); the manifest says where each page stands,
how long it is and its CRC-32.  A page is read, checked and decoded when it is first used; on a
local disk it is mapped, so Arrow reads it in place.

A page that turns out damaged costs time, never rows: the columns are then made again from the log,
for good.
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
"""One row per commit record, oldest first; ``token`` is null where a record has none.  ``files``,
``rows``, ``bytes``: of the data files that it added.  ``metadata``: what its user gave, null
without any.
"""
HISTORY_ADDED = 4
"""So many of its last columns were added later: objects that are older lack them, and they are null
then.
"""

SUMMARY = pa.schema([SUMMARIES.field(name) for name in SUMMARIES.names[2:]])
"""A summary, or where it stands; all null: not covered."""

NUMBERED_KEY_PARTS = pa.schema(
    [pa.field("groups", pa.list_(pa.int32())) if f.name == "groups" else f for f in KEY_PARTS]
)
"""As KEY_PARTS, with the numbers that file groups have in the checkpoint (-1: gone); a row with
index "" holds the groups of which the key index does not know every key.
"""

STORED_TOMBSTONES = TOMBSTONES.append(pa.field("deleted_us", pa.int64()))
"""Tombstones with the time of the delete, microseconds since 1970."""

PAGES = pa.schema(
    [("object", pa.int32()), ("offset", pa.int64()), ("length", pa.int64()), ("crc", pa.int64())]
)
"""Where the pages of a checkpoint stand, in the order of its columns."""

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

MAPPED_BYTES = 1 << 10
"""What a page or column that is mapped counts for: its Arrow objects."""

Ints = npt.NDArray[Any]


def schema_of(name: str) -> pa.Schema | None:
    """Return the schema of the pages of column ``name``, None for a name that this version does not
    know.

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
    """Return a table without rows; ``schema.empty_table()`` would import pandas where it is
    installed.
    """
    return pa.Table.from_batches([], schema)


def simple(name: str, values: Any) -> pa.Table:
    """Return ``values`` as the table of a column that has one value a row."""
    return pa.Table.from_arrays([pa.array(values, _SIMPLE[name])], schema=schema_of(name))


@dataclass(frozen=True, slots=True)
class Column:
    """A column in memory, one chunk.  ``every``: files in a page, 0 for one page; ``cuts``: where
    pages start in ``table``, and its end, if a file may have any number of rows.
    """

    table: pa.Table
    every: int = 0
    cuts: Sequence[int] | None = None

    def pages(self) -> list[pa.Table]:
        """Return the pages, views of ``table``."""
        if not self.every:
            return [self.table]
        cuts = self.cuts or [*range(0, len(self.table), self.every), len(self.table)]
        return [self.table.slice(a, b - a) for a, b in pairwise(cuts)]


class Columns(ABC):
    """The state of a table after record ``seq``: ``rows`` files in the order of their segments, all
    live.
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
        """Return what ``make`` makes of these columns, from memory after the first time."""
        found = self._derived.get(key)
        if found is None:
            found = self._derived[key] = make()
        return found

    def statistics(self, name: str, part: int, make: Callable[[], Bounds]) -> Bounds:
        """Return what ``make`` reads of part ``part`` of a column, from memory while there is
        room.
        """
        key = f"bounds of {name}", part
        found: Bounds | None = self._recent.get(key)
        self.statistics_hits += found is not None
        self.statistics_misses += found is None
        if found is None:
            found = make()
            self._recent.put(key, found, found.nbytes + MAPPED_BYTES)
        return found

    @abstractmethod
    def __contains__(self, name: object) -> bool: ...

    @abstractmethod
    def table(self, name: str) -> pa.Table:
        """Return a whole column; kept once it was read."""

    @abstractmethod
    def page(self, name: str, row: int) -> tuple[pa.Table, int]:
        """Return the page with file ``row`` and the number of the page's first file."""

    @abstractmethod
    def every(self, name: str) -> int:
        """Return how many files a page of a column has, 0 if there is one page."""

    @abstractmethod
    def names(self, family: str) -> list[str]:
        """Return the names of the columns of a family, without its prefix, in order."""

    def optional(self, name: str) -> pa.Table:
        """Return a whole column that readers can do without.  Raises Corrupt instead of making it
        again.
        """
        return self.table(name)

    @abstractmethod
    def load(self, names: Sequence[str], rows: Sequence[int] | None = None) -> None:
        """Read whole columns, or the pages that hold files ``rows``; from remote storage in
        threads.
        """

    def numpy(self, name: str) -> Ints:
        """Return a column of numbers -> [values]; null is 0.  Zero copy where it has no null."""
        values = self.table(name).column(0)
        if values.null_count:
            values = values.fill_null(0)
        return numbers(values)

    def vector(self, file: int) -> BitMap:
        """Return the dead positions of a file that has some, from memory while there is room; not
        to be changed.  Raises Corrupt.
        """
        key = "dead positions", file
        found: BitMap | None = self._recent.get(key)
        if found is None:
            data, rows = self.value("vector", file).as_py(), int(self.numpy("files/rows")[file])
            found = self._recent.put(
                key, positions(data, rows, path=f"checkpoint {self.seq}"), len(data) + MAPPED_BYTES
            )
        return found

    def vectors(self, files: npt.NDArray[np.int64]) -> StoredVectors | None:
        """Return where the deletion vectors of ``files``, which rise, stand; None if only their
        bytes can be had.
        """
        return None

    def vector_bytes(self, files: npt.NDArray[np.int64]) -> list[bytes | None]:
        """Return the deletion vectors of ``files``, which rise, as they are stored, None where
        there is none: pages are checked, and no more.
        """
        found: list[bytes | None] = []
        while len(found) < len(files):
            table, first = self.page("vector", int(files[len(found)]))
            end = int(np.searchsorted(files, first + len(table)))
            found += table["value"].take(column(files[len(found) : end] - first)).to_pylist()
        return found

    def value(self, name: str, row: int) -> pa.Scalar:
        """Return the value of a one-valued column for file (or file group) ``row``; reads one
        page.
        """
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
    names = (*(f"files/{name}" for name in FILES.names), *_SIMPLE.keys() - {"stripe_start"})
    columns = {name: Column(no_rows(schema_of(name))) for name in names}
    for name in ("members_start", "partition_start"):
        columns[name] = Column(simple(name, np.zeros(1, np.int64)))
    return columns


def no_files() -> BuiltColumns:
    """Return the state of a table before its first record: whatever there is for each file, file
    group or partition is empty.
    """
    return BuiltColumns(-1, 0, _columns_without_rows())


def members_of(names: Any, family: str) -> list[str]:
    """Return what stands behind the slash of the names of a family."""
    return [name[len(family) + 1 :] for name in names if name.startswith(f"{family}/")]
