"""Entries of the partition ``column_stats`` of Hudi's metadata table, from our own statistics.

Bounds of a file may be wider than its values: deleted rows count, and long texts are cut. A file
without usable statistics of an indexed column has no entries, so Hudi's readers always read it.
That also holds for a file with NaN: Spark caches the bounds, and takes a bound that is NaN for
smaller than all numbers. Nulls stand for a column that is newer than a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes import values as order
from indexes.arrays import flags, mask
from indexes.base import BoolArray
from indexes.column_stats import STATS_SCHEMA
from mdt.hudi import column_stats_records
from mdt.hudi.avro_schema import COMMIT_TIME, PARTITION_PATH, RECORD_KEY
from mdt.hudi.column_stats_records import FORMS, RANGES, FileKeys, Form1
from mdt.hudi.metadata_table_files import COLUMN_STATS
from mdt.hudi.plain_arrays import plain
from mdt.hudi.read import hfile_entries
from mdt.hudi.read.fields import Fields
from mdt.limits import SEGMENTS_PER_COMMIT_MAX
from mdt.metadata import references
from mdt.metadata.files import paths
from mdt.metadata.log.checkpoint_columns import no_rows
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema import versions
from mdt.schema.definition import TableDefinition
from mdt.schema.names import avro_name

COLUMNS_MAX = 32
"""Columns that Hudi indexes unless ``hoodie.metadata.index.column.stats.column.list`` names some.
Its next writer would index the same ones.
"""
_META = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY)
"""Meta columns that Hudi always indexes."""
_FILES = ["partition", "name", "instant", "rows"]
_WHOLE = -1
"""The row group number of statistics for a whole file."""
_LAST_ASCII = b"\x7f"


@dataclass(frozen=True, slots=True)
class Indexed:
    """The content of the index.

    Attributes:
        columns: Indexed columns of the table -> names in Hudi's files.
        form: The form of bounds.
    """

    columns: Mapping[str, str]
    form: Form1

    @classmethod
    def default(cls, definition: TableDefinition) -> Indexed:
        """Return the content of the index that our commits keep."""
        return cls(columns(definition), FORMS[definition.hudi_version])

    @classmethod
    def from_hudi(cls, definition: TableDefinition, fields: Fields) -> Indexed | None:
        """Return the content that Hudi's definition of the index states, or None if our statistics
        lack a part of it.

        Args:
            fields: The definition, see :func:`index_definition`.

        Raises Corrupt.
        """
        forms = {form.version: form for form in FORMS.values()}
        version, sources = fields.text("version"), fields.texts("sourceFields")
        if version not in forms or not {*_META} <= {*sources}:
            return None
        stored = {avro_name(field.name): field for field in definition.schema}
        names = [name for name in sources if name not in _META]
        for name in names:
            if name not in stored or not forms[version].supports(stored[name].type):
                return None
        return cls({stored[name].name: name for name in names}, forms[version])


@dataclass(frozen=True, slots=True)
class _Files:
    """Data files that are added together.

    Attributes:
        table: Columns _FILES.
        segments: Their segment numbers, int64[n].
        statistics: Returns statistics by name -> STATS_SCHEMA [n], null where there are none.
    """

    table: pa.Table
    segments: npt.NDArray[np.int64]
    statistics: Callable[[str], pa.Table]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the indexed columns of data files.

    Attributes:
        table: Columns _FILES.
        form: The form of bounds.
        ranges: Name of a column in Hudi's files -> its type, and RANGES [n].
        is_usable: Which files have usable bounds of all columns, bool[n]. Only they get entries.
    """

    table: pa.Table
    form: Form1
    ranges: Mapping[str, tuple[pa.DataType, pa.Table]]
    is_usable: BoolArray

    @classmethod
    def from_record(
        cls, record: CommitRecord, definition: TableDefinition, indexed: Indexed | None = None
    ) -> Bounds:
        """Return the bounds of the files that a record adds.

        Args:
            definition: Of the snapshot at the record.
            indexed: The content of the index, by default that of ours.
        """
        return _bounds(_files_of(record), definition, indexed or Indexed.default(definition))

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, definition: TableDefinition) -> Bounds:
        """Return the bounds of all live files, in our index. O(files).

        Args:
            definition: Of the snapshot, or of a later one.
        """
        return _bounds(_live_files(snapshot), definition, Indexed.default(definition))

    @property
    def is_complete(self) -> bool:
        """True if all files have entries."""
        return bool(self.is_usable.all())

    def entries(self) -> Iterator[pa.RecordBatch]:
        """Yield the entries of each column, unsorted."""
        places = pa.array(np.flatnonzero(self.is_usable))
        if not len(places):
            return
        partitions, names = (plain(self.table[name]) for name in ("partition", "name"))
        keys = FileKeys.from_files(
            partitions.take(places).to_pylist(), names.take(places).to_pylist()
        )
        for file_name, (type, table) in self.ranges.items():
            part = table.take(places)
            yield column_stats_records.entries(self.form, keys, file_name, type, part)


