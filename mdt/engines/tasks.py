"""Functions that tasks of any engine run: tag rows with the location of their key, write a bucket,
rewrite file groups, summarize files.

They are plain functions over Arrow batches around the code that writes in process. A task opens the
table at the transaction's snapshot, and its process caches it for the next task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import in_batches
from indexes.base import Int64Array, KeyHashes
from mdt.commit.operation import Claim
from mdt.config import Options, parse_options
from mdt.engines.engine import BucketAssignment
from mdt.errors import Invalid, MdtError, Unsupported
from mdt.hudi.record_keys import record_keys, sort_keys
from mdt.metadata.files import paths
from mdt.metadata.files.attachments import AttachmentWriter
from mdt.metadata.keys.locate import Located
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.log_tail import summaries_table
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import TableDefinition
from mdt.services.indexing.index_builder import UncoveredShard, summaries_of
from mdt.services.layout.rewriting import Rewrite
from mdt.session import memo
from mdt.stores.storage import open_storage
from mdt.write.assign import NEW
from mdt.write.new_files import WriteJob
from mdt.write.normalize import partition_names, paths_of
from mdt.write.rules import Rule
from mdt.write.slices import KeyedRows
from mdt.write.summarize import store_summary
from mdt.write.transfer import encode

B = TypeVar("B", pa.Table, pa.RecordBatch)
F = TypeVar("F")

INSERT, RETURN, UPDATE, DELETE, FURTHER, FALLING, DROPPED, READ, MATCHED, ABSENT, BURIED = range(11)
"""Kinds of tagged rows. RETURN: an insert whose key has a deleted row in the table. DELETE: the old
location of a row that moves. FURTHER: a row that ends without a successor. FALLING: an update to a
smaller ordering value, for which its file group gets a base file.

The column ``n`` is the mean size of the task's rows in bytes of Arrow. Kinds from DROPPED on carry
no data and no bucket takes them:

* DROPPED: ``n`` rows of a file group were late.
* READ: the file ``segment`` was read, or the source has ``n`` rows.
* MATCHED: a row of the table that matches but does not change.
* ABSENT: a key that was not found in a partition and is not inserted; ``segment`` and ``position``
  are the two words of its hash.
* BURIED: a tombstone, with its hash as for ABSENT, and its ordering value as text in ``key``.
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
COUNTED = pa.schema(
    [CONTROL.field(name) for name in ("__mdt_kind", "__mdt_partition", "__mdt_group")]
)
"""The columns by which rows are counted: kind, partition and file group."""
COUNTS = pa.schema([*COUNTED, ("rows", pa.int64()), ("total", pa.int64())])
"""Counts of rows, with the sums of ``__mdt_n``."""
_INSERT_CONTROL = {
    "__mdt_kind": INSERT,
    "__mdt_group": NEW,
    "__mdt_segment": -1,
    "__mdt_position": -1,
}
"""CONTROL values of a row that matches no row of the table, without partition and size."""
REPEATED = -2
"""The file group of DROPPED rows whose key occurs again in the input."""
SAMPLED = pa.schema([CONTROL.field("__mdt_partition"), ("key", pa.binary())])
"""Columns of a sample of inserts."""
BUCKET = "__mdt_bucket"
_BATCH_BYTES = 64 << 20
TAG_ONLY = ("__mdt_partition", "__mdt_key", "__mdt_n")
"""CONTROL columns that are not needed once rows are assigned to buckets."""


@dataclass(frozen=True, slots=True)
class Source:
    """The location of a table for tasks: path or URL, table id, seq of the snapshot, and this
    writer's options.

    ``instant``: the newest instant of the snapshot. It differs if a copy of the table was put back
    and has reached the same seq again. ``checkpoint_seq``: the checkpoint of the driver's snapshot,
    which determines the numbers of files and file groups. ``storage_options``: without secrets; a
    task takes credentials from its own machine's environment.
    """

    url: str
    table_id: str
    seq: int
    options: tuple[tuple[str, str], ...]
    checkpoint_seq: int
    instant: str
    storage_options: tuple[tuple[str, str], ...] = ()

    def is_of(self, snapshot: Snapshot) -> bool:
        """Return True if ``snapshot`` is of the same table and has the same newest commit as the
        driver's.
        """
        return (
            snapshot.definition.table_id == self.table_id and snapshot.last_instant == self.instant
        )

    def parsed(self) -> Options:
        """Return the parsed options."""
        return parse_options(dict(self.options))


