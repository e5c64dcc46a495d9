"""The operations upsert, insert, bulk_insert and delete, in process, on Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from indexes.base import Int64Array, KeyHashes, KeyIndex
from indexes.sorting import stable_order
from mdt.commit.conflicts import TABLE, Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.config import Options
from mdt.errors import Invalid, MdtError
from mdt.hudi import properties
from mdt.hudi.keys import rising
from mdt.hudi.partitions import partition_depth
from mdt.limits import FAR_FILES_READ_AT_ONCE, FAR_OBJECT_WHOLE_BYTES_MAX, INLINE_SUMMARY_BYTES_MAX
from mdt.metadata import key_indexes
from mdt.metadata.files import paths
from mdt.metadata.files.attachments import AttachmentWriter
from mdt.metadata.keys import buckets, footer_filters
from mdt.metadata.keys.locate import Located, locate
from mdt.metadata.log.commit_log import NO_TOMBSTONES
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.deleted_keys import outlived
from mdt.metadata.snapshot.key_parts import KeyPart
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.progress import Progress, counted
from mdt.stores.contract import awaited
from mdt.write.assign import NEW, Assignment, Place, assign
from mdt.write.bytes import rewriting_warnings
from mdt.write.deletes import of_keys
from mdt.write.files import WriteJob, Written
from mdt.write.marked_files import Placed
from mdt.write.normalize import Batch, as_altered, partition_names, rehashed
from mdt.write.slices import Fates, Slice, slice_of
from mdt.write.staying import in_place, refuse_null_partition
from mdt.write.summarize import Indexed, sharded, stats_of_small_files
from mdt.write.text_order import older_than_there

T = TypeVar("T", bound=Placed)

_MANY_FILES = 64
_SMALL_FILE_ROWS = 1000
"""Files of fewer rows, if they are :data:`_MANY_FILES`, are made one after the other."""
_MANY_SLICES = 8
_GATHERED_BYTES_MAX = 64 << 20
"""The rows of so many slices are gathered together if they are no more than this: they are in
memory twice then.
"""
_NAMED_ROWS = 10
_NO_ROWS: Int64Array = np.empty(0, np.int64)


def by_value(rows: Int64Array, of: Int64Array) -> dict[int, Int64Array]:
    """Return value -> the ``rows`` that have it, in order.  ``of``: int64[len(rows)]."""
    if not len(rows):
        return {}
    if of.min() == of.max():
        return {int(of[0]): rows}
    order = stable_order(of)
    values = of[order]
    first = np.flatnonzero(np.diff(values)) + 1
    return dict(
        zip([int(values[0]), *values[first].tolist()], np.split(rows[order], first), strict=True)
    )


def by_partition(batch: Batch, rows: Int64Array) -> dict[int, Int64Array]:
    """Return number of a partition of ``batch`` -> those of the ``rows`` that belong there, in
    order.
    """
    if len(batch.partitions) == 1 and len(rows):
        return {0: rows}
    return by_value(rows, batch.partition[rows])


def in_key_order(keys: pa.Array, rows: Int64Array) -> Int64Array:
    """Return ``rows`` by rising key, so that key ranges of files are narrow.  ``keys``: as in
    ``Batch.sort_keys``.
    """
    if len(rows) < 2:
        return rows
    if len(rows) != len(keys):
        keys = keys.take(pa.array(rows))
    order = rising(keys)
    if order is None:
        return rows
    return rows[order]


def inserts_of(
    batch: Batch, rows: Int64Array, homes: Int64Array | None = None
) -> dict[Place, Int64Array]:
    """Return place -> those of the ``rows`` that belong there, in the order in which they are
    stored.

    ``homes``: int64[len(batch)], where the keys belong in their partitions; None: anywhere.
    """
    parts = by_partition(batch, rows)
    return {
        (batch.partitions[code], home): in_key_order(batch.sort_keys, some)
        for code, part in parts.items()
        for home, some in (((NEW, part),) if homes is None else by_value(part, homes[part]).items())
    }


def absent_keys(batch: Batch, rows: Int64Array, is_global: bool) -> dict[str, KeyHashes]:
    """Return the hashes of ``rows``, each once, by partition path (TABLE under table scope), as a
    footprint holds them.
    """
    if not len(rows):
        return {}
    parts = {TABLE: rows}
    if not is_global:
        parts = {batch.partitions[code]: part for code, part in by_partition(batch, rows).items()}
    return {
        path: batch.hashes if len(part) == len(batch) else batch.hashes.take(part)
        for path, part in parts.items()
    }


@dataclass(frozen=True, slots=True)
class RowPlan(WritePlan):
    """What a batch of rows does to a snapshot.

    ``updates``, ``deletes``, ``returns``: file group -> rows of the batch.  ``inserts``: place ->
    rows, in the order in which they are stored.  See :class:`mdt.write.slices.Fates`.  ``batch``:
    the rows as the snapshot's schema has them, None if none is written.  ``tombstones``: of deleted
    keys, schema TOMBSTONES.
    """

    work: Sequence[Assignment] = ()
    located: Located = field(default_factory=Located.nothing)
    updates: Mapping[int, Int64Array] = field(default_factory=dict)
    deletes: Mapping[int, Int64Array] = field(default_factory=dict)
    returns: Mapping[int, Int64Array] = field(default_factory=dict)
    inserts: Mapping[Place, Int64Array] = field(default_factory=dict)
    batch: Batch | None = None
    tombstones: pa.Table = field(default_factory=lambda: NO_TOMBSTONES)

    def fates(self, one: Assignment) -> Fates:
        """Return what one assignment does with which rows."""
        inserts = self.inserts.get(one.place, _NO_ROWS)[one.inserts.start : one.inserts.stop]
        updates, returns, deletes = (
            of.get(one.group, _NO_ROWS) for of in (self.updates, self.returns, self.deletes)
        )
        return Fates(updates, inserts, returns, deletes)

    def slices_of(self, batch: Batch) -> Callable[[Assignment], Slice]:
        """Return what says what one assignment writes; the rows of many small ones are gathered
        together, for one alone takes as long as many.
        """
        if len(self.work) < _MANY_SLICES or batch.table.nbytes > _GATHERED_BYTES_MAX:
            return lambda one: slice_of(batch, self.located, one, self.fates(one))
        order = np.concatenate([self.fates(one).new for one in self.work])
        gathered, place = batch.rows(order), np.empty(len(batch), np.int64)
        place[order] = np.arange(len(order))
        return lambda one: slice_of(batch, self.located, one, self.fates(one), (gathered, place))


@dataclass(frozen=True, slots=True)
class RowOperation(Operation[RowPlan]):
    """What upsert and delete share: a batch and its options.

    ``progress`` is called with the number of written files and of all.
    """

    metadata: Metadata
    options: Options
    batch: Batch
    name: str
    action: str
    progress: Progress | None = None

    def write(self, snapshot: Snapshot, plan: RowPlan, claim: Claim) -> Changes:
        """Write the files of ``plan``."""
        batch = self.batch if plan.batch is None else plan.batch
        changes = write_rows(
            self.metadata, snapshot, self.options, plan, batch, claim, self.progress
        )
        return replace(changes, tombstones=plan.tombstones)


class Upsert(RowOperation):
    """Write the rows of ``batch``; keys that exist are replaced, or refused if ``name`` says
    insert.

    ``bulk_insert`` differs from ``insert`` in that it fills new file groups, but for keys that were
    deleted: these return.
    """

    def prepare(self, snapshot: Snapshot, txn: str) -> RowPlan:
        """Return the plan for ``snapshot``.  Raises Invalid if keys exist that must not."""
        definition = snapshot.definition
        batch = self.placed(snapshot)
        located = locate_batch(self.metadata, snapshot, batch)
        if self.name != "upsert":
            _refuse(batch, np.flatnonzero(located.found & ~batch.deletes), self.name)
        batch = in_place(snapshot, batch, located)
        batch, late, moved = self.decided(snapshot, batch, located)
        late |= outlived(
            snapshot, batch.hashes, partition_names(batch), batch.ordering, located.found
        )
        ends, missing = batch.deletes, batch.deletes & ~located.found
        late &= ~missing
        rows, moves = np.flatnonzero(located.found & ~late & ~moved & ~ends), np.flatnonzero(moved)
        fresh, returning = new_here(located, late | ends, moved)
        places, further = ended_besides(located, late)
        ended = np.append(np.flatnonzero(located.found & ends & ~late), further)
        gone = np.append(moves, ended)
        updates, deletes = by_value(rows, located.group[rows]), by_value(gone, places.group[gone])
        returns, inserts = (
            by_value(returning, located.dead_in[returning]),
            inserts_of(batch, fresh, located.home),
        )
        work = assign(
            snapshot,
            self.options,
            can_index_log_files=self.metadata.key_index(snapshot).can_index_log_files,
            touched={*updates, *deletes},
            returns=returns,
            inserts={place: len(rows) for place, rows in inserts.items()},
            row_bytes=batch.row_bytes,
            use_small_files=self.name != "bulk_insert",
        )
        counts = {
            "inserted": int((~located.found & ~late & ~ends).sum()),
            "updated": len(rows) + len(moves),
            "deleted": len(ended),
            "late": int(late.sum()) + batch.duplicates,
            "missing": int(missing.sum()),
        }
        tombstones = (
            of_keys(snapshot, batch, located, late, ends)
            if batch.ends is not None
            else NO_TOMBSTONES
        )
        absent = absent_keys(batch, np.flatnonzero(~located.found), definition.is_global)
        return RowPlan(
            footprint_of(snapshot, txn, places, work, absent),
            partitions_of(work),
            counts,
            bool(work) or bool(len(tombstones)),
            work,
            places,
            updates,
            deletes,
            returns,
            inserts,
            batch,
            tombstones,
            left=rows_left(snapshot, located, late),
            warnings=rewriting_warnings(snapshot, work, returns=returns),
        )

    def placed(self, snapshot: Snapshot) -> Batch:
        """Return the batch as the snapshot's schema has it."""
        return as_altered(self.batch, snapshot.definition)

    def decided(
        self, snapshot: Snapshot, batch: Batch, located: Located
    ) -> tuple[Batch, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return the batch as it is to be written, and which of its rows come late and which move,
        as :func:`decide` does.
        """
        return (batch, *decide(self.metadata, snapshot, batch, located))


class Delete(RowOperation):
    """Delete the keys of ``batch``; absent ones are counted as ``missing``.

    Where ``batch`` says ordering values, keys with a newer row live on, and are counted as
    ``late``.
    """

    def prepare(self, snapshot: Snapshot, txn: str) -> RowPlan:
        """Return the plan for ``snapshot``."""
        batch = rehashed(self.batch, snapshot.definition)
        located = locate_batch(self.metadata, snapshot, batch)
        late, places, gone = ended(batch, located)
        deletes = by_value(gone, places.group[gone])
        work = assign(
            snapshot,
            self.options,
            can_index_log_files=True,
            touched=deletes,
            returns=(),
            inserts={},
        )
        missing = int((~located.found).sum())
        counts = {
            "inserted": 0,
            "updated": 0,
            "deleted": len(gone),
            "late": int(late.sum()),
            "missing": missing,
        }
        tombstones = of_keys(snapshot, batch, located, late)
        absent = absent_keys(batch, np.flatnonzero(~located.found), snapshot.definition.is_global)
        return RowPlan(
            footprint_of(snapshot, txn, places, work, absent),
            partitions_of(work),
            counts,
            bool(work) or bool(len(tombstones)),
            work,
            places,
            deletes=deletes,
            batch=batch,
            tombstones=tombstones,
            left=rows_left(snapshot, located, late),
        )


def ended(batch: Batch, located: Located) -> tuple[npt.NDArray[np.bool_], Located, Int64Array]:
    """Return which keys of a delete live on, in newer rows -> bool[n]; ``located`` with further
    rows; its entries that end.
    """
    late = np.zeros(len(batch), np.bool_)
    if batch.ordering is not None:
        late = located.found & (batch.ordering < located.ordering)
    places, further = ended_besides(located, late)
    return late, places, np.append(np.flatnonzero(located.found & ~late), further)


def ended_besides(located: Located, late: npt.NDArray[np.bool_]) -> tuple[Located, Int64Array]:
    """Return ``located`` with an entry for each further row of a key, and the entries of those that
    end: of keys that are not ``late``.
    """
    further = np.flatnonzero(~late[located.further.key]) + len(located.file)
    return located.with_further(), further


def rows_left(
    snapshot: Snapshot, located: Located, late: npt.NDArray[np.bool_]
) -> dict[int, BitMap] | None:
    """Return the rows for which those of a batch come ``late``: segment -> positions; None where
    more than one row of a key may say so.
    """
    rows = np.flatnonzero(late & located.found)
    if len(rows) and len(located.further.key):
        return None
    segments = snapshot.segment_ids[located.file[rows]] if len(rows) else rows
    return {
        segment: BitMap(located.position[found])
        for segment, found in by_value(rows, segments).items()
    }


def decide(
    metadata: Metadata, snapshot: Snapshot, batch: Batch, located: Located
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return which rows come late (the table has a larger ordering value) and which move here from
    another partition.

    Both bool[n]; a row that moves is deleted where it is and inserted where it belongs (table scope
    only).
    """
    late = older_than_there(metadata, snapshot, batch, located)
    if not snapshot.definition.is_global or not len(snapshot):
        return late, np.zeros(len(batch), np.bool_)
    there, names = snapshot.file_groups.partitions(located.group), partition_names(batch)
    moved = located.found & ~late & ~batch.deletes & np.asarray(there != names)
    refuse_null_partition(snapshot.definition, batch, names, there, np.flatnonzero(moved))
    return late, moved


def new_here(
    located: Located, late: npt.NDArray[np.bool_], moved: npt.NDArray[np.bool_]
) -> tuple[Int64Array, Int64Array]:
    """Return the rows whose key is new to its partition, and those whose key returns to where a
    dead row of it stands; none that is late.
    """
    is_new = (~located.found & ~late) | moved
    return np.flatnonzero(is_new & (located.dead_in < 0)), np.flatnonzero(
        is_new & (located.dead_in >= 0)
    )


def locate_batch(metadata: Metadata, snapshot: Snapshot, batch: Batch) -> Located:
    """Return where the keys of ``batch`` live, each in its scope."""
    definition, partition = snapshot.definition, partition_names(batch)
    keys = key_indexes.keys_for(definition.key_index, batch.keys, batch.sort_keys)
    proposed, options = None, metadata.options(definition)
    if not options.bloom_metadata and key_indexes.is_bloom(definition.key_index):
        matters = None if definition.is_global else partition
        proposed = footer_filters.proposed(metadata, snapshot, options, batch.keys, matters)
    return locate(metadata, snapshot, keys, batch.hashes, partition, proposed)


def _refuse(batch: Batch, rows: Int64Array, operation: str) -> None:
    if len(rows):
        named = batch.keys.take(pa.array(rows[:_NAMED_ROWS])).to_pylist()
        what = f"{len(rows)} keys exist already: {named}"
    elif batch.duplicates:
        what = f"{batch.duplicates} rows repeat a key: {list(batch.repeated)}"
    else:
        return
    raise not_new(operation, what)


def not_new(operation: str, what: str) -> Invalid:
    """Return the refusal of rows that an insert does not take."""
    return Invalid(f"{operation} takes new keys only; {what}", hint="use upsert to replace rows")


def footprint_of(
    snapshot: Snapshot,
    txn: str,
    located: Located,
    work: Sequence[Assignment],
    absent: Mapping[str, KeyHashes],
) -> Footprint:
    """Return the footprint of everything that was read."""
    found = located.group[located.group >= 0]  # but rows that were not found
    # but NEW ones
    read = np.union1d(found, np.array([w.group for w in work if w.group >= 0], np.int64))
    return Footprint(
        txn, frozenset(snapshot.file_groups.names(read.tolist())), absent, opens=opened_by(work)
    )


def opened_by(work: Sequence[Assignment]) -> frozenset[tuple[str, int]]:
    """Return the buckets, by partition, of which ``work`` makes the file group."""
    return frozenset((one.partition, buckets.number(one.group)) for one in work if one.group < NEW)


def partitions_of(work: Sequence[Assignment]) -> list[str]:
    """Return the paths of the partitions of ``work``."""
    return sorted({w.partition for w in work})


def write_rows(
    metadata: Metadata,
    snapshot: Snapshot,
    options: Options,
    plan: RowPlan,
    batch: Batch,
    claim: Claim,
    progress: Progress | None,
) -> Changes:
    """Write the files of ``plan``, whose rows are those of ``batch``."""
    shared = WriteJob.of(metadata, snapshot, options, claim)
    marked = metadata.storage.begin(
        partial(new_partitions, metadata, snapshot, claim, plan.partitions)
    )
    if len(plan.work) > 1:
        batch = batch.in_one_chunk()
    read = [one.group for one in plan.work if one.group >= 0 and not one.is_log]
    changes = write_slices(
        shared, plan.work, plan.slices_of(batch), progress, read=read, rows=len(batch)
    )
    marked()
    return changes


def write_slices(
    shared: WriteJob,
    work: Sequence[T],
    slice_of: Callable[[T], Slice],
    progress: Progress | None = None,
    *,
    read: Sequence[int],
    part: str = "",
    rows: int | None = None,
) -> Changes:
    """Write the slices of ``work`` on a thread pool, then the summaries; return what to commit.

    ``read``: the file groups of which rows are read for that.  ``rows``: about how many the slices
    have together, if that is known. Many small files are made by one thread, while others store
    them: the making is Python, and threads that take turns at it cost more than one.  Where their
    rows are read from afar, threads wait, and take turns after all.

    ``slice_of``: called in the thread that writes, so that the rows of a slice are gathered when it
    is their turn. ``part``: as for :func:`collect`.
    """
    threads = _threads(shared, read)
    shared.marked.mark(enumerate(work))

    def written(task: int, one: T) -> Written:
        return shared.run(task, slice_of(one))

    try:
        if len(work) == 1:  # as most small commits have; a thread takes a millisecond to begin
            return collect(
                shared, counted(map(written, (0,), work), 1, progress), threads=threads, part=part
            )
        are_small = (
            rows is not None and len(work) >= _MANY_FILES and rows < _SMALL_FILE_ROWS * len(work)
        )
        # Where nothing is read, and what is written is in memory anyhow, one more thread costs no
        # memory to speak of.
        more = rows is not None and not read and not are_small and _waits_for_disk(shared)
        with ThreadPoolExecutor(threads + more) as pool:
            done: Iterable[Written]
            if are_small and threads == shared.options.threads("writer"):
                shared = shared.storing_on(pool)
                done = map(written, range(len(work)), work)
            else:
                done = pool.map(written, range(len(work)), work)
            return collect(shared, counted(done, len(work), progress), threads=threads, part=part)
    except Exception:
        with suppress(MdtError):  # whoever removes what was written must not be overtaken
            shared.stopped()
        raise


def _waits_for_disk(shared: WriteJob) -> bool:
    """Return whether each thread that makes files waits until the disk has them, while another one
    could go on, and nobody has said how many there are to be.
    """
    storage = shared.metadata.storage
    return not storage.is_remote and storage.is_durable and not shared.options.writer_threads


def _threads(shared: WriteJob, read: Sequence[int]) -> int:
    """Return how many threads make files of which rows of the file groups ``read`` are part: where
    these are small and far, a thread waits most of its time.
    """
    options, snapshot = shared.options, shared.snapshot
    threads = options.threads("writer")
    if not read or options.writer_threads or not shared.metadata.storage.is_remote:
        return threads
    members = np.concatenate([snapshot.file_groups.members(group) for group in read])
    largest = int(snapshot.files.numpy("size")[members].max(initial=0))
    return (
        max(threads, FAR_FILES_READ_AT_ONCE) if largest <= FAR_OBJECT_WHOLE_BYTES_MAX else threads
    )


def new_partitions(
    metadata: Metadata, snapshot: Snapshot, claim: Claim, partitions: Sequence[str]
) -> None:
    """Put Hudi's partition metadata where it does not stand yet; harmless if the transaction
    fails.
    """
    missing = [
        partition for partition in partitions if not snapshot.file_groups.has_partition(partition)
    ]

    def put(partition: str) -> None:
        content = properties.partition_metadata(claim.instant, partition_depth(partition))
        metadata.storage.put_if_absent(paths.partition_metadata(partition), content)

    if metadata.storage.is_remote:
        metadata.storage.together(*(partial(put, partition) for partition in missing))
        return
    with ThreadPoolExecutor(metadata.options(snapshot.definition).threads("writer")) as pool:
        for _ in pool.map(put, missing):
            continue


def collect(shared: WriteJob, done: Iterable[Written], *, threads: int, part: str = "") -> Changes:
    """Write the summaries of finished slices beside the data files; return what to commit.

    ``done``: consumed as they finish, so that what their indexes put aside does not pile up.
    ``part`` distinguishes the objects of a transaction that writes several.
    """
    claim = shared.claim
    objects = AttachmentWriter(
        paths.attachment(claim.instant, f"{claim.token}{part}"), shared.store_attachments
    )
    placed: list[dict[str, Any]] = []
    kept: list[Written] = []
    removed: list[int] = []
    vectors: dict[int, BitMap] = {}
    light = ((replace(w, indexed=Indexed()), w.indexed) for w in done)
    for w, shard, first_row in sharded(objects, light, threads=threads):
        keys = pages = None
        if w.key_map is not None:
            keys = objects.add(w.key_map)
            shared.metadata.objects.keep_key_map(keys, w.key_map)
        if w.page_map is not None:
            pages = objects.add(w.page_map)
        objects.settle()
        placed.append({"shard": shard, "first_row": first_row, "key_map": keys, "page_map": pages})
        kept.append(w)
        removed += w.removed
        vectors |= w.vectors
    small = [
        (one, w.few_stats) for one, w in zip(placed, kept, strict=True) if w.few_stats is not None
    ]
    made = stats_of_small_files(shared.snapshot.definition, [few for _, few in small])
    for (one, _), stats in zip(small, made, strict=True):
        one["stats"] = stats
    files = [replace(w.file, **one) for w, one in zip(kept, placed, strict=True)]
    key_parts = []
    grown = [w for w in kept if len(w.gained)]
    if grown and key_indexes.is_kept_in_table(shared.snapshot.definition.key_index):
        # what only moves rows goes on where the package of the key index is missing
        key_parts.append(_key_part(shared.metadata.key_index(shared.snapshot), objects, grown))
    storage = shared.metadata.storage
    awaited([storage.begin_storing(partial(objects.write, storage)), shared.uploaded])
    return Changes(files, removed, vectors, key_parts)


def _key_part(index: KeyIndex, objects: AttachmentWriter, grown: Sequence[Written]) -> KeyPart:
    """Return the key part of the keys that the slices ``grown``, at least one, have gained."""
    data = index.build_of_groups([w.gained for w in grown], [w.gained_hashes for w in grown])
    groups = tuple(w.file.file_id for w in grown)
    if len(data) <= INLINE_SUMMARY_BYTES_MAX:
        return KeyPart(index.name, groups, data, None)
    return KeyPart(index.name, groups, None, objects.add(data))