def has_partitions(definition: TableDefinition) -> bool:
    """Return True if commits keep bounds of partitions, too, if all files have entries.

    Filters of Hudi 1.2 on binary columns fail if partitions have bounds of them.
    """
    types = (definition.schema.field(name).type for name in columns(definition))
    if any(order.kind_of(type) == "binary" for type in types):
        return False
    return needs_all_files(definition) and definition.parsed.hudi_partition_stats


def needs_all_files(definition: TableDefinition) -> bool:
    """Return True if all files must have entries.

    In version 9 Hudi's writers derive bounds of partitions from those of the files that have some.
    """
    return definition.hudi_version >= 9 and bool(definition.partition_by)


def columns(definition: TableDefinition) -> dict[str, str]:
    """Return the indexed columns of the table: name -> name in Hudi's files.

    Columns of our statistics, of types that have bounds in Hudi, at most as many as Hudi indexes.
    """
    chosen, form = definition.parsed.column_stats_columns, FORMS[definition.hudi_version]
    names = [f.name for f in definition.schema if form.supports(f.type)]
    if chosen is None:
        names = names[:COLUMNS_MAX]
    else:
        names = [name for name in names if name in chosen]
    return {name: avro_name(name) for name in names}


def index_definition(definition: TableDefinition) -> dict[str, Any]:
    """Return Hudi's definition of the index, as JSON values."""
    return {
        "indexName": COLUMN_STATS,
        "indexType": COLUMN_STATS,
        "indexFunction": COLUMN_STATS,
        "sourceFields": [*_META, *columns(definition).values()],
        "indexOptions": {},
        "version": FORMS[definition.hudi_version].version,
    }


def snapshot_entries(
    metadata: Metadata, snapshot: Snapshot, definition: TableDefinition
) -> pa.RecordBatch:
    """Return the entries of the data files of all readable snapshots, sorted by key. O(files).

    Files that only tagged snapshots have get no entries.

    Args:
        definition: Of the snapshot, or of a later one.
    """
    bounds = _readable_bounds(metadata, snapshot, definition)
    return hfile_entries.sort(chain.from_iterable(part.entries() for part in bounds))


def record_entries(bounds: Bounds, record: CommitRecord) -> pa.RecordBatch:
    """Return the entries of the files that a record adds and cleans, sorted by key.

    Args:
        bounds: Of the files that it adds.
    """
    parts = list(bounds.entries())
    cleaned = references.cleaned_hudi_files(record)
    if cleaned:
        keys = FileKeys.from_files(*map(list, zip(*cleaned, strict=True)))
        for column in bounds.ranges:
            parts.append(column_stats_records.deletions(bounds.form, keys, column))
    return hfile_entries.sort(parts)


def snapshot_partition_entries(
    metadata: Metadata, snapshot: Snapshot, definition: TableDefinition
) -> pa.RecordBatch:
    """Return the entries of ``partition_stats`` for the data files of all readable snapshots,
    sorted by key. O(files).

    Args:
        definition: Of the snapshot, or of a later one.
    """
    return partition_entries(list(_readable_bounds(metadata, snapshot, definition)))


