"""Generators that several suites share: kinds of tables, and rows that collide in every way."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import permutations
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from indexes.predicate import And, Or, Predicate
from indexes.testing import predicates
from mdt.errors import Invalid
from mdt.filters.comparison import Comparison
from mdt.filters.comparison_kernels import COMPARISONS, compare
from mdt.filters.expression_tree import Field

Row = dict[str, Any]

_ORDERINGS: dict[str, Any] = {
    "long": pa.int64(),
    "double": pa.float64(),
    "time": pa.timestamp("us", "UTC"),
    "day": pa.date32(),
    "decimal": pa.decimal128(18, 3),
    "text": pa.string(),
}
KEYS = {
    "text": pa.array([f"k{n}" for n in range(10)]),
    "number": pa.array([-(2**63), -10, -9, 0, 1, 2, 9, 10, 11, 2**63 - 1]),
    "day": pa.array([date(1000, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2026, 10, 9)]),
    "time": pa.array([-(10**15), -1, 0, 1, 99, 100], pa.timestamp("us", "UTC")),
}
"""Record keys by type, in the order of the type, which differs from the order of their text."""
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_CITIES = ("x", "ä 50%/[z]", None)
NUMBERS = (math.nan, -math.inf, math.inf, -0.0, 0.0, 1.5, None)
TEXTS_IN_ORDER = ("", "2026-10-", "2026-10-09", "2026-10-09T1", "ä", "\uffff", "\U0001f600")
"""In the order of code points. Some have the same first eight bytes, and the last two are in the
opposite order in UTF-16.
"""
NOTES = ("", "a", "a%_b", "\U0010ffff", "p" * 70 + "a", "p" * 70 + "b", None)


HUDI_INDEXES = (
    "mdt.hudi.record.index",
    "mdt.hudi.partition.stats",
    "mdt.hudi.secondary.index",
    "mdt.hudi.bloom.filters",
    "mdt.write.footer.bloom",
)
"""Options for indexes of Hudi's metadata table."""


