"""Summaries of what was just written, from the same rows: column statistics and the table's skipping indexes.

Indexes that know positions summarize segments of one commit (or of one task) together, in joint summaries of bounded size:
a plan asks a few large summaries instead of many small ones.  :func:`summarize_indexes` puts columns aside,
:func:`placed_all` joins them.  All indexes of a table join the same runs of segments, so that plans can intersect their
answers before they tell segments apart.
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
    JOINT_SEGMENT_ROWS_MAX,
    JOINT_SUMMARY_BYTES_MAX,
    JOINT_SUMMARY_ROWS_MAX,
)
from mdt.metadata.attachments import AttachmentWriter
from mdt.metadata.file_group import Joint, SummaryRef
from mdt.metadata.skipping import index_of, summarized, values_of
from mdt.schema.definition import TableDefinition

T = TypeVar("T")

Found = list[tuple[str, SummaryRef]]
"""Summaries of one file by specification, as a commit record holds them."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """What indexes found in one segment: specification -> summary, and -> column of what is to be summarized jointly."""

    own: Mapping[str, bytes] = field(default_factory=dict)
    deferred: Mapping[str, pa.Array] = field(default_factory=dict)
    rows: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the largest column that is put aside."""
        return max((int(column.nbytes) for column in self.deferred.values()), default=0)


@dataclass(frozen=True, slots=True)
class Summaries:
    """``stats``: rows of STATS without segment numbers, or None."""

    stats: pa.Table | None = None
    indexes: Indexed = field(default_factory=Indexed)


def summarize(definition: TableDefinition, options: Options, table: pa.Table, row_groups: tuple[int, ...]) -> Summaries:
    """Return the summaries of one segment.  ``row_groups``: rows of each row group."""
    stats = summarize_columns(definition, options, table, row_groups)
    return Summaries(stats, summarize_indexes(definition.indexes, table, row_groups))


def summarize_columns(
    definition: TableDefinition, options: Options, table: pa.Table, row_groups: tuple[int, ...]
) -> pa.Table | None:
    """Return the column statistics of one segment, STATS without segment numbers; single row groups are not kept apart.

    Fields of structs have statistics like columns; choosing a struct chooses all in it.
    """
    chosen = options.column_stats_columns
    wanted = {*(chosen or ()), *definition.key, *definition.partition_by}
    columns: list[str] = []
    row_group: list[int] = []
    found: list[column_stats.Stats | None] = []
    for path, leaf in paths.leaf_paths(definition.schema):
        if not values.supports(leaf.type) or (chosen is not None and not _is_chosen(path, wanted)):
            continue
        parts = column_stats.summarize_row_groups(paths.column_at(table, path), row_groups)
        found.append(column_stats.merge(parts))
        row_group.append(-1)
        if len(row_groups) > 1:
            found += parts
            row_group += range(len(row_groups))
        columns += [path] * (len(found) - len(columns))
    if not found:
        return None
    batch = column_stats.to_batch(found)
    columns_of = dict(zip(batch.schema.names, batch.columns, strict=True))
    return pa.table({"column": columns, "row_group": pa.array(row_group, pa.int32()), **columns_of})


def _is_chosen(path: str, wanted: set[str]) -> bool:
    """Return whether ``path``, or a struct that it leads through, is wanted."""
    return any(path == name or path.startswith(name + ".") for name in wanted)


def summarize_indexes(
    specs: Sequence[str], table: pa.Table, row_groups: Sequence[int], *, joint_rows: int | None = None
) -> Indexed:
    """Summarize a segment with every index in ``specs`` whose class is installed; others leave it uncovered.

    So does an index that fails: it may be of any package, and a broken index costs time, never a write.
    ``row_groups``: rows of each row group.  ``joint_rows``: up to how many rows a segment may share a summary, by default JOINT_SEGMENT_ROWS_MAX.
    """
    is_small = 0 < len(table) <= (JOINT_SEGMENT_ROWS_MAX if joint_rows is None else joint_rows)
    own, deferred = {}, {}
    for text in specs:
        spec, index = index_of(text)
        if isinstance(index, SkippingIndex):
            with suppress(Exception):  # foreign code may fail in any way
                if is_small and index.finds_rows:
                    deferred[text] = values_of(table, spec.columns, index)
                else:
                    own[text] = summarized(index, table, spec.columns, row_groups)
    return Indexed(own, deferred, len(table))


