"""Write tasks of any engine: make files of rows that were tagged and assigned to buckets
(:mod:`mdt.engines.tasks`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa

from indexes.arrays import take_rows
from indexes.base import Int64Array
from mdt.commit.operation import Changes, Claim
from mdt.engines.tasks import (
    BUCKET,
    DELETE,
    FALLING,
    FURTHER,
    INSERT,
    RETURN,
    UPDATE,
    Source,
    job_of,
)
from mdt.metadata.keys.locate import Located
from mdt.metadata.log.commit_log import NO_TOMBSTONES
from mdt.metadata.snapshot.deleted_keys import scope_of
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.metadata.snapshot.tombstones import marks_of, new_tombstones
from mdt.schema.conform import conform
from mdt.write.assign import Assignment
from mdt.write.new_files import WriteJob
from mdt.write.normalize import keyed_rows
from mdt.write.row_groups import in_key_order
from mdt.write.slice_files import collect
from mdt.write.slices import KeyedRows, RowDispositions, Slice, slice_of
from mdt.write.transfer import encode

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BucketTask(ABC):
    """Input that all tasks of a write share: the source, the claim, and the assignment of each
    bucket.
    """

    source: Source
    claim: Claim
    buckets: Sequence[Assignment]

    @abstractmethod
    def write(self, job: WriteJob, batches: list[pa.RecordBatch], part: str) -> Changes:
        """Write the buckets of the rows of ``batches``, and empty the list, so that their memory is
        free while files are made. ``part``: as for :func:`mdt.write.slice_files.collect`.
        """


def write(task: BucketTask, batches: Iterator[pa.RecordBatch], attempt: int) -> bytes | None:
    """Write the buckets of the rows of a part; return the encoded changes
    (:mod:`mdt.write.transfer`).
    """
    nonempty = [batch for batch in batches if batch.num_rows]
    if not nonempty:
        return None
    return encode(task.write(job_of(task.source, task.claim, attempt), nonempty, f"-{attempt}"))


@dataclass(frozen=True, slots=True)
class TaggedWrite(BucketTask):
    """Writes tagged rows.

    ``leaves_tombstones``: True if FURTHER rows are deletes, which may leave tombstones.
    """

    leaves_tombstones: bool = False

    def write(self, job: WriteJob, batches: list[pa.RecordBatch], part: str) -> Changes:
        """Write the rows. If there is only one bucket, its slice holds the only reference to
        them.
        """
        snapshot = job.snapshot
        table, places = sort_by_bucket(pa.Table.from_batches(batches))
        batches.clear()
        rows = _BucketRows.from_table(snapshot, table)
        del table
        tombstones = NO_TOMBSTONES
        if self.leaves_tombstones and snapshot.definition.keeps_deletes:
            tombstones = rows.tombstones(snapshot)
        job.marked.mark((n, self.buckets[n]) for n in places)
        slices: Iterator[tuple[int, Slice]] = (
            (n, rows.slice(bucket_rows, self.buckets[n])) for n, bucket_rows in places.items()
        )
        if len(places) == 1:
            slices = drain(list(slices))
            del rows
        changes = collect(job, (job.run(*item) for item in slices), threads=1, part=part)
        return replace(changes, tombstones=tombstones)


def sort_by_bucket(table: pa.Table) -> tuple[pa.Table, dict[int, range]]:
    """Return the rows sorted by bucket, in their order within each, and the range of rows per
    bucket.

    Rows of several buckets are put into a single chunk, because Arrow concatenates all chunks of a
    column whenever rows of it are taken.
    """
    bucket = table[BUCKET].to_numpy()
    numbers, counts = np.unique(bucket, return_counts=True)
    stops = np.cumsum(counts)
    places = dict(
        zip(numbers.tolist(), map(range, (stops - counts).tolist(), stops.tolist()), strict=True)
    )
    if len(places) > 1:
        table = _take_rows(table, np.argsort(bucket, kind="stable"), stops)
    return table, places


def _take_rows(table: pa.Table, order: Int64Array, stops: Int64Array) -> pa.Table:
    """Return the rows of ``table`` in ``order``. If they do not fit into a chunk, each bucket gets
    a chunk; ``stops``: the ends of the buckets.
    """
    try:
        return table.take(pa.array(order))
    except pa.ArrowInvalid:  # more than 2 GiB of text in a column
        return pa.concat_tables([take_rows(table, rows) for rows in np.split(order, stops[:-1])])


def drain(items: list[T]) -> Iterator[T]:
    """Yield items and remove them from the list, so that only the consumer holds a reference."""
    while items:
        yield items.pop(0)


@dataclass(frozen=True, slots=True)
class _BucketRows:
    """Rows of buckets: CONTROL columns with the action for each row, int64[n]; ``batch``, the rows;
    and the locations of older rows.
    """

    control: Mapping[str, Int64Array]
    batch: KeyedRows
    located: Located

    @classmethod
    def from_table(cls, snapshot: Snapshot, table: pa.Table) -> _BucketRows:
        control = {
            name: table[name].to_numpy()
            for name in ("__mdt_kind", "__mdt_segment", "__mdt_position")
        }
        group = table["__mdt_group"].to_numpy()
        stored = pa.schema(
            [field for field in snapshot.definition.schema if field.name in table.column_names]
        )
        data = table.select(stored.names)  # deletes have only the columns of their keys
        # Deletes have nulls in required columns.
        nullable = pa.schema([field.with_nullable(True) for field in stored])
        rows = pa.table(conform(data, nullable, nullable, first=None).columns, schema=stored)
        batch = keyed_rows(rows, snapshot.definition)
        located = Located(
            control["__mdt_segment"], control["__mdt_position"], group, np.empty(0, np.uint64)
        )
        return cls(control, batch, located)

    def slice(self, rows: range, assignment: Assignment) -> Slice:
        """Return the slice for the file of a bucket, made of ``rows``."""
        return slice_of(
            self.batch, self.located, assignment, _dispositions(self.control, self.batch, rows)
        )

    def tombstones(self, snapshot: Snapshot) -> pa.Table:
        """Return the tombstones of deleted rows, schema TOMBSTONES."""
        rows = np.flatnonzero(self.control["__mdt_kind"] == FURTHER)
        return _tombstones(snapshot, self.batch, rows, self.located.group[rows])


def _tombstones(
    snapshot: Snapshot, batch: KeyedRows, rows: Int64Array, groups: Int64Array
) -> pa.Table:
    """Return the tombstones of deleted ``rows`` from file groups ``groups``, schema TOMBSTONES."""
    assert batch.ordering is not None, (
        "tables keep the ordering values of deletes only if there are any"
    )
    partition = np.asarray(snapshot.file_groups.partitions(groups))
    marks = marks_of(
        batch.hashes.take(rows), scope_of(snapshot, partition), snapshot.definition.key_hash
    )
    return new_tombstones(marks, batch.ordering[rows])


def _dispositions(
    control: Mapping[str, Int64Array], batch: KeyedRows, rows: range
) -> RowDispositions:
    """Group ``rows`` of ``batch`` by the action on them."""
    kind = control["__mdt_kind"][rows.start : rows.stop]
    kinds = ((UPDATE, FALLING), (INSERT,), (RETURN,), (DELETE, FURTHER))
    updates, inserts, returns, deletes = (
        rows.start + np.flatnonzero(np.isin(kind, members)) for members in kinds
    )
    return RowDispositions(updates, in_key_order(batch.sort_keys, inserts), returns, deletes)