@dataclass(frozen=True)
class Shape:
    """A kind of table.

    Attributes:
        levels: The number of partition columns, 0 to 2.
        ordering: The kind of the ordering field, or None.
        declared: Whether columns have types that are stored as other types.
        compact_log_files, joined_min: The number of log files and of small file groups that a table
            compacts or joins by itself.
        joins_logs: Whether log files are always joined, as if base files were large.
        moves: Whether rows with another partition move there, under table scope.
        remembers: Whether deleted keys keep their ordering value, if there is an ordering field.
        by_year: Whether one partition column is a time, and its paths are years.
        footers: Whether the Bloom index reads the footers of base files.
        lists: Whether commits maintain Hudi's metadata table.
        bounds: Whether it has column statistics.
        all_indexes: Whether it has all other indexes of Hudi that the table can have.
        formats: The other formats whose readers read the table.
    """

    table_type: str
    key_index: str
    scope: str
    levels: int
    ordering: str | None
    composite: bool
    key_type: str
    declared: bool
    max_file_bytes: int
    row_group_rows: int
    compact_records: int
    compact_log_files: int
    joined_min: int
    joins_logs: bool
    positions: bool
    moves: bool = True
    remembers: bool = False
    by_year: bool = False
    footers: bool = False
    version: int = 6
    lists: bool = False
    bounds: bool = False
    all_indexes: bool = False
    formats: tuple[str, ...] = ()

    @property
    def has_time_paths(self) -> bool:
        """Whether partition paths are the year of ``day``. Hudi's key generator of times supports
        one partition column and one key column.
        """
        return self.by_year and self.levels == 1 and not self.composite and self.moves

    @property
    def has_all_indexes(self) -> bool:
        """Whether a table has all indexes of Hudi. In version 6, its record index is one of the
        whole table.
        """
        is_possible = self.version == 9 or self.scope == "table" or not self.levels
        return self.all_indexes and is_possible

    @property
    def keeps_deletes(self) -> bool:
        return self.remembers and self.ordering not in (None, "text")

    @property
    def key(self) -> tuple[str, ...]:
        return ("id", "sub") if self.composite else ("id",)

    @property
    def has_buckets(self) -> bool:
        """Whether new rows go to the file group of their bucket, so that no other rule may place
        them.
        """
        return self.key_index.startswith("bucket")

    @property
    def partition_by(self) -> tuple[str, ...]:
        return ("day",) if self.has_time_paths else ("city", "day")[: self.levels]

    @property
    def schema(self) -> pa.Schema:
        fields = [
            ("id", KEYS[self.key_type].type),
            ("sub", pa.uint8() if self.declared else pa.int32()),
            ("city", pa.string()),
            ("day", pa.date32()),
        ]
        fields += [
            ("ts", _ORDERINGS[self.ordering or "long"]),
            ("x", pa.float64()),
            ("note", pa.dictionary(pa.int8(), pa.large_string()) if self.declared else pa.string()),
        ]
        return pa.schema(fields)

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of ``mdt.create`` besides path and schema."""
        options = {
            "hoodie.parquet.max.file.size": self.max_file_bytes,
            "mdt.row.group.rows": self.row_group_rows,
            "mdt.metadata.compact.records": self.compact_records,
            "mdt.compact.log.files": self.compact_log_files,
            "hoodie.write.record.positions": self.positions,
            "hoodie.bloom.index.use.metadata": not self.footers,
            "mdt.update.partition.path": self.moves,
            "mdt.delete.keeps.ordering": self.keeps_deletes,
            "mdt.partition.time.pattern": "yyyy" if self.has_time_paths else "",
            "hoodie.metadata.enable": self.lists or self.has_all_indexes,
            "hoodie.metadata.index.column.stats.enable": self.bounds or self.has_all_indexes,
            **dict.fromkeys(HUDI_INDEXES, self.has_all_indexes),
            "mdt.formats": ",".join(("hudi", *self.formats)),
            "mdt.formats.retain.hours": 0,
        }
        return {
            "key": self.key,
            "partition_by": self.partition_by,
            "ordering": "ts" if self.ordering else None,
            "table_type": self.table_type,
            "key_index": self.key_index,
            "scope": self.scope,
            "version": self.version,
            "indexes": ["bitmap(note)", "bitmap(day)"] if self.has_all_indexes else (),
            "options": options,
        }

    @property
    def located_by(self) -> tuple[str, ...]:
        """The columns that identify a row and its partition."""
        return tuple(dict.fromkeys((*self.key, *self.partition_by)))

    @property
    def identified_by(self) -> tuple[str, ...]:
        """The columns that a delete needs."""
        return self.located_by if self.scope == "partition" else self.key

    def is_older(self, row: Row, other: Row) -> bool:
        """Return whether another row of the same key wins by its ordering value."""
        return self.ordering is not None and rank(row) < rank(other)

    def partition(self, row: Row) -> tuple[Any, ...]:
        """Return the values that determine the partition of ``row``."""
        return (
            (row["day"] and row["day"].year,)
            if self.has_time_paths
            else tuple(row[name] for name in self.partition_by)
        )

    def updated(self, old: Row | None, new: Row) -> Row:
        """Return a row after an update by ``new``, which has its key. Under table scope, it may
        stay in its partition.
        """
        if old is None or self.moves or self.scope == "partition":
            return new
        return new | {name: old[name] for name in self.partition_by}

    def identity(self, row: Row) -> tuple[Any, ...]:
        """Return the values that may be live only once: the key, and under partition scope the
        partition.
        """
        key = tuple(row[name] for name in self.key)
        return key if self.scope == "table" else (self.partition(row), key)


def rank(row: Row) -> Any:
    """Return the ordering value as Hudi's readers compare it: -0.0 is below 0.0."""
    return (row["ts"], math.copysign(1.0, row["ts"])) if isinstance(row["ts"], float) else row["ts"]


KEY_INDEXES = (
    "bloom",
    "record",
    "simple",
    "bucket(buckets='3')",
    "bucket(buckets='2', partitions='(x|2026),3;1969,5')",
    "memory",
    "lmdb",
    "exact(bits='64')",
)
if only := os.environ.get("MDT_MODEL_KEY_INDEX"):
    KEY_INDEXES = (only,)


