"""What Spark tasks do for a write: tag rows with where their key lives, then write one bucket each.

Plain functions over Arrow batches around the same code that writes in process.  A task opens the table at the
transaction's snapshot; a Python worker keeps it for the next task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from indexes.base import Int64Array
from mdt.commit.operation import Claim
from mdt.config import Options, parse_options
from mdt.engines.spark.failures import in_task
from mdt.engines.spark.schema import in_micros
from mdt.errors import Invalid, Unsupported
from mdt.metadata.locate import Located
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.schema.conform import conform
from mdt.schema.convert import convert
from mdt.stores.storage import open_storage
from mdt.write.assign import Assignment
from mdt.write.files import WriteJob
from mdt.write.normalize import Batch, keyed_rows, normalize
from mdt.write.operations import collect, decide, in_key_order, locate_batch, new_here, partition_names
from mdt.write.slices import Fates, KeyedRows, slice_of
from mdt.write.transfer import Finished, encode

INSERT, RETURN, UPDATE, DELETE, DROPPED = range(5)
"""Kinds of tagged rows; RETURN: an insert where a dead row of the key stands.

The column ``n`` is the mean size of the task's rows in bytes of Arrow; DROPPED rows carry no data, there it is how many
rows were late in a file group.
"""

CONTROL = pa.schema(
    [
        ("__mdt_kind", pa.int32()),
        ("__mdt_partition", pa.string()),
        ("__mdt_key", pa.string()),
        ("__mdt_group", pa.int64()),
        ("__mdt_segment", pa.int64()),
        ("__mdt_position", pa.int64()),
        ("__mdt_n", pa.int64()),
    ]
)
BUCKET = "__mdt_bucket"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a task finds the table: path or URL, the table's id, seq of the snapshot, and this writer's options.

    ``base_seq``: the base of the driver's snapshot, on which the numbers of file groups depend.  ``storage_options``: those that
    are no secrets; a task takes credentials from the environment of its own machine.
    """

    url: str
    table_id: str
    seq: int
    options: tuple[tuple[str, str], ...]
    base_seq: int | None = None
    storage_options: tuple[tuple[str, str], ...] = ()

    def parsed(self) -> Options:
        """Return the options."""
        return parse_options(dict(self.options))


def source_of(metadata: Metadata, snapshot: Snapshot, options: Options, base_seq: int | None = None) -> Source:
    """Return where tasks find ``snapshot``."""
    storage = metadata.storage
    return Source(
        storage.url, snapshot.definition.table_id, snapshot.seq, tuple(options.to_mapping().items()), base_seq,
        tuple(storage.public_options.items()),
    )  # fmt: skip


@lru_cache(maxsize=4)
def _metadata(
    url: str, table_id: str, options: tuple[tuple[str, str], ...], storage_options: tuple[tuple[str, str], ...]
) -> Metadata:
    """Return what a worker keeps of a table; a table that replaced another at the same path has another id."""
    durable = parse_options(dict(options)).durable
    return Metadata(open_storage(url, durable=durable, storage_options=dict(storage_options)), dict(options))


def opened(source: Source) -> tuple[Metadata, Snapshot]:
    """Return the table at the transaction's snapshot.  Raises Unsupported if this worker sees another table, or none."""
    metadata = _metadata(source.url, source.table_id, source.options, source.storage_options)
    try:
        snapshot = metadata.at(source.seq, source.base_seq)
    except Invalid as error:
        raise _elsewhere(source) from error
    if snapshot.definition.table_id != source.table_id:
        raise _elsewhere(source)
    return metadata, snapshot


def _elsewhere(source: Source) -> Unsupported:
    return Unsupported(
        f"a Spark worker does not find at {source.url} the table that the driver sees",
        hint="use a path or URL that the driver and all executors share",
    )


def tagged_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of tagged rows: the data, nullable, as Spark can take it, and CONTROL."""
    return pa.schema([*(pa.field(field.name, in_micros(field.type)) for field in schema), *CONTROL])


def tag(source: Source, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one Spark partition with CONTROL columns; equal keys must be in one partition."""
    with in_task():
        parts = _tag(source, [batch for batch in batches if batch.num_rows])
    for part in parts:
        yield from part.to_batches()


