"""What tasks of any engine do for a merge: match their rows of the source, and say what becomes of every row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from indexes.base import Int64Array, KeyHashes
from mdt.engines.tasks import (
    ABSENT,
    DELETE,
    DROPPED,
    FALLING,
    FURTHER,
    INSERT,
    READ,
    RETURN,
    UPDATE,
    Source,
    opened,
    tagged,
    without_data,
)
from mdt.metadata.locate import Located
from mdt.metadata.snapshot import Snapshot
from mdt.write.merge import Acted, Decided, Decision, Merge
from mdt.write.normalize import keyed_rows, partition_names
from mdt.write.operations import absent_keys
from mdt.write.said import SaidMerge
from mdt.write.slices import KeyedRows


def tag_merged(
    said: SaidMerge, source: Source, batches: Iterator[pa.RecordBatch], attempt: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield what becomes of rows of the source and of those that they match, with CONTROL columns; equal keys must be in one part.

    Raises Invalid as :meth:`mdt.write.merge.Merge.prepare` does, of the rows of this part.
    """
    additions = [batch for batch in batches if batch.num_rows]
    if additions:
        for part in _tag_merged(said, source, pa.Table.from_batches(additions)):
            yield from part.to_batches()


def _tag_merged(said: SaidMerge, source: Source, rows: pa.Table) -> list[pa.Table]:
    metadata, snapshot = opened(source)
    definition = snapshot.definition
    merge = Merge(
        metadata, source.parsed(), *said.read(rows, definition), definition.schema, definition.commit_action
    )  # fmt: skip
    done = Decision(merge, snapshot).decided()
    return [
        *_changed(merge, snapshot, done),
        *_new(snapshot, done),
        without_data(definition.schema, READ, __mdt_group=[-1], __mdt_n=[len(rows)]),
        _read(snapshot, done),
        *_absent(snapshot, done),
    ]


def _changed(merge: Merge, snapshot: Snapshot, done: Decided) -> Iterator[pa.Table]:
    """Yield the rows of the table that change where they stand, and those that end."""
    stays, falls = done.updates & ~done.acted.moved, done.falls
    for kind, which in ((UPDATE, stays & ~falls), (FALLING, stays & falls)):
        some = done.acted.take(which)
        if len(some):
            yield _there(snapshot, keyed_rows(merge.updated(snapshot, some), snapshot.definition), some, kind)
    gone = done.acted.take(~done.updates)
    if len(gone):
        yield _there(snapshot, _ended(merge, snapshot, gone), gone, FURTHER)
    moved = done.acted.take(done.acted.moved)
    if len(moved) and done.batch is not None:
        yield _there(snapshot, done.batch.rows(np.arange(done.inserted, len(done.batch))), moved, DELETE)


def _ended(merge: Merge, snapshot: Snapshot, gone: Acted) -> KeyedRows:
    """Return rows that end: their keys, and null in columns that may be."""
    definition = snapshot.definition
    needed = {field.name for field in definition.schema if not field.nullable} | {*definition.key}
    names = [name for name in definition.schema.names if name in needed or name == definition.ordering]
    found = merge.target(snapshot, gone.pairs, names, threads=1)
    columns = [found[f.name] if f.name in names else pa.nulls(len(gone), f.type) for f in definition.schema]
    return keyed_rows(pa.table(columns, schema=definition.schema), definition)


def _there(snapshot: Snapshot, rows: KeyedRows, acted: Acted, kind: int) -> pa.Table:
    """Return rows beside where those stand that they replace or end."""
    groups = snapshot.file_groups.of_files(acted.pairs.file)
    places = Located(acted.pairs.file, acted.pairs.position, groups, np.empty(0, np.uint64))
    return tagged(rows, places, np.arange(len(acted)), kind, np.asarray(snapshot.file_groups.partitions(groups)))


def _new(snapshot: Snapshot, done: Decided) -> Iterator[pa.Table]:
    """Yield the rows that get a new place, and those that are left out."""
    if done.batch is None:
        return
    names = partition_names(done.batch)
    for kind, rows in zip((INSERT, RETURN), done.new_rows(), strict=True):
        yield tagged(done.batch, done.located, rows, kind, names)
    late = int(done.late.sum())
    yield without_data(snapshot.definition.schema, DROPPED, __mdt_group=[-1], __mdt_n=[late])


def _read(snapshot: Snapshot, done: Decided) -> pa.Table:
    """Return the files that were looked into, with their file groups: also those of pairs for which no clause holds."""
    files = np.array(sorted(done.scanned), np.int64)
    groups = snapshot.file_groups.of_files(files)
    return without_data(
        snapshot.definition.schema, READ, __mdt_group=groups, __mdt_segment=files, __mdt_n=np.zeros(len(files), np.int64)
    )  # fmt: skip


def _absent(snapshot: Snapshot, done: Decided) -> Iterator[pa.Table]:
    """Yield the hashes of the keys that were found absent, but for those that new files will have."""
    definition, written = snapshot.definition, dict[str, KeyHashes]()
    if done.batch is not None:
        written = absent_keys(done.batch, np.sort(np.concatenate(done.new_rows())), definition.is_global)
    for path, hashes in done.absent(definition.is_global).items():
        if path in written:
            hashes = hashes.take(~(np.isin(hashes.hi, written[path].hi) & np.isin(hashes.lo, written[path].lo)))
        if len(hashes):
            words: Sequence[Int64Array] = (hashes.hi.view(np.int64), hashes.lo.view(np.int64))
            yield without_data(
                definition.schema, ABSENT, __mdt_partition=[path] * len(hashes), __mdt_group=np.full(len(hashes), -1),
                __mdt_segment=words[0], __mdt_position=words[1], __mdt_n=np.zeros(len(hashes), np.int64),
            )  # fmt: skip