def shapes() -> st.SearchStrategy[Shape]:
    """Return a strategy for every kind of table. Files and row groups of a few rows are as frequent
    as large ones.
    """
    return st.builds(
        Shape,
        table_type=st.sampled_from(("MERGE_ON_READ", "COPY_ON_WRITE")),
        key_index=st.sampled_from(KEY_INDEXES),
        scope=st.sampled_from(("partition", "table")),
        levels=st.sampled_from((0, 1, 2)),
        ordering=st.sampled_from((None, *_ORDERINGS)),
        composite=st.booleans(),
        key_type=st.sampled_from(tuple(KEYS)),
        declared=st.booleans(),
        max_file_bytes=st.sampled_from((1024, 8192, 1 << 20)),
        row_group_rows=st.sampled_from((2, 5, 1024)),
        compact_records=st.sampled_from((2, 5, 32)),
        compact_log_files=st.sampled_from((10, 1, 2)),
        joined_min=st.sampled_from((8, 2)),
        joins_logs=st.booleans(),
        positions=st.booleans(),
        moves=st.sampled_from((True, True, False)),
        remembers=st.booleans(),
        by_year=st.booleans(),
        footers=st.booleans(),
        version=st.sampled_from((6, 9)),
        lists=st.booleans(),
        bounds=st.booleans(),
        all_indexes=st.booleans(),
        formats=st.sampled_from(((), ("delta",), ("iceberg",), ("delta", "iceberg"))),
    ).map(_possible)


def _possible(shape: Shape) -> Shape:
    """Return ``shape``, under partition scope if it has buckets."""
    return replace(shape, scope="partition") if shape.has_buckets else shape


def _ordering_values(shape: Shape) -> st.SearchStrategy[Any]:
    number = st.integers(-2, 3)
    if shape.ordering == "double":
        return st.sampled_from((-math.inf, -1.5, -0.0, 0.0, 0.5, math.inf))
    if shape.ordering == "decimal":
        return st.sampled_from(tuple(map(Decimal, ("-2", "-0.001", "0", "0.5", "10", "9.999"))))
    if shape.ordering == "text":
        return st.sampled_from(TEXTS_IN_ORDER)
    if shape.ordering == "time":
        return number.map(lambda n: _EPOCH + timedelta(microseconds=n))
    if shape.ordering == "day":
        return number.map(lambda n: date(1970, 1, 1) + timedelta(days=n))
    return number


def smallest_ordering_value(shape: Shape) -> Any:
    """Return the smallest value, or one below all generated values."""
    smallest = {
        "double": -math.inf,
        "decimal": Decimal(-2),
        "text": "",
        "time": _EPOCH - timedelta(microseconds=2),
        "day": date(1969, 12, 30),
    }
    return smallest.get(shape.ordering or "", -2)


def rows(shape: Shape, *, min_size: int = 1, max_size: int = 12) -> st.SearchStrategy[list[Row]]:
    """Return a strategy for rows of few keys, partitions and ordering values, so that they
    collide.
    """
    row = st.fixed_dictionaries(
        {
            "id": st.sampled_from(KEYS[shape.key_type].to_pylist()),
            "sub": st.integers(0, 1),
            "city": st.sampled_from(_CITIES),
            "day": st.sampled_from((date(2026, 1, 1), date(1969, 12, 31), date(2026, 6, 1))),
            "ts": _ordering_values(shape),
            "x": st.sampled_from(NUMBERS),
            "note": st.sampled_from(NOTES),
        }
    )
    return st.lists(row, min_size=min_size, max_size=max_size)


@st.composite
def conditions(draw: st.DrawFn, schema: pa.Schema, rows: pa.Table) -> Predicate:
    """Filters as tests of columns with literals, one in four with a comparison of two columns."""
    literal_test = draw(predicates(schema, rows))
    pairs = _comparable(schema)
    if not pairs or draw(st.integers(0, 3)):
        return literal_test
    left, right = draw(st.sampled_from(pairs))
    op = draw(st.sampled_from(sorted(COMPARISONS)))
    test = Comparison(f"{left} {op} {right}", op, Field(left), Field(right), draw(st.booleans()))
    return draw(st.sampled_from([test, And((literal_test, test)), Or((literal_test, test))]))


def _comparable(schema: pa.Schema) -> list[tuple[str, str]]:
    """Return the pairs of columns whose values Spark compares."""
    pairs = []
    for left, right in permutations(schema, 2):
        try:
            compare("=", pa.nulls(0, left.type), pa.nulls(0, right.type))
        except (Invalid, pa.ArrowException):
            continue
        pairs.append((left.name, right.name))
    return pairs
