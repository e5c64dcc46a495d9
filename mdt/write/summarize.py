"""Summaries of what was just written, from the same rows: column statistics and the table's
skipping indexes.

Column statistics are of a file; an index has one summary of a *shard*: the files of one commit (or
of one task) that follow each other, up to a million rows, so that a plan asks a few large summaries
instead of many small ones. :func:`summarize_indexes` looks at a file and puts aside what its
indexes need of it, :func:`sharded` cuts the shards, and :func:`summaries_of_shard` makes their
summaries; an index build makes them later in the same way.
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
"""Statistics of the row groups of one segment, by the leaves that have some."""
_SMALL_FILE_ROWS = 1000
_FEW_LEAVES = 100
"""Of a small file with so few leaves statistics wait for those of others: a table of them takes as
long to make as all of its values.
"""


@dataclass(frozen=True, slots=True)
class Indexed:
    """What the summaries of a shard need of one file, by index specification.

    ``columns``: what an index that finds rows summarizes.  ``parts``: of another one, the first row
    of each part of the file, and its summary.  ``rows``: of the file.  ``widest``: bytes of its
    largest column.  ``finished``: the summaries of a file that is a shard alone, of which nothing
    is put aside.
    """

    columns: Mapping[str, pa.Array] = field(default_factory=dict)
    parts: Mapping[str, Sequence[tuple[int, bytes]]] = field(default_factory=dict)
    rows: int = 0
    widest: int = 0
    finished: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def is_alone(self) -> bool:
        """Whether the file is a shard of its own: a large one, or one without rows."""
        return not 0 < self.rows <= SHARD_SEGMENT_ROWS_MAX


@dataclass(frozen=True, slots=True)
class Summaries:
    """``stats``: rows of STATS without segment numbers, or None.  ``few``: of a small file in the
    place of these, for :func:`stats_of_small_files`.
    """

    stats: pa.Table | None = None
    indexes: Indexed = field(default_factory=Indexed)
    few: LeafStats | None = None


def summarize(
    definition: TableDefinition, options: Options, table: pa.Table, row_groups: tuple[int, ...]
) -> Summaries:
    """Return the summaries of one segment.  ``row_groups``: rows of each row group."""
    leaves = _leaf_stats(definition, options, table, row_groups)
    found = _alone(definition, summarize_indexes(definition.indexes, table, row_groups))
    if len(row_groups) == 1 and len(table) < _SMALL_FILE_ROWS and len(leaves) <= _FEW_LEAVES:
        return Summaries(None, found, leaves)
    return Summaries(_stats_table(definition, leaves), found)


def stats_of_small_files(
    definition: TableDefinition, files: Sequence[LeafStats]
) -> list[pa.Table | None]:
    """Return what :attr:`Summaries.stats` is of each of the ``files``, which have one row group
    each.
    """
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


def _alone(definition: TableDefinition, found: Indexed) -> Indexed:
    """Return ``found`` with summaries, if its file is a shard of its own."""
    if not found.is_alone or not found.rows:
        return found
    return replace(
        found, columns={}, parts={}, finished=summaries_of_shard(definition.indexes, [(0, found)])
    )


def summarize_columns(
    definition: TableDefinition, options: Options, table: pa.Table, row_groups: tuple[int, ...]
) -> pa.Table | None:
    """Return the column statistics of one segment, STATS without segment numbers; single row groups
    are not kept apart.

    Fields of structs have statistics like columns; choosing a struct chooses all in it.
    """
    return _stats_table(definition, _leaf_stats(definition, options, table, row_groups))


def _leaf_stats(
    definition: TableDefinition, options: Options, table: pa.Table, row_groups: Sequence[int]
) -> dict[str, list[column_stats.Stats]]:
    """Return the statistics of each row group, by the leaves that have some."""
    chosen = options.column_stats_columns
    wanted = {*(chosen or ()), *definition.key, *definition.partition_by}
    found: dict[str, list[column_stats.Stats]] = {}
    for path, leaf in _leaves(definition.schema):
        if values.supports(leaf.type) and (chosen is None or _is_chosen(path, wanted)):
            found[path] = column_stats.summarize_row_groups(
                paths.column_at(table, path), row_groups
            )
    return found


def _stats_table(definition: TableDefinition, leaves: LeafStats) -> pa.Table | None:
    columns: list[str] = []
    row_group: list[int] = []
    found: list[column_stats.Stats] = []
    for path, parts in leaves.items():
        found.append(column_stats.merge(parts))
        row_group.append(-1)
        if len(parts) > 1:
            found += parts
            row_group += range(len(parts))
        columns += [definition.statistics_name(path)] * (len(found) - len(columns))
    return _table_of(columns, row_group, found) if found else None


def _table_of(
    columns: list[str], row_group: list[int], found: Sequence[column_stats.Stats]
) -> pa.Table:
    batch = column_stats.to_batch(found)
    columns_of = dict(zip(batch.schema.names, batch.columns, strict=True))
    return pa.table({"column": columns, "row_group": pa.array(row_group, pa.int32()), **columns_of})


@memo(16)
def _leaves(schema: pa.Schema) -> tuple[tuple[str, pa.Field], ...]:
    """Return path and field of every column that is no struct; looked for once, and not for each of
    many small files.
    """
    return tuple(paths.leaf_paths(schema))


def _is_chosen(path: str, wanted: set[str]) -> bool:
    """Return whether ``path``, or a struct that it leads through, is wanted."""
    return any(path == name or path.startswith(name + ".") for name in wanted)


def summarize_indexes(specs: Sequence[str], table: pa.Table, row_groups: Sequence[int]) -> Indexed:
    """Look at a file with every index in ``specs`` whose class is installed; others leave its shard
    uncovered.

    So does an index that fails: it may be of any package, and a broken index costs time, never a
    write. ``row_groups``: rows of each row group.
    """
    columns, parts = {}, {}
    for text in specs:
        spec, index = index_of(text)
        if isinstance(index, SkippingIndex):
            with suppress(Exception):  # foreign code may fail in any way
                if index.finds_rows:
                    columns[text] = values_of(table, spec.columns, index)
                else:
                    parts[text] = parts_of(index, table, spec.columns, row_groups)
    widest = max((column.nbytes for column in table.columns), default=0)
    return Indexed(columns, parts, len(table), widest)


class RowGroupSummaries:
    """The summaries of a segment whose row groups come one by one, as :func:`summarize` makes them
    of all rows.  For one thread.

    Columns are held until the end only where an index finds rows, or has one summary of all row
    groups.
    """

    def __init__(self, definition: TableDefinition, options: Options) -> None:
        self._definition, self._options = definition, options
        self._row_groups: list[int] = []
        self._leaves: dict[str, list[column_stats.Stats]] = {}
        self._sizes: dict[str, int] = {}
        self._parts: dict[str, list[tuple[int, bytes]]] = {}
        self._held: list[pa.Table] = []
        found = {text: index_of(text) for text in definition.indexes}
        self._by_group = [text for text, (_, index) in found.items() if _is_by_group(index)]
        self._at_end = [text for text in found if text not in self._by_group]
        ways = [
            paths.steps(definition.schema, path)
            for text in self._at_end
            for path in found[text][0].columns
        ]
        self._columns = sorted({definition.schema.names[way[0]] for way in ways if way is not None})

    def add(self, group: pa.Table) -> None:
        """Take the rows of the next row group."""
        first, rows = sum(self._row_groups), [len(group)]
        self._row_groups += rows
        for path, stats in _leaf_stats(self._definition, self._options, group, rows).items():
            self._leaves.setdefault(path, []).extend(stats)
        for name, column in zip(group.column_names, group.columns, strict=True):
            self._sizes[name] = self._sizes.get(name, 0) + column.nbytes
        for text, parts in summarize_indexes(self._by_group, group, rows).parts.items():
            self._parts.setdefault(text, []).extend((first + at, summary) for at, summary in parts)
        self._held.append(group.select(self._columns))

    def finished(self) -> Summaries:
        """Return the summaries of all rows, of which there is at least one."""
        found = summarize_indexes(self._at_end, pa.concat_tables(self._held), self._row_groups)
        self._held.clear()
        whole = {
            text: parts
            for text, parts in self._parts.items()
            if len(parts) == len(self._row_groups)
        }
        found = replace(
            found,
            parts={**found.parts, **whole},
            rows=sum(self._row_groups),
            widest=max(self._sizes.values(), default=0),
        )
        return Summaries(
            _stats_table(self._definition, self._leaves), _alone(self._definition, found)
        )


def _is_by_group(index: SkippingIndex | str) -> bool:
    """Return whether each row group has a summary that asks for no other."""
    return isinstance(index, SkippingIndex) and not index.finds_rows and index.row_groups


def summaries_of_shard(
    specs: Iterable[str], files: Sequence[tuple[int, Indexed]]
) -> dict[str, bytes]:
    """Return the summaries of a shard by ``specs``, without those of indexes that fail.

    ``files``: of each file, in order, the position of its first row in the shard, and what was put
    aside.  A gap between them is that of files that have left: nulls to an index that finds rows.
    """
    found = {}
    for text in specs:
        _, index = index_of(text)
        if isinstance(index, SkippingIndex):
            with suppress(Exception):  # as above
                found[text] = _joined(index, text, files)
    return found


def _joined(index: SkippingIndex, spec: str, files: Sequence[tuple[int, Indexed]]) -> bytes:
    """Return one summary of all files.  Raises KeyError if the index has failed on one of them."""
    if not index.finds_rows:
        return pack_parts(
            [(first + at, part) for first, file in files for at, part in file.parts[spec]]
        )
    columns, end = [], 0
    for first, file in files:
        column = file.columns[spec]
        if first > SHARD_ROWS_MAX:
            raise ValueError(f"row {first} of a shard, which has {SHARD_ROWS_MAX} at most")
        if first > end:
            columns.append(_nulls(first - end, column.type))
        columns.append(column)
        end = first + file.rows
    if len(columns) == 1:
        return index.summarize(columns[0])
    return index.summarize(pa.concat_arrays(columns))


def _nulls(rows: int, type: pa.DataType) -> pa.Array:
    """Return rows that match no test; a struct of several columns is never null itself."""
    if not pa.types.is_struct(type):
        return pa.nulls(rows, type)
    return pa.StructArray.from_arrays(
        [pa.nulls(rows, field.type) for field in type], fields=list(type)
    )


def placed(objects: AttachmentWriter, summary: bytes) -> SummaryRef:
    """Return a summary as a commit record holds it: a small one itself, of a larger one where it
    stands.
    """
    if len(summary) <= INLINE_INDEX_BYTES_MAX:
        return summary
    return objects.add(summary)


def sharded(
    objects: AttachmentWriter, files: Iterable[tuple[T, Indexed]], *, threads: int
) -> Iterator[tuple[T, Shard, int]]:
    """Cut shards; yield each file with its shard, of which every index has a summary, and the
    position of its first row there.

    ``files``: in order, each with anything that names it; of what they put aside only that of the
    last few shards is in memory.  ``threads``: how many shards are summarized at a time.
    """
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[_Open[T]] = deque()
        for shard in _cut(files):
            waiting.append(shard.started(pool))
            if len(waiting) > threads:
                yield from waiting.popleft().finished(objects)
        for shard in waiting:
            yield from shard.finished(objects)


@dataclass(slots=True)
class _Open(Generic[T]):
    """A shard that is being made."""

    files: list[tuple[T, Indexed]] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    summaries: Future[dict[str, bytes]] | None = None

    def takes(self, found: Indexed) -> bool:
        """Return whether one more file is within the limits."""
        if not self.files:
            return True
        if found.is_alone or self.files[0][1].is_alone:
            return False
        return (
            self.rows + found.rows <= SHARD_ROWS_MAX and self.size + found.widest <= SHARD_BYTES_MAX
        )

    def add(self, file: tuple[T, Indexed]) -> None:
        self.files.append(file)
        self.rows += file[1].rows
        self.size += file[1].widest

    def started(self, pool: Executor) -> _Open[T]:
        """Summarize in ``pool``; what was put aside goes when that is done."""
        found = [indexed for _, indexed in self.files]
        if specs := {*found[0].columns, *found[0].parts}:
            starts = accumulate((one.rows for one in found), initial=0)
            members = list(zip(starts, found, strict=False))
            self.summaries = pool.submit(summaries_of_shard, sorted(specs), members)
            self.files = [(name, replace(one, columns={}, parts={})) for name, one in self.files]
        return self

    def finished(self, objects: AttachmentWriter) -> Iterator[tuple[T, Shard, int]]:
        """Yield what :func:`sharded` does, when the summaries are done."""
        summaries = self.files[0][1].finished
        if self.summaries is not None:
            summaries = self.summaries.result()
        shard = Shard(tuple((spec, placed(objects, data)) for spec, data in summaries.items()))
        first = 0
        for name, found in self.files:
            yield name, shard, first
            first += found.rows


def _cut(files: Iterable[tuple[T, Indexed]]) -> Iterator[_Open[T]]:
    """Cut files that follow each other into shards within the limits."""
    shard: _Open[T] = _Open()
    for file in files:
        if not shard.takes(file[1]):
            yield shard
            shard = _Open()
        shard.add(file)
    if shard.files:
        yield shard
