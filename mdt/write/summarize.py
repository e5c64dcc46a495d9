"""Column statistics and index summaries of new files.

Column statistics describe a file. An index summary describes a *shard*: consecutive files of a
commit or task with up to a million rows in all. A plan thus reads few large summaries instead of
many small ones.

:func:`summarize_indexes` extracts the index input of a file, :func:`form_shards` forms shards, and
:func:`summaries_of_shard` summarizes them. Later index builds use the same functions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Generic, TypeVar

import pyarrow as pa

from indexes import column_stats, paths, values
from indexes.base import SkippingIndex
from mdt.config import Options
from mdt.limits import (
    INLINE_INDEX_BYTES_MAX,
    SHARD_BYTES_MAX,
    SHARD_ROWS_MAX,
    SHARD_SEGMENT_ROWS_MAX,
)
from mdt.metadata.files.attachments import AttachmentWriter
from mdt.metadata.files.file_group import Shard, SummaryRef
from mdt.metadata.skipping_indexes import index_of, pack_parts, parts_of, values_of
from mdt.schema.definition import TableDefinition
from mdt.session import memo

T = TypeVar("T")
LeafStats = Mapping[str, Sequence[column_stats.Stats]]
"""Leaf column -> statistics of each row group of a segment."""
_SMALL_FILE_ROWS = 1000
_FEW_LEAVES = 100
"""Maximum number of leaves of a small file whose statistics are collected with those of other
files. Creating a table of them takes as long as computing all its values.
"""


@dataclass(frozen=True, slots=True)
class Indexed:
    """Index input from a file, by index specification.

    Attributes:
        columns: Values for indexes that find rows.
        parts: (first row, summary) of each part of the file, for the other indexes.
        rows: Number of rows of the file.
        widest: Bytes of its largest column.
        finished: Summaries, if the file is a shard of its own.
    """

    columns: Mapping[str, pa.Array] = field(default_factory=dict)
    parts: Mapping[str, Sequence[tuple[int, bytes]]] = field(default_factory=dict)
    rows: int = 0
    widest: int = 0
    finished: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def is_alone(self) -> bool:
        """True if the file is a shard of its own because it is large or empty."""
        return not 0 < self.rows <= SHARD_SEGMENT_ROWS_MAX


@dataclass(frozen=True, slots=True)
class Summaries:
    """Column statistics and index input of a segment.

    Attributes:
        stats: Rows of STATS without segment numbers, or None.
        few: Replaces ``stats`` for a small file. Input of :func:`stats_of_small_files`.
    """

    stats: pa.Table | None = None
    indexes: Indexed = field(default_factory=Indexed)
    few: LeafStats | None = None


def summarize(
    definition: TableDefinition, options: Options, table: pa.Table, row_groups: tuple[int, ...]
) -> Summaries:
    """Return the summaries of a segment.

    Args:
        row_groups: Number of rows in each row group.
    """
    leaves = _leaf_stats(definition, options, table, row_groups)
    indexed = _with_summaries(definition, summarize_indexes(definition.indexes, table, row_groups))
    if len(row_groups) == 1 and len(table) < _SMALL_FILE_ROWS and len(leaves) <= _FEW_LEAVES:
        return Summaries(None, indexed, leaves)
    return Summaries(_stats_table(definition, leaves), indexed)


def stats_of_small_files(
    definition: TableDefinition, files: Sequence[LeafStats]
) -> list[pa.Table | None]:
    """Return :attr:`Summaries.stats` of each file. The files have a single row group each."""
    if not files:
        return []
    names = {
        path: definition.statistics_name(path)
        for path in {path for leaves in files for path in leaves}
    }
    columns = [names[path] for leaves in files for path in leaves]
    whole = _table_of(
        columns, [-1] * len(columns), [part for leaves in files for (part,) in leaves.values()]
    )
    starts = accumulate(map(len, files), initial=0)
    return [
        whole.slice(start, len(leaves)) if leaves else None
        for start, leaves in zip(starts, files, strict=False)
    ]


def _with_summaries(definition: TableDefinition, indexed: Indexed) -> Indexed:
    """Return ``indexed`` with summaries if its file is a shard of its own."""
    if not indexed.is_alone or not indexed.rows:
        return indexed
    return replace(
        indexed,
        columns={},
        parts={},
        finished=summaries_of_shard(definition.indexes, [(0, indexed)]),
    )


def summarize_columns(
    definition: TableDefinition, options: Options, table: pa.Table, row_groups: tuple[int, ...]
) -> pa.Table | None:
    """Return the column statistics of a segment: STATS without segment numbers and without rows for
    single row groups.

    Fields of structs have their own statistics. Selecting a struct selects all its fields.
    """
    return _stats_table(definition, _leaf_stats(definition, options, table, row_groups))


def _leaf_stats(
    definition: TableDefinition, options: Options, table: pa.Table, row_groups: Sequence[int]
) -> dict[str, list[column_stats.Stats]]:
    """Return leaf column -> statistics of each row group."""
    chosen = options.column_stats_columns
    selected = {*(chosen or ()), *definition.key, *definition.partition_by}
    stats_of_leaves: dict[str, list[column_stats.Stats]] = {}
    for path, leaf in _leaves(definition.schema):
        if values.supports(leaf.type) and (chosen is None or _is_chosen(path, selected)):
            stats_of_leaves[path] = column_stats.summarize_row_groups(
                paths.column_at(table, path), row_groups
            )
    return stats_of_leaves


def _stats_table(definition: TableDefinition, leaves: LeafStats) -> pa.Table | None:
    columns: list[str] = []
    row_group: list[int] = []
    stats: list[column_stats.Stats] = []
    for path, parts in leaves.items():
        stats.append(column_stats.merge(parts))
        row_group.append(-1)
        if len(parts) > 1:
            stats += parts
            row_group += range(len(parts))
        columns += [definition.statistics_name(path)] * (len(stats) - len(columns))
    return _table_of(columns, row_group, stats) if stats else None


def _table_of(
    columns: list[str], row_group: list[int], stats: Sequence[column_stats.Stats]
) -> pa.Table:
    batch = column_stats.to_batch(stats)
    columns_of = dict(zip(batch.schema.names, batch.columns, strict=True))
    return pa.table({"column": columns, "row_group": pa.array(row_group, pa.int32()), **columns_of})


@memo(16)
def _leaves(schema: pa.Schema) -> tuple[tuple[str, pa.Field], ...]:
    """Return (path, field) of every non-struct column. Cached, because many small files ask for the
    same schema.
    """
    return tuple(paths.leaf_paths(schema))


def _is_chosen(path: str, selected: set[str]) -> bool:
    """Return True if ``selected`` contains ``path`` or a struct that contains it."""
    return any(path == name or path.startswith(name + ".") for name in selected)


def summarize_indexes(specs: Sequence[str], table: pa.Table, row_groups: Sequence[int]) -> Indexed:
    """Extract the input of all indexes in ``specs`` from a file.

    Indexes that are not installed or that fail leave the shard uncovered. A broken third-party
    index costs query time but never fails a write.

    Args:
        row_groups: Number of rows in each row group.
    """
    columns, parts = {}, {}
    for text in specs:
        spec, index = index_of(text)
        if isinstance(index, SkippingIndex):
            with suppress(Exception):  # third-party indexes may raise anything
                if index.finds_rows:
                    columns[text] = values_of(table, spec.columns, index)
                else:
                    parts[text] = parts_of(index, table, spec.columns, row_groups)
    widest = max((column.nbytes for column in table.columns), default=0)
    return Indexed(columns, parts, len(table), widest)


class RowGroupSummaries:
    """Summaries of a segment whose row groups arrive one by one. Same result as :func:`summarize`.
    Not thread-safe.

    Columns are kept in memory only for indexes that find rows or need all row groups at a time.
    """

    def __init__(self, definition: TableDefinition, options: Options) -> None:
        self._definition, self._options = definition, options
        self._row_groups: list[int] = []
        self._leaves: dict[str, list[column_stats.Stats]] = {}
        self._sizes: dict[str, int] = {}
        self._parts: dict[str, list[tuple[int, bytes]]] = {}
        self._groups: list[pa.Table] = []
        indexes = {text: index_of(text) for text in definition.indexes}
        self._by_group = [text for text, (_, index) in indexes.items() if _is_by_group(index)]
        self._at_end = [text for text in indexes if text not in self._by_group]
        ways = [
            paths.steps(definition.schema, path)
            for text in self._at_end
            for path in indexes[text][0].columns
        ]
        self._columns = sorted({definition.schema.names[way[0]] for way in ways if way is not None})

    def add(self, group: pa.Table) -> None:
        """Add the rows of the next row group."""
        first, rows = sum(self._row_groups), [len(group)]
        self._row_groups += rows
        for path, stats in _leaf_stats(self._definition, self._options, group, rows).items():
            self._leaves.setdefault(path, []).extend(stats)
        for name, column in zip(group.column_names, group.columns, strict=True):
            self._sizes[name] = self._sizes.get(name, 0) + column.nbytes
        for text, parts in summarize_indexes(self._by_group, group, rows).parts.items():
            self._parts.setdefault(text, []).extend((first + at, summary) for at, summary in parts)
        self._groups.append(group.select(self._columns))

    def finish(self) -> Summaries:
        """Return the summaries of all rows, at least one."""
        indexed = summarize_indexes(self._at_end, pa.concat_tables(self._groups), self._row_groups)
        self._groups.clear()
        whole = {
            text: parts
            for text, parts in self._parts.items()
            if len(parts) == len(self._row_groups)
        }
        indexed = replace(
            indexed,
            parts={**indexed.parts, **whole},
            rows=sum(self._row_groups),
            widest=max(self._sizes.values(), default=0),
        )
        return Summaries(
            _stats_table(self._definition, self._leaves), _with_summaries(self._definition, indexed)
        )


def _is_by_group(index: SkippingIndex | str) -> bool:
    """Return True if the index summarizes each row group independently."""
    return isinstance(index, SkippingIndex) and not index.finds_rows and index.row_groups


def summaries_of_shard(
    specs: Iterable[str], files: Sequence[tuple[int, Indexed]]
) -> dict[str, bytes]:
    """Return specification -> summary of a shard, without failing indexes.

    Args:
        files: (position of the first row in the shard, index input) of each file, in order. Gaps
            are files that were removed. An index that finds rows gets nulls there.
    """
    summaries = {}
    for text in specs:
        _, index = index_of(text)
        if isinstance(index, SkippingIndex):
            with suppress(Exception):  # third-party indexes may raise anything
                summaries[text] = _summarize_index(index, text, files)
    return summaries


def _summarize_index(
    index: SkippingIndex, spec: str, files: Sequence[tuple[int, Indexed]]
) -> bytes:
    """Return the summary of all files. Raises KeyError if the index has failed on any of them."""
    if not index.finds_rows:
        return pack_parts(
            [(first + at, part) for first, file in files for at, part in file.parts[spec]]
        )
    columns, end = [], 0
    for first, file in files:
        column = file.columns[spec]
        if first > SHARD_ROWS_MAX:
            raise ValueError(f"row {first} is beyond the {SHARD_ROWS_MAX} rows of a shard")
        if first > end:
            columns.append(_nulls(first - end, column.type))
        columns.append(column)
        end = first + file.rows
    if len(columns) == 1:
        return index.summarize(columns[0])
    return index.summarize(pa.concat_arrays(columns))


def _nulls(rows: int, type: pa.DataType) -> pa.Array:
    """Return rows that match no predicate. A struct of several columns has null fields, but is not
    null itself.
    """
    if not pa.types.is_struct(type):
        return pa.nulls(rows, type)
    return pa.StructArray.from_arrays(
        [pa.nulls(rows, field.type) for field in type], fields=list(type)
    )


def store_summary(objects: AttachmentWriter, summary: bytes) -> SummaryRef:
    """Return a summary as stored in a commit record: inline if small, else as a reference to
    ``objects``.
    """
    if len(summary) <= INLINE_INDEX_BYTES_MAX:
        return summary
    return objects.add(summary)


def form_shards(
    objects: AttachmentWriter, files: Iterable[tuple[T, Indexed]], *, threads: int
) -> Iterator[tuple[T, Shard, int]]:
    """Form shards. Yield (file, its shard, position of its first row in the shard).

    Args:
        files: (any id, index input) of each file, in order. Only the input of the last few shards
            is in memory.
        threads: Number of shards to summarize concurrently.
    """
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[_OpenShard[T]] = deque()
        for shard in _cut_shards(files):
            waiting.append(shard.start(pool))
            if len(waiting) > threads:
                yield from waiting.popleft().finish(objects)
        for shard in waiting:
            yield from shard.finish(objects)


@dataclass(slots=True)
class _OpenShard(Generic[T]):
    """A shard under construction."""

    files: list[tuple[T, Indexed]] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    summaries: Future[dict[str, bytes]] | None = None

    def takes(self, indexed: Indexed) -> bool:
        """Return True if another file is within the limits."""
        if not self.files:
            return True
        if indexed.is_alone or self.files[0][1].is_alone:
            return False
        return (
            self.rows + indexed.rows <= SHARD_ROWS_MAX
            and self.size + indexed.widest <= SHARD_BYTES_MAX
        )

    def add(self, file: tuple[T, Indexed]) -> None:
        self.files.append(file)
        self.rows += file[1].rows
        self.size += file[1].widest

    def start(self, pool: Executor) -> _OpenShard[T]:
        """Summarize in ``pool``. The index input is released afterwards."""
        inputs = [indexed for _, indexed in self.files]
        if specs := {*inputs[0].columns, *inputs[0].parts}:
            starts = accumulate((indexed_file.rows for indexed_file in inputs), initial=0)
            members = list(zip(starts, inputs, strict=False))
            self.summaries = pool.submit(summaries_of_shard, sorted(specs), members)
            self.files = [
                (name, replace(indexed_file, columns={}, parts={}))
                for name, indexed_file in self.files
            ]
        return self

    def finish(self, objects: AttachmentWriter) -> Iterator[tuple[T, Shard, int]]:
        """Wait for the summaries and yield the results of :func:`form_shards`."""
        summaries = self.files[0][1].finished
        if self.summaries is not None:
            summaries = self.summaries.result()
        shard = Shard(
            tuple((spec, store_summary(objects, data)) for spec, data in summaries.items())
        )
        first = 0
        for name, indexed in self.files:
            yield name, shard, first
            first += indexed.rows


def _cut_shards(files: Iterable[tuple[T, Indexed]]) -> Iterator[_OpenShard[T]]:
    """Form shards of consecutive files within the limits."""
    shard: _OpenShard[T] = _OpenShard()
    for file in files:
        if not shard.takes(file[1]):
            yield shard
            shard = _OpenShard()
        shard.add(file)
    if shard.files:
        yield shard
