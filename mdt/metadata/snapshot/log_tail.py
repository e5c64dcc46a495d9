"""What commit records have added since the checkpoint: files with their statistics and summaries, a
few tables at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import column, mask, numbers, one_array
from indexes.bounds import Bounds
from mdt.forking import cached_property
from mdt.limits import SEGMENTS_PER_COMMIT_MAX
from mdt.metadata.files.file_group import FILES, NewFile, SummaryRef, place_fields, place_in
from mdt.metadata.log.checkpoint_columns import SUMMARY, no_rows
from mdt.metadata.log.commit_log import STATS, SUMMARIES, CommitRecord

ADDITIONS_MERGED = 16
"""So many additions of one size become one: a query looks into few tables, and a row is copied once
for each power.
"""

COVERS = SUMMARIES.append(pa.field("seq", pa.int64()))
"""Summaries of older shards, and the record that brought them."""

_NO_COVERS = no_rows(COVERS)

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Addition:
    """Files that were added one after the other, ``first`` being the number of the first one.

    ``files`` FILES; ``stats`` STATS and ``summaries`` SUMMARIES of these files; ``covers`` COVERS
    of any older ones. Segments have their numbers.  ``level``: how often the addition was merged;
    ``stats_of``, ``bounds_of``: answers of :meth:`column_stats` and :meth:`bounds` so far.
    """

    first: int
    files: pa.Table
    stats: pa.Table
    summaries: pa.Table
    covers: pa.Table
    level: int = 0
    stats_of: dict[str, pa.Table | None] = field(default_factory=dict, repr=False)
    bounds_of: dict[str, Bounds] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.files)

    @cached_property
    def segments(self) -> Int64s:
        """Numbers of the segments, rising -> int64[files]."""
        return numbers(self.files["segment"])

    @cached_property
    def _whole(self) -> pa.Table:
        return self.stats.filter(mask(numbers(self.stats["row_group"]) < 0))

    @cached_property
    def _row_groups(self) -> tuple[pa.Table, Int64s]:
        row_groups = (
            self.stats.filter(mask(numbers(self.stats["row_group"]) >= 0))
            .sort_by("segment")
            .combine_chunks()
        )
        return row_groups, numbers(row_groups["segment"])

    @cached_property
    def _by_column(self) -> dict[str, pa.Table]:
        """Statistics of whole files, a table for each column."""
        names = one_array(self._whole["column"]).dictionary_encode()
        code = numbers(names.indices)
        order = np.argsort(code, kind="stable")
        ordered = self._whole.take(column(order))
        starts = np.searchsorted(code[order], np.arange(len(names.dictionary) + 1)).tolist()
        spans = zip(names.dictionary.to_pylist(), starts[:-1], starts[1:], strict=True)
        return {name: ordered.slice(start, stop - start) for name, start, stop in spans}

    @property
    def stats_columns(self) -> list[str]:
        """Names of the columns with statistics."""
        return list(self._by_column)

    def column_stats(self, name: str) -> pa.Table | None:
        """Return the statistics of ``name``, one row per file (null where there are none), or
        None.
        """
        if name not in self.stats_of:
            found = self._by_column.get(name)
            if found is not None:
                segments = numbers(found["segment"])
                if not np.array_equal(segments, self.segments):
                    found = aligned(found, segments, self.segments)
                found = found.select(STATS.names[3:]).combine_chunks()
            self.stats_of[name] = found
        return self.stats_of[name]

    def bounds(self, name: str, type: pa.DataType) -> Bounds:
        """Return the statistics of ``name``, a column of ``type``, ready to compare [files]."""
        found = self.bounds_of.get(name)
        if found is None:
            stats = self.column_stats(name)
            found = Bounds.unknown(len(self)) if stats is None else Bounds.read(stats, type)
            self.bounds_of[name] = found
        return found

    def row_group_stats(self, segment: int) -> pa.Table:
        """Return the statistics of the row groups of a segment, schema STATS."""
        row_groups, segments = self._row_groups
        return _run(row_groups, segments, segment)

    def all_row_groups(self) -> pa.Table:
        """Return the statistics of all row groups, by segment, schema STATS."""
        return self._row_groups[0]


def _run(table: pa.Table, segments: Int64s, segment: int) -> pa.Table:
    start, stop = np.searchsorted(segments, [segment, segment + 1]).tolist()
    return table.slice(start, stop - start)


def of_segment(page: pa.Table, segment: int) -> pa.Table:
    """Return the rows of ``segment`` in a table that is sorted by segment."""
    return _run(page, numbers(page["segment"]), segment)


def aligned(table: pa.Table, segments: Int64s, wanted: Int64s) -> pa.Table:
    """Return the first row of ``table`` for each segment in ``wanted``, null where there is none.

    ``segments``: int64[len(table)], of its rows, in any order.  O(n log n).
    """
    order = np.argsort(segments, kind="stable")
    at = np.searchsorted(segments, wanted, sorter=order)
    hit = at < len(order)
    rows = np.zeros(len(wanted), dtype=np.int64)
    rows[hit] = order[at[hit]]
    hit[hit] = segments[rows[hit]] == wanted[hit]
    return table.take(column(rows, hit))


def numbered(table: pa.Table, seq: int) -> pa.Table:
    """Return a table of record ``seq`` with numbers of segments and shards instead of ordinals, in
    columns of one chunk.
    """
    if not len(table):
        return table
    table = table.combine_chunks()
    for at, name in enumerate(table.schema.names):
        if name in ("segment", "shard"):
            number = numbers(table.column(at)) + seq * SEGMENTS_PER_COMMIT_MAX
            table = table.set_column(at, table.schema.field(at), column(number))
    return table


def addition_of(record: CommitRecord, first: int) -> Addition | None:
    """Return what ``record`` adds, None if that is nothing."""
    files, covers = record.table("files"), record.table("covers")
    if not len(files) and not len(covers):
        return None
    of_files = [
        numbered(record.table(name), record.seq) for name in ("files", "stats", "summaries")
    ]
    dated = (
        covers.append_column("seq", column(np.full(len(covers), record.seq, np.int64)))
        if len(covers)
        else _NO_COVERS
    )
    return Addition(first, of_files[0], of_files[1], of_files[2], dated.combine_chunks())


def adding(additions: tuple[Addition, ...], new: Addition | None) -> tuple[Addition, ...]:
    """Return ``additions`` with one more; equal ones at the end are merged when there are many."""
    if new is None:
        return additions
    additions = (*additions, new)
    while (
        len(additions) >= ADDITIONS_MERGED
        and len({p.level for p in additions[-ADDITIONS_MERGED:]}) == 1
    ):
        additions = (*additions[:-ADDITIONS_MERGED], merged(additions[-ADDITIONS_MERGED:]))
    return additions


def merged(parts: Sequence[Addition]) -> Addition:
    """Return additions that follow each other as one."""

    def joined(name: str) -> pa.Table:
        return pa.concat_tables([getattr(part, name) for part in parts]).combine_chunks()

    level = parts[0].level + 1
    return Addition(
        parts[0].first,
        joined("files"),
        joined("stats"),
        joined("summaries"),
        joined("covers"),
        level,
    )


@dataclass(frozen=True)
class Summaries:
    """The summaries of one index among additions, those of a shard newest first; those before
    record ``since`` were forgotten.
    """

    shards: Int64s
    table: pa.Table

    @classmethod
    def among(cls, additions: Sequence[Addition], index: str, since: int) -> Summaries:
        """Collect what ``additions`` know of the index with the specification ``index``.  O(rows of
        its additions).
        """
        found = []
        for addition in reversed(additions):
            if len(addition.covers):
                wanted = pc.and_(
                    pc.equal(addition.covers["index"], index),
                    pc.greater_equal(addition.covers["seq"], since),
                )
                newest_first = addition.covers.filter(wanted).sort_by([("seq", "descending")])
                found.append(newest_first.drop_columns(["seq"]))
        for addition in additions:
            own = (
                addition.summaries.filter(pc.equal(addition.summaries["index"], index))
                if len(addition.summaries)
                else None
            )
            if own is not None:
                found.append(
                    own.filter(pc.greater_equal(own["shard"], since * SEGMENTS_PER_COMMIT_MAX))
                )
        table = pa.concat_tables(found) if found else no_rows(SUMMARIES)
        return cls(numbers(table["shard"]), table.select(SUMMARY.names))

    def of(self, wanted: Int64s) -> pa.Table:
        """Return the newest summary of each wanted shard, schema SUMMARY, null where there is
        none.
        """
        return aligned(self.table, self.shards, wanted)


NO_FILES = no_rows(FILES)
"""What a record without files adds."""


def summary_of(row: Mapping[str, Any]) -> SummaryRef | None:
    """Return the summary in a row of SUMMARIES, or None."""
    payload: bytes | None = row["payload"]
    return place_in(row) or payload


def summary_sizes(table: pa.Table) -> Int64s:
    """Return the bytes of each summary, -1 where there is none -> int64[n].  ``table``: schema
    SUMMARY.
    """
    return numbers(
        pc.coalesce(
            table["length"],
            pc.binary_length(table["payload"]).cast(pa.int64()),
            pa.scalar(-1, pa.int64()),
        )
    )


def stats_table(files: Sequence[NewFile]) -> pa.Table:
    """Return the column statistics of ``files`` below each other, schema STATS; ``segment`` holds
    ordinals.
    """
    told = {n: file.stats for n, file in enumerate(files) if file.stats is not None}
    if not told:
        return STATS.empty_table()
    segment = np.repeat(np.array(list(told), np.int64), [len(stats) for stats in told.values()])
    names = [name for name in STATS.names if name != "segment"]
    together = pa.concat_tables([stats.select(names) for stats in told.values()])
    columns = dict(zip(names, together.columns, strict=True)) | {"segment": pa.array(segment)}
    return pa.table(columns).select(STATS.names).cast(STATS).combine_chunks()


def summaries_table(rows: Sequence[tuple[str, int, SummaryRef]]) -> pa.Table:
    """Return (specification, shard, summary) triples as a table with the schema SUMMARIES."""
    told = []
    for spec, shard, summary in rows:
        row: dict[str, Any] = {"index": spec, "shard": shard}
        if isinstance(summary, bytes):
            row["payload"] = summary
        else:
            row |= place_fields(summary)
        told.append(row)
    return pa.Table.from_pylist(told, schema=SUMMARIES)