def partition_entries(bounds: Sequence[Bounds]) -> pa.RecordBatch:
    """Return entries of ``partition_stats`` for the partitions of files, sorted by key.

    Readers join those of a record with the earlier ones of the same partition. Files that a record
    removes change nothing, so the bounds may be wider than the values.
    """
    parts: list[pa.RecordBatch] = []
    partitions = plain(pa.concat_tables(part.table for part in bounds)["partition"])
    if not len(partitions):
        return hfile_entries.sort(parts)
    order_of, starts = _runs(partitions)
    keys = FileKeys.from_partitions(partitions.take(order_of.take(starts)).to_pylist())
    for name, (type, _) in bounds[0].ranges.items():
        table = pa.concat_tables(part.ranges[name][1] for part in bounds)
        joined = _joined(table.take(order_of), starts)
        parts.append(column_stats_records.entries(bounds[0].form, keys, name, type, joined))
    return hfile_entries.sort(parts)


def _runs(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the order of ``values``, and the places in it where another value begins."""
    order_of = pc.sort_indices(values)
    ranks = values.take(order_of).dictionary_encode().indices.to_numpy()
    starts = np.flatnonzero(np.diff(ranks, prepend=-1))
    return order_of, pa.array(starts)


def _joined(ranges: pa.Table, starts: pa.Array) -> pa.Table:
    """Return the ranges of runs of files -> RANGES, a row for each of ``starts``."""
    first = starts.to_numpy()
    runs = np.zeros(len(ranges), np.int64)
    runs[first[1:]] = 1
    runs = pa.array(np.cumsum(runs))
    ends = []
    for end, direction in (("min", "ascending"), ("max", "descending")):
        places = pc.sort_indices(
            pa.table([runs, ranges[end]], ["run", "end"]),
            sort_keys=[("run", "ascending"), ("end", direction)],
        )
        ends.append(plain(ranges[end]).take(places.take(starts)))
    sums = (np.add.reduceat(ranges[name].to_numpy(), first) for name in ("rows", "nulls", "bytes"))
    return pa.table([*ends, *map(pa.array, sums)], schema=RANGES)


def _readable_bounds(
    metadata: Metadata, snapshot: Snapshot, definition: TableDefinition
) -> Iterator[Bounds]:
    """Yield the bounds of the files of all readable snapshots, each file once."""
    horizon = snapshot.retention.horizon
    yield Bounds.from_snapshot(metadata.state(horizon), definition)
    for record in metadata.records(horizon + 1, snapshot.seq):
        yield Bounds.from_record(record, definition)


def _live_files(snapshot: Snapshot) -> _Files:
    numbers = snapshot.live_numbers
    table = snapshot.files.take(_FILES, numbers)
    is_hudis = _is_hudis(table)
    numbers = numbers[is_hudis]

    def statistics(name: str) -> pa.Table:
        stored = snapshot.column_stats(name)
        if stored is None:
            return no_rows(STATS_SCHEMA).take(pa.nulls(len(numbers), pa.int64()))
        return stored.take(pa.array(numbers))

    return _Files(table.filter(mask(is_hudis)), snapshot.segment_ids[numbers], statistics)


def _files_of(record: CommitRecord) -> _Files:
    files, stats = record.table("files"), record.table("stats")
    files = files.filter(mask(_is_hudis(files)))
    stats = stats.filter(pc.equal(stats["row_group"], _WHOLE)).combine_chunks()

    def statistics(name: str) -> pa.Table:
        named = stats.filter(pc.equal(stats["column"], name))
        places = pc.index_in(files["segment"], named["segment"])
        return named.select(STATS_SCHEMA.names).take(places)

    segments = files["segment"].to_numpy() + record.seq * SEGMENTS_PER_COMMIT_MAX
    return _Files(files.select(_FILES), segments, statistics)


def _is_hudis(table: pa.Table) -> BoolArray:
    """Return True for each file that Hudi knows, bool[n]."""
    return flags(pc.invert(pc.match_substring(table["name"], paths.MERGED_MARK)))


def _bounds(files: _Files, definition: TableDefinition, indexed: Indexed) -> Bounds:
    ranges: dict[str, tuple[pa.DataType, pa.Table]] = {}
    is_usable = np.ones(len(files.table), np.bool_)
    local_times = definition.local_times
    for name, file_name in indexed.columns.items():
        type = local_times.get(name, definition.schema.field(name).type)
        table, usable = _ranges(files, definition, name)
        ranges[file_name] = type, table
        is_usable &= usable
    key_ranges, usable = _key_ranges(files, definition)
    is_usable &= usable
    instants, partitions = (plain(files.table[name]) for name in ("instant", "partition"))
    ranges |= {
        COMMIT_TIME: (pa.string(), _text_ranges(files, b"", instants)),
        PARTITION_PATH: (pa.string(), _text_ranges(files, partitions, partitions)),
        RECORD_KEY: (pa.string(), key_ranges),
    }
    return Bounds(files.table, indexed.form, ranges, is_usable)


def _ranges(files: _Files, definition: TableDefinition, name: str) -> tuple[pa.Table, BoolArray]:
    """Return the ranges of a column -> RANGES [n], and where they are usable -> bool[n]."""
    stats = files.statistics(definition.statistics_name(name))
    rows = files.table["rows"].to_numpy()
    nulls = _counts(stats["nulls"])
    is_same, is_added = _presence(files, definition, name)
    has_values = nulls < rows
    is_known = is_same & (_counts(stats["values"]) == rows) & (nulls >= 0) & (nulls <= rows)
    has_bounds = flags(plain(pc.and_(stats["min"].is_valid(), stats["max"].is_valid())))
    if order.kind_of(definition.schema.field(name).type) == "float":
        has_bounds &= _counts(stats["nans"]) == 0
    is_known &= has_bounds | ~has_values
    is_null = is_added | (rows == 0)
    has_range = is_known & has_values & ~is_null
    ends = (pc.if_else(pa.array(has_range), plain(stats[end]), None) for end in ("min", "max"))
    counts = (rows, np.where(has_range, nulls, rows), np.maximum(_counts(stats["bytes"]), 0))
    return pa.table([*ends, *map(pa.array, counts)], schema=RANGES), is_known | is_null


def _presence(files: _Files, definition: TableDefinition, name: str) -> tuple[BoolArray, BoolArray]:
    """Return for each file whether it has a column under its name, and whether the column is newer
    and null in it -> bool[n] each.

    A file may also have the column under another name, or a default in its place.
    """
    count = len(files.segments)
    if not definition.versions:
        return np.ones(count, np.bool_), np.zeros(count, np.bool_)
    current = next(
        c for c in definition.versions[-1].file_columns if c.field.name == avro_name(name)
    )
    has_default = any(current.id in version.defaults for version in definition.versions)
    is_same, is_added = [], []
    for version in definition.versions:
        ids = {column.id: column for column in version.file_columns}
        older = ids.get(current.id)
        has_name = current.field.name in {column.field.name for column in version.file_columns}
        is_same.append(older is not None and older.field.name == current.field.name)
        is_added.append(older is None and not has_name and not has_default)
    numbers = np.maximum(versions.numbers_of(definition.versions, files.segments), 0)
    return np.array(is_same)[numbers], np.array(is_added)[numbers]


def _key_ranges(files: _Files, definition: TableDefinition) -> tuple[pa.Table, BoolArray]:
    """Return the ranges of record keys, and where they are usable."""
    always = np.ones(len(files.table), np.bool_)
    first = avro_name(definition.key[0])
    if len(definition.key) > 1 or definition.names_key:  # they begin with the name of a column
        return _text_ranges(files, f"{first}:".encode(), f"{first};".encode()), always
    if definition.schema.field(definition.key[0]).type == pa.string():
        return _ranges(files, definition, definition.key[0])
    return _text_ranges(files, b"", _LAST_ASCII), always  # of digits and letters


def _text_ranges(files: _Files, low: bytes | pa.Array, high: bytes | pa.Array) -> pa.Table:
    """Return ranges of a text column without nulls."""
    rows = files.table["rows"].to_numpy()
    ends = []
    for end in (low, high):
        bound = pa.scalar(end, pa.binary()) if isinstance(end, bytes) else end.cast(pa.binary())
        ends.append(pc.if_else(pa.array(rows > 0), bound, None))
    counts = (rows, np.zeros_like(rows), np.zeros_like(rows))
    return pa.table([*ends, *map(pa.array, counts)], schema=RANGES)


def _counts(values: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return int64[n], -1 for null."""
    return values.fill_null(-1).to_numpy()