def _tag(source: Source, pieces: Sequence[pa.RecordBatch]) -> list[pa.Table]:
    if not pieces:
        return []
    metadata, snapshot = opened(source)
    batch = normalize(pa.Table.from_batches(pieces), snapshot.definition)
    located = locate_batch(metadata, snapshot, batch)
    late, moved = decide(snapshot, batch, located)
    fresh, returning = new_here(located, moved)
    changed = np.flatnonzero(located.found & ~late & ~moved)
    moves = np.flatnonzero(moved)
    names = partition_names(batch)
    return [
        _tagged(batch, located, fresh, INSERT, names),
        _tagged(batch, located, returning, RETURN, names),
        _tagged(batch, located, changed, UPDATE, names),
        _tagged(batch, located, moves, DELETE, snapshot.partitions_of(located.group)),
        _dropped(batch, located.group[late]),
    ]


def _tagged(
    batch: Batch, located: Located, rows: Int64Array, kind: int, partition: np.ndarray[tuple[int], np.dtype[np.object_]]
) -> pa.Table:
    schema = tagged_schema(batch.table.schema)
    is_new = kind in (INSERT, RETURN)
    group = located.dead_in if is_new else located.group
    control = [
        np.full(len(rows), kind, np.int32),
        partition[rows],
        batch.keys.take(pa.array(rows)),
        group[rows],
        np.full(len(rows), -1, np.int64) if is_new else located.segment[rows],
        located.position[rows],
        np.full(len(rows), batch.table.nbytes // max(1, len(batch)), np.int64),
    ]
    columns = [*batch.table.take(pa.array(rows)).columns, *control]
    return pa.table([_array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def _array(column: object, type: pa.DataType) -> object:
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([convert(chunk, type) for chunk in column.chunks], type)
    return column if isinstance(column, pa.Array) else pa.array(column, type)


def _dropped(batch: Batch, groups: Int64Array) -> pa.Table:
    """Return one row without data for each file group with late rows, and one (group -1) for repeated keys."""
    schema = tagged_schema(batch.table.schema)
    group, n = np.unique(groups, return_counts=True)
    size = len(group) + 1
    known: dict[str, list[Any]] = {
        "__mdt_kind": [DROPPED] * size,
        "__mdt_group": [*group.tolist(), -1],
        "__mdt_n": [*n.tolist(), batch.duplicates],
    }
    return pa.table([pa.array(known.get(f.name, [None] * size), f.type) for f in schema], schema=schema)


@dataclass(frozen=True, slots=True)
class Work:
    """What the write tasks share: the source, the claim, and the assignment of each bucket."""

    source: Source
    claim: Claim
    buckets: Sequence[Assignment]


def write(work: Work, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the buckets among the rows of one Spark partition; yield one row with what was written."""
    with in_task():
        result = _write(work, [batch for batch in batches if batch.num_rows])
    if result is not None:
        yield pa.RecordBatch.from_pydict({"result": pa.array([encode(result)], pa.binary())})


def _write(work: Work, pieces: Sequence[pa.RecordBatch]) -> Finished | None:
    if not pieces:
        return None
    table = pa.Table.from_batches(pieces)
    metadata, snapshot = opened(work.source)
    control = {name: table[name].to_numpy() for name in (BUCKET, "__mdt_kind", "__mdt_segment", "__mdt_position")}
    group = table["__mdt_group"].to_numpy()
    data = table.select(snapshot.definition.schema.names)
    stored = snapshot.definition.schema
    batch = keyed_rows(conform(data, stored, stored), snapshot.definition)
    located = Located(control["__mdt_segment"], control["__mdt_position"], group, np.empty(0, np.uint64))
    context = TaskContext.get()
    assert context is not None, "write runs in a Spark task"
    attempt = int(context.taskAttemptId())  # unique in the application: no two attempts share a name
    claim = Claim(work.claim.txn, work.claim.instant, work.claim.token, attempt)
    shared = WriteJob.of(metadata, snapshot, work.source.parsed(), claim)
    numbers = np.unique(control[BUCKET]).tolist()
    done = (shared.run(n, slice_of(batch, located, work.buckets[n], _fates(control, batch, n))) for n in numbers)
    changes = collect(shared, done, threads=1, part=f"-{context.partitionId()}-{attempt}")
    return Finished(changes.files, changes.units, changes.removed, dict(changes.vectors))


def _fates(control: Mapping[str, Int64Array], batch: KeyedRows, bucket: int) -> Fates:
    """Return the rows of one bucket among ``batch`` by what is done to them."""
    mine = control[BUCKET] == bucket
    kinds = (UPDATE, INSERT, RETURN, DELETE)
    updates, inserts, returns, deletes = (np.flatnonzero(mine & (control["__mdt_kind"] == kind)) for kind in kinds)
    return Fates(updates, in_key_order(batch.sort_keys, inserts), returns, deletes)