def placed_all(
    objects: AttachmentWriter, parts: Iterable[tuple[T, Indexed]], *, threads: int
) -> Iterator[tuple[T, Found]]:
    """Summarize jointly what ``parts`` have put aside; yield each with its summaries as a commit record holds them.

    ``parts``: what was summarized, in order, each with anything that names it; of the columns put aside only those of the
    last few runs are in memory.  ``threads``: how many runs are summarized at a time.
    """
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[_Run[T]] = deque()
        for run in _runs(parts):
            waiting.append(run.started(pool))
            if len(waiting) > threads:
                yield from waiting.popleft().placed(objects)
        for run in waiting:
            yield from run.placed(objects)


def placed(objects: AttachmentWriter, summary: bytes) -> SummaryRef:
    """Return a summary as a commit record holds it: a small one itself, of a larger one where it stands."""
    return summary if len(summary) <= INLINE_INDEX_BYTES_MAX else objects.add(summary)


@dataclass(slots=True)
class _Run(Generic[T]):
    """Segments that are summarized together.  ``fresh``: the summaries in work, by specification."""

    parts: list[tuple[T, Indexed]] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    fresh: dict[str, Future[list[bytes | None]]] = field(default_factory=dict)

    def takes(self, found: Indexed) -> bool:
        """Return whether a segment can be summarized with these: in a joint summary every segment has every index."""
        if not self.parts:
            return True
        same = found.deferred.keys() == self.parts[0][1].deferred.keys() != set()
        rows, size = self.rows + found.rows, self.size + found.nbytes
        return same and rows <= JOINT_SUMMARY_ROWS_MAX and size <= JOINT_SUMMARY_BYTES_MAX

    def add(self, part: tuple[T, Indexed]) -> None:
        self.parts.append(part)
        self.rows += part[1].rows
        self.size += part[1].nbytes

    def started(self, pool: Executor) -> _Run[T]:
        """Summarize in ``pool``; the columns go when that is done."""
        for spec in self.parts[0][1].deferred:
            self.fresh[spec] = pool.submit(_fresh, spec, [found.deferred[spec] for _, found in self.parts])
        self.parts = [(name, replace(found, deferred={})) for name, found in self.parts]
        return self

    def placed(self, objects: AttachmentWriter) -> Iterator[tuple[T, Found]]:
        """Yield what :func:`placed_all` does, when the summaries are done."""
        summaries: list[Found] = [
            [(spec, placed(objects, data)) for spec, data in found.own.items()] for _, found in self.parts
        ]
        for spec, fresh in self.fresh.items():
            for mine, share in zip(summaries, self._shares(objects, fresh.result()), strict=True):
                if share is not None:
                    mine.append((spec, share))
        yield from zip((name for name, _ in self.parts), summaries, strict=True)

    def _shares(self, objects: AttachmentWriter, fresh: Sequence[bytes | None]) -> Iterator[SummaryRef | None]:
        """Yield what each segment has of one summary of all of them, or of one of its own."""
        if len(fresh) == len(self.parts):
            yield from (None if data is None else placed(objects, data) for data in fresh)
            return
        assert fresh[0] is not None, "a joint summary that fails is replaced"
        stored = objects.add(fresh[0])
        for (_, found), end in zip(self.parts, accumulate(found.rows for _, found in self.parts), strict=True):
            yield Joint(stored, end - found.rows)


def _runs(parts: Iterable[tuple[T, Indexed]]) -> Iterator[_Run[T]]:
    """Cut ``parts`` into runs within the limits of a joint summary."""
    run: _Run[T] = _Run()
    for part in parts:
        if not run.takes(part[1]):
            yield run
            run = _Run()
        run.add(part)
    if run.parts:
        yield run


def _fresh(spec: str, columns: Sequence[pa.Array]) -> list[bytes | None]:
    """Return one summary of all columns; if the index fails on them, one of each, None where it fails again."""
    _, index = index_of(spec)
    assert isinstance(index, SkippingIndex), "columns are put aside for indexes only"
    with suppress(Exception):  # as above
        return [index.summarize(pa.concat_arrays(columns))]
    return [None] if len(columns) == 1 else [one for column in columns for one in _fresh(spec, [column])]
