"""Loads on an engine: rows that cannot match existing rows are labelled without a look-up and
normalized by the tasks that write them.

The driver gets the number of rows per partition and, if a partition is cut, a sample of its keys.
Equal keys reach the same task, which normalizes rows as a tagging task does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from mdt.commit.operation import Changes
from mdt.engines.engine import Engine, R
from mdt.engines.tasks import BUCKET, label, labelled_schema
from mdt.engines.write_tasks import BucketTask, drain, sort_by_bucket
from mdt.errors import Conflict
from mdt.metadata.keys.buckets import key_placeholders
from mdt.metadata.keys.locate import Located
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import TableDefinition
from mdt.schema.delete_marks import IS_DELETED
from mdt.write.blind_insert import INSERT_UNCHECKED
from mdt.write.new_files import WriteJob
from mdt.write.normalize import Batch, normalize
from mdt.write.operations import CHECKED, not_new
from mdt.write.overwriting import WITH_ROWS
from mdt.write.row_groups import in_key_order
from mdt.write.slice_files import collect
from mdt.write.slices import RowDispositions, Slice, slice_of

_NONE = np.empty(0, np.int64)
_UPSERTS = (*CHECKED, "upsert")


def needs_no_lookup(metadata: Metadata, snapshot: Snapshot, name: str, columns: pa.Schema) -> bool:
    """Return True if rows with ``columns`` cannot match existing rows in the operation ``name``.

    False if a key may move between partitions, if a bucket takes a key, if the table keeps deletes,
    or if rows may be deletes. Also False if key or partition columns differ in type from the
    table's, because only tasks can convert them.
    """
    definition = snapshot.definition
    if name not in (*WITH_ROWS, INSERT_UNCHECKED) and (name not in _UPSERTS or len(snapshot)):
        return False
    if (
        (definition.is_global and definition.partition_by)
        or definition.keeps_deletes
        or IS_DELETED in columns.names
    ):
        return False
    names = [*definition.key, *definition.partition_by]
    if any(columns.field(column).type != definition.schema.field(column).type for column in names):
        return False
    return (
        key_placeholders(metadata, snapshot, pa.array([], pa.string()), np.empty(0, object)) is None
    )


def label_rows(engine: Engine[R], definition: TableDefinition, rows: R, columns: pa.Schema) -> R:
    """Return the rows as inserts, with CONTROL columns. ``columns``: the schema of ``rows``."""
    schema = labelled_schema(definition, columns)
    return engine.map_parts(
        engine.group_by(rows, ()), partial(label, definition), schema, definition.key
    )


def correct_counts(rows: int, changes: Changes) -> Changes:
    """Return the changes with the number of inserts corrected for duplicates. Of ``rows`` with the
    same key, a single row is written and the rest count as late.

    Raises Conflict if rows are missing or duplicated, as when the input changes each time it is
    read.
    """
    surplus = rows - sum(file.rows for file in changes.files)
    if surplus != changes.counts.get("late", 0):
        raise rows_changed()
    return replace(changes, counts={**changes.counts, "inserted": -surplus})


def rows_changed() -> Conflict:
    """Return the error for rows that differed when they were read again."""
    return Conflict(
        "the rows changed while they were read",
        hint="cache them, for example with DataFrame.cache()",
    )


@dataclass(frozen=True, slots=True)
class Load(BucketTask):
    """Writes labelled rows. ``name``: the operation."""

    name: str

    def write(self, job: WriteJob, batches: list[pa.RecordBatch], part: str) -> Changes:
        """Write the rows, and count those that repeat a key as late."""
        late, definition = list[int](), job.snapshot.definition
        parts = list(_rows_by_bucket(pa.Table.from_batches(batches), definition))
        batches.clear()
        job.marked.mark((number, self.buckets[number]) for number, _ in parts)
        rows = drain(parts)
        del parts
        written = (
            job.run(number, slice_of_bucket(self, definition, number, table, late))
            for number, table in rows
        )
        changes = collect(job, written, threads=1, part=part)
        return replace(changes, counts={"late": sum(late)})


def _rows_by_bucket(table: pa.Table, definition: TableDefinition) -> Iterator[tuple[int, pa.Table]]:
    """Yield (bucket, rows)."""
    table, places = sort_by_bucket(table.select([*definition.schema.names, BUCKET]))
    for number, rows in places.items():
        yield number, table.slice(rows.start, len(rows)).select(definition.schema.names)


def slice_of_bucket(
    load: Load, definition: TableDefinition, number: int, rows: pa.Table, late: list[int]
) -> Slice:
    """Return the slice for the file of a bucket. Appends the number of duplicate rows to
    ``late``.
    """
    batch = _unique(load, definition, rows)
    late.append(batch.duplicates)
    assignment = load.buckets[number]
    if batch.partitions != (assignment.partition,):
        raise rows_changed()
    inserts = in_key_order(batch.sort_keys, np.arange(len(batch)))
    return slice_of(
        batch, Located.absent(len(batch)), assignment, RowDispositions(_NONE, inserts, _NONE, _NONE)
    )


def _unique(load: Load, definition: TableDefinition, rows: pa.Table) -> Batch:
    batch = normalize(rows, definition, numbered=False)
    if batch.duplicates and load.name in CHECKED:
        raise not_new(load.name, f"{batch.duplicates} rows repeat a key: {list(batch.repeated)}")
    return batch