@dataclass(frozen=True, slots=True)
class InProcessSource(Source):
    """A source for tasks of the process that has the table open."""

    metadata: Metadata = field(kw_only=True)
    snapshot: Snapshot = field(kw_only=True)
    parsed_options: Options = field(kw_only=True)

    def parsed(self) -> Options:
        """Return the parsed options."""
        return self.parsed_options


def source_of(
    metadata: Metadata, snapshot: Snapshot, options: Options, *, is_in_process: bool = False
) -> Source:
    """Return the source for tasks on ``snapshot``. ``is_in_process``: True for tasks of this
    process.
    """
    storage = metadata.storage
    place = (
        storage.url,
        snapshot.definition.table_id,
        snapshot.seq,
        tuple(options.to_mapping().items()),
        snapshot.checkpoint.seq,
        snapshot.last_instant,
        tuple(storage.public_options.items()),
    )
    if is_in_process:
        return InProcessSource(*place, metadata=metadata, snapshot=snapshot, parsed_options=options)
    return Source(*place)


@memo(4)
def _metadata(
    url: str,
    table_id: str,
    options: tuple[tuple[str, str], ...],
    storage_options: tuple[tuple[str, str], ...],
) -> Metadata:
    """Return a worker's cached metadata of a table. The id distinguishes tables that replaced each
    other at the same path.
    """
    durable = parse_options(dict(options)).durable
    return Metadata(
        open_storage(url, durable=durable, storage_options=dict(storage_options)), dict(options)
    )


def open_at(source: Source, find: Callable[[Metadata], F | None]) -> tuple[Metadata, F]:
    """Return this worker's cached metadata of a table, and what ``find`` finds there.

    If ``find`` raises an error or returns None, the metadata may belong to an older copy of the
    table, which is then opened again. Raises Unsupported if this worker finds another table than
    the driver, or none.
    """
    place = source.url, source.table_id, source.options, source.storage_options
    metadata = _metadata(*place)
    with suppress(MdtError):
        found = find(metadata)
        if found is not None:
            return metadata, found
    _metadata.cache_clear()
    metadata = _metadata(*place)
    try:
        found = find(metadata)
    except Invalid as error:
        raise _table_not_found(source) from error
    if found is None:
        raise _table_not_found(source)
    return metadata, found


def open_table(source: Source) -> tuple[Metadata, Snapshot]:
    """Return the table at the transaction's snapshot. Raises as :func:`open_at`."""
    if isinstance(source, InProcessSource):
        return source.metadata, source.snapshot

    def snapshot_of(metadata: Metadata) -> Snapshot | None:
        snapshot = metadata.at(source.seq, source.checkpoint_seq)
        return snapshot if source.is_of(snapshot) else None

    return open_at(source, snapshot_of)


def job_of(source: Source, claim: Claim, attempt: int) -> WriteJob:
    """Return the job in which this attempt of a task writes files."""
    options, attempted = source.parsed(), claim.for_attempt(attempt)
    return WriteJob.for_claim(*open_table(source), options, attempted)


def _table_not_found(source: Source) -> Unsupported:
    """Return the error of a worker that finds another table than the driver, or none."""
    return Unsupported(
        f"a worker cannot find the driver's table at {source.url}",
        hint=(
            "use a path or URL that the driver and all executors can access; if the table was"
            " deleted or replaced, create the DataFrame again"
        ),
    )


