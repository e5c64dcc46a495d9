"""Files, statistics and summaries added by commit records since the checkpoint, in a few tables."""

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
from mdt.metadata.files.file_group import FILES, NewFile, SummaryRef, range_columns, range_from_row
from mdt.metadata.log.checkpoint_columns import SUMMARY, no_rows
from mdt.metadata.log.commit_log import STATS, SUMMARIES, CommitRecord

ADDITIONS_MERGED = 16
"""Number of additions with the same level that are merged.

So a query searches few tables, and a row is copied once per level.
"""

COVERS = SUMMARIES.append(pa.field("seq", pa.int64()))
"""Summaries of older shards, with the seq of the record that added them."""

_NO_COVERS = no_rows(COVERS)

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Addition:
    """Consecutively numbered files, starting with number ``first``.

    ``files`` (FILES), ``stats`` (STATS) and ``summaries`` (SUMMARIES) belong to these files,
    ``covers`` (COVERS) to older files.  Segments have their numbers.  ``level`` counts the merges
    of the addition.  ``stats_of`` and ``bounds_of`` cache :meth:`column_stats` and :meth:`bounds`.
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
        """Numbers of the segments, ascending -> int64[files]."""
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
        """Statistics of whole files, by column."""
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
        """Return the statistics of ``name``, one row per file, null if missing.

        None if no file has any.
        """
        if name not in self.stats_of:
            stats = self._by_column.get(name)
            if stats is not None:
                segments = numbers(stats["segment"])
                if not np.array_equal(segments, self.segments):
                    stats = aligned(stats, segments, self.segments)
                stats = stats.select(STATS.names[3:]).combine_chunks()
            self.stats_of[name] = stats
        return self.stats_of[name]

    def bounds(self, name: str, type: pa.DataType) -> Bounds:
        """Return the statistics of ``name``, a column of ``type``, in comparable form [files]."""
        bounds = self.bounds_of.get(name)
        if bounds is None:
            table = self.column_stats(name)
            bounds = Bounds.unknown(len(self)) if table is None else Bounds.read(table, type)
            self.bounds_of[name] = bounds
        return bounds

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


def segment_rows(page: pa.Table, segment: int) -> pa.Table:
    """Return the rows of ``segment`` in a table that is sorted by segment."""
    return _run(page, numbers(page["segment"]), segment)


def aligned(table: pa.Table, segments: Int64s, ids: Int64s) -> pa.Table:
    """Return the first row of ``table`` for each segment in ``ids``, or nulls.

    ``segments`` has the segment of each row, int64[len(table)], in any order.  O(n log n).
    """
    order = np.argsort(segments, kind="stable")
    at = np.searchsorted(segments, ids, sorter=order)
    hit = at < len(order)
    rows = np.zeros(len(ids), dtype=np.int64)
    rows[hit] = order[at[hit]]
    hit[hit] = segments[rows[hit]] == ids[hit]
    return table.take(column(rows, hit))


def numbered(table: pa.Table, seq: int) -> pa.Table:
    """Return a table of record ``seq`` with numbers of segments and shards instead of ordinals.

    Each column has one chunk.
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
    """Return the addition of ``record``, or None if it adds no files and summaries."""
    files, covers = record.table("files"), record.table("covers")
    if not len(files) and not len(covers):
        return None
    tables = [numbered(record.table(name), record.seq) for name in ("files", "stats", "summaries")]
    dated = (
        covers.append_column("seq", column(np.full(len(covers), record.seq, np.int64)))
        if len(covers)
        else _NO_COVERS
    )
    return Addition(first, tables[0], tables[1], tables[2], dated.combine_chunks())


def append(additions: tuple[Addition, ...], addition: Addition | None) -> tuple[Addition, ...]:
    """Return ``additions`` with another addition.  Many additions with the same level are
    merged.
    """
    if addition is None:
        return additions
    additions = (*additions, addition)
    while (
        len(additions) >= ADDITIONS_MERGED
        and len({p.level for p in additions[-ADDITIONS_MERGED:]}) == 1
    ):
        additions = (*additions[:-ADDITIONS_MERGED], merge(additions[-ADDITIONS_MERGED:]))
    return additions


def merge(parts: Sequence[Addition]) -> Addition:
    """Merge consecutive additions."""

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
    """Summaries of an index in the additions, the newest of each shard first."""

    shards: Int64s
    table: pa.Table

    @classmethod
    def among(cls, additions: Sequence[Addition], index: str, since: int) -> Summaries:
        """Collect the summaries of the index specification ``index``, added by record ``since`` or
        later.

        O(rows of its additions).
        """
        tables = []
        for addition in reversed(additions):
            if len(addition.covers):
                is_valid = pc.and_(
                    pc.equal(addition.covers["index"], index),
                    pc.greater_equal(addition.covers["seq"], since),
                )
                newest_first = addition.covers.filter(is_valid).sort_by([("seq", "descending")])
                tables.append(newest_first.drop_columns(["seq"]))
        for addition in additions:
            summaries = (
                addition.summaries.filter(pc.equal(addition.summaries["index"], index))
                if len(addition.summaries)
                else None
            )
            if summaries is not None:
                tables.append(
                    summaries.filter(
                        pc.greater_equal(summaries["shard"], since * SEGMENTS_PER_COMMIT_MAX)
                    )
                )
        table = pa.concat_tables(tables) if tables else no_rows(SUMMARIES)
        return cls(numbers(table["shard"]), table.select(SUMMARY.names))

    def newest(self, shards: Int64s) -> pa.Table:
        """Return the newest summary of each wanted shard, schema SUMMARY, null if missing."""
        return aligned(self.table, self.shards, shards)


NO_FILES = no_rows(FILES)
"""The files of a record without files."""


def summary_of(row: Mapping[str, Any]) -> SummaryRef | None:
    """Return the summary in a row of SUMMARIES, or None."""
    payload: bytes | None = row["payload"]
    return range_from_row(row) or payload


def summary_sizes(table: pa.Table) -> Int64s:
    """Return the bytes of each summary, -1 if missing -> int64[n].  ``table`` has the schema
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
    """Return the column statistics of ``files`` as a single table, schema STATS.

    The column ``segment`` has ordinals.
    """
    stats_of = {n: file.stats for n, file in enumerate(files) if file.stats is not None}
    if not stats_of:
        return STATS.empty_table()
    segment = np.repeat(
        np.array(list(stats_of), np.int64), [len(stats) for stats in stats_of.values()]
    )
    names = [name for name in STATS.names if name != "segment"]
    together = pa.concat_tables([stats.select(names) for stats in stats_of.values()])
    columns = dict(zip(names, together.columns, strict=True)) | {"segment": pa.array(segment)}
    return pa.table(columns).select(STATS.names).cast(STATS).combine_chunks()


def summaries_table(rows: Sequence[tuple[str, int, SummaryRef]]) -> pa.Table:
    """Return (specification, shard, summary) triples as a table with the schema SUMMARIES."""
    records = []
    for spec, shard, summary in rows:
        row: dict[str, Any] = {"index": spec, "shard": shard}
        if isinstance(summary, bytes):
            row["payload"] = summary
        else:
            row |= range_columns(summary)
        records.append(row)
    return pa.Table.from_pylist(records, schema=SUMMARIES)