def tagged_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of tagged rows: ``schema``, nullable, and CONTROL."""
    return pa.schema([*(pa.field(field.name, field.type) for field in schema), *CONTROL])


def labelled_schema(definition: TableDefinition, columns: pa.Schema) -> pa.Schema:
    """Return the columns of labelled rows: the table's columns with the types of ``columns``, and
    CONTROL.
    """
    return pa.schema(
        [*(pa.field(name, columns.field(name).type) for name in definition.schema.names), *CONTROL]
    )


def label(
    definition: TableDefinition, batches: Iterator[pa.RecordBatch], attempt: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield the rows unchanged, in large batches, with the CONTROL columns of inserts. Raises
    Invalid for null keys.
    """
    for table in large_batches(batches):
        table = table.select(definition.schema.names)
        if any(table[name].null_count for name in definition.key):
            record_keys(table, definition.key, numbered=False)
        codes, paths = paths_of(table, definition)
        defaults = {**_INSERT_CONTROL, "__mdt_n": table.nbytes // len(table)}
        control = [
            pa.repeat(pa.scalar(defaults.get(field.name), field.type), len(table))
            for field in CONTROL
        ]
        control[CONTROL.get_field_index("__mdt_partition")] = pa.array(paths, pa.string()).take(
            pa.array(codes)
        )
        labelled = pa.table([*table.columns, *control], labelled_schema(definition, table.schema))
        yield from labelled.combine_chunks().to_batches()


def large_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of all batches as tables of at most _BATCH_BYTES, or of one batch."""
    nonempty = (batch for batch in batches if batch.num_rows)
    return map(
        pa.Table.from_batches, in_batches(nonempty, lambda batch: batch.nbytes, _BATCH_BYTES)
    )


def tag(
    rule: Rule, source: Source, batches: Iterator[pa.RecordBatch], attempt: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part as ``rule`` decides, with CONTROL columns. Equal keys must be in the
    same part.
    """
    return of_part(partial(_tag, rule, source), batches)


def of_part(
    function: Callable[[pa.Table], Iterator[pa.Table]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that ``function`` makes of all rows of a part, nothing for a part without
    rows.
    """
    nonempty = [batch for batch in batches if batch.num_rows]
    if nonempty:
        for table in function(pa.Table.from_batches(nonempty)):
            yield from table.to_batches()


def _tag(rule: Rule, source: Source, rows: pa.Table) -> Iterator[pa.Table]:
    metadata, snapshot = open_table(source)
    definition = snapshot.definition
    batch = rule.batch(rows, definition, numbered=False)
    outcome = rule.outcome(metadata, snapshot, batch)
    batch, places, columns = outcome.batch, outcome.places, rule.columns(definition)
    names, old_partitions = partition_names(batch), snapshot.file_groups.partitions(places.group)
    missing = outcome.missing
    yield hash_rows(columns, ABSENT, batch.hashes.take(missing), __mdt_partition=names[missing])
    yield tombstone_rows(columns, outcome.tombstones)
    written: KeyedRows = replace(batch, table=batch.table.select(columns.names))
    kinds = (
        (INSERT, outcome.inserts, names),
        (RETURN, outcome.returns, names),
        (UPDATE, outcome.updates, names),
        (DELETE, outcome.moves, old_partitions),
        (FURTHER, outcome.ends, old_partitions),
    )
    for kind, entries, partition in kinds:
        yield tagged_rows(written, places, entries, kind, np.asarray(partition))
    late, n = np.unique(outcome.located.group[outcome.late], return_counts=True)
    # Group -1: rows that are older than the delete of their key.
    groups, counts = [*late, REPEATED], [*n, outcome.repeated]
    yield without_data(columns, DROPPED, __mdt_group=groups, __mdt_n=counts)


def tagged_rows(
    batch: KeyedRows,
    located: Located,
    rows: Int64Array,
    kind: int,
    partition: np.ndarray[tuple[int], np.dtype[np.object_]],
) -> pa.Table:
    """Return the entries ``rows`` of ``located`` with the data of their keys in ``batch``.
    ``partition``: the path of each entry.
    """
    schema = tagged_schema(batch.table.schema)
    is_new = kind in (INSERT, RETURN)
    group = located.dead_in if kind == RETURN else located.group
    if kind == INSERT:
        group = np.full(len(batch), NEW) if located.home is None else located.home
    key_rows = pa.array(located.keys_of(rows))
    control = [
        np.full(len(rows), kind, np.int32),
        partition[rows],
        batch.keys.take(key_rows),
        group[rows],
        np.full(len(rows), -1, np.int64) if is_new else located.file[rows],
        located.position[rows],
        np.full(len(rows), batch.table.nbytes // max(1, len(batch)), np.int64),
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(control, CONTROL, strict=True)]
    return pa.table([*batch.table.take(key_rows).columns, *arrays], schema=schema)


def without_data(schema: pa.Schema, kind: int, **control: Any) -> pa.Table:
    """Return tagged rows with the given CONTROL columns, at least one, and null in all other
    columns.
    """
    full_schema = tagged_schema(schema)
    size = len(next(iter(control.values())))
    values = {"__mdt_kind": np.full(size, kind), **control}
    nulls = (pa.nulls(size, f.type) for f in full_schema)
    columns = [
        pa.array(values[f.name], f.type) if f.name in values else null
        for f, null in zip(full_schema, nulls, strict=True)
    ]
    return pa.table(columns, schema=full_schema)


def hash_rows(columns: pa.Schema, kind: int, hashes: KeyHashes, **control: Any) -> pa.Table:
    """Return a row without data for each hash, with its two words as segment and position."""
    words = {"__mdt_segment": hashes.hi.view(np.int64), "__mdt_position": hashes.lo.view(np.int64)}
    nothing = np.zeros(len(hashes), np.int64)
    return without_data(columns, kind, **words, **control, __mdt_group=nothing - 1, __mdt_n=nothing)


def tombstone_rows(columns: pa.Schema, stones: pa.Table) -> pa.Table:
    """Return a row without data for each tombstone of ``stones``, schema TOMBSTONES."""
    marks = KeyHashes(*(stones[name].to_numpy() for name in ("hi", "lo")))
    return hash_rows(
        columns, BURIED, marks, __mdt_key=stones["ordering"].cast(pa.string()).combine_chunks()
    )


def select_rows(rows: B, kind: int, names: Sequence[str]) -> B:
    """Return the columns ``names`` of the rows of a kind."""
    return rows.filter(pc.equal(rows["__mdt_kind"], kind)).select(list(names))


def count_rows(rows: pa.Table) -> pa.Table:
    """Count the rows of each combination of the columns COUNTED -> COUNTS."""
    sums = rows.group_by(COUNTED.names).aggregate([([], "count_all"), ("__mdt_n", "sum")])
    names = [*COUNTED.names, "count_all", "__mdt_n_sum"]
    return sums.select(names).rename_columns(COUNTS.names)


def insert_keys(rows: pa.Table, partitions: Sequence[str], key: Sequence[str]) -> pa.Table:
    """Return the tagged inserts into ``partitions`` as SAMPLED, with their sort keys by the columns
    ``key``.
    """
    is_selected = pc.is_in(rows["__mdt_partition"], pa.array(list(partitions), pa.string()))
    rows = rows.filter(pc.and_(pc.equal(rows["__mdt_kind"], INSERT), is_selected))
    return pa.table(
        [rows["__mdt_partition"], sort_keys(rows, key).cast(pa.binary())], schema=SAMPLED
    )


def by_place(rows: pa.Table) -> tuple[pa.Table, list[tuple[str, int, slice]]]:
    """Return tagged rows sorted by their place, and (place, file group, rows) of each place.

    The rows of a place keep their order.
    """
    is_insert = rows["__mdt_kind"].to_numpy() == INSERT
    paths = rows["__mdt_partition"].combine_chunks().dictionary_encode()
    code = np.where(is_insert, paths.indices.to_numpy(zero_copy_only=False), -1)
    group = rows["__mdt_group"].to_numpy()
    order = np.lexsort((group, code))
    code, group = code[order], group[order]
    is_first = (np.diff(code, prepend=-2) != 0) | (np.diff(group, prepend=0) != 0)
    starts = np.flatnonzero(is_first).tolist()
    if len(starts) > 1:
        rows = rows.take(pa.array(order))
    names = [*paths.dictionary.to_pylist(), ""]  # code -1
    places = [
        (names[code[start]], int(group[start]), slice(start, end))
        for start, end in pairwise([*starts, len(rows)])
    ]
    return rows, places


def assign_buckets(
    assignment: BucketAssignment, batches: Iterator[pa.RecordBatch], attempt: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that belong to a bucket, with its number, for engines without native shuffles.
    O(n log n) for a batch of n rows.
    """
    entries = {(row["place"], row["number"]): row for row in assignment.places.to_pylist()}
    for batch in batches:
        table = pa.Table.from_batches([batch])
        table, places = by_place(table.filter(pc.less(table["__mdt_kind"], DROPPED)))
        bucket = np.full(len(table), -1, np.int32)
        for place, number, at in places:
            if entry := entries.get((place, number)):
                bucket[at] = _bucket_of_rows(assignment, table[at], entry)
        assigned = table.append_column(BUCKET, pa.array(bucket))
        yield from assigned.filter(pa.array(bucket >= 0)).to_batches()


def _bucket_of_rows(
    assignment: BucketAssignment, rows: pa.Table, place: Mapping[str, Any]
) -> npt.NDArray[np.int32]:
    """Return the bucket of each row of a place -> int32[n], or int32[1] if it is the same for all
    rows.
    """
    takers = np.array(place["takers"], np.int32)
    if not place["bounds"]:
        return takers
    keys = sort_keys(rows, assignment.key).cast(pa.binary())
    return takers[_bounds_before(pa.array(place["bounds"], pa.binary()), keys)]


def _bounds_before(bounds: pa.Array, keys: pa.Array) -> Int64Array:
    """Return the number of sorted ``bounds`` that are at most each key -> int64[n]. O(n log
    bounds).
    """
    low, high = np.zeros(len(keys), np.int64), np.full(len(keys), len(bounds), np.int64)
    for _ in range(len(bounds).bit_length()):
        middle = (low + high) // 2
        pivots = bounds.take(pa.array(np.minimum(middle, len(bounds) - 1)))
        follows = pc.less_equal(pivots, keys).to_numpy(zero_copy_only=False) & (low < high)
        low, high = np.where(follows, middle + 1, low), np.where(follows, high, middle)
    return low


def rewrite(
    source: Source, claim: Claim, function: Rewrite[Any], units: Sequence[Any], attempt: int
) -> tuple[bytes, dict[str, list[Any]]]:
    """Rewrite units with ``function`` on a single thread; return the encoded changes
    (:mod:`mdt.write.transfer`) and the fields for the header of the record.
    """
    job = job_of(source, claim, attempt)
    job = replace(job, options=replace(job.options, writer_threads=1))
    changes = function(job, units, f"-{attempt}", None)
    return encode(changes), dict(changes.extra)


def summarize(
    source: Source, claim: Claim, shards: Sequence[UncoveredShard], attempt: int
) -> pa.Table:
    """Summarize shards -> SUMMARIES, with the snapshot's shard numbers. Large summaries go into an
    object per task.
    """
    metadata, snapshot = open_table(source)
    objects = AttachmentWriter(paths.attachment(claim.instant, f"{claim.token}-{attempt}"))
    entries = []
    for shard in shards:
        summaries = summaries_of(metadata, snapshot, shard)
        entries += [
            (spec, shard.shard, store_summary(objects, data)) for spec, data in summaries.items()
        ]
    objects.write(metadata.storage)
    return summaries_table(entries)
