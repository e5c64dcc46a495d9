"""Merge tasks of any engine: match rows of the source and decide the action for every row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes.base import Int64Array, KeyHashes
from mdt.engines.tasks import (
    ABSENT,
    DELETE,
    DROPPED,
    FALLING,
    FURTHER,
    INSERT,
    MATCHED,
    READ,
    RETURN,
    UPDATE,
    Source,
    hash_rows,
    of_part,
    open_table,
    tagged_rows,
    without_data,
)
from mdt.metadata.keys.locate import Located
from mdt.metadata.log.codec import encode_ipc
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.convert import with_nulls
from mdt.write.merge import Decision, MatchedActions, MergedRows, MergeOutcome
from mdt.write.merge_request import MergeText
from mdt.write.normalize import keyed_rows, partition_names
from mdt.write.row_groups import absent_keys, by_value
from mdt.write.slices import KeyedRows

_MATCHED_KINDS = pa.array([UPDATE, FALLING, FURTHER, DELETE, MATCHED], pa.int32())
FILES = pa.schema([("file", pa.int64()), ("matched", pa.binary())])
"""Files of the table that are searched for rows without a match in the source: number, and bitmap
of the matched positions.
"""


def tag_merged(
    request: MergeText,
    keeps_pairs: bool,
    source: Source,
    batches: Iterator[pa.RecordBatch],
    attempt: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Yield rows of the source and the rows that they match, tagged with CONTROL columns. Equal
    keys must be in the same part.

    ``keeps_pairs``: also yield the locations of matched rows without a clause that holds. Raises
    Invalid for rows of this part as :meth:`mdt.write.merge.Merge.prepare` does.
    """
    return of_part(partial(_tag_merged, request, keeps_pairs, source), batches)


def _tag_merged(
    request: MergeText, keeps_pairs: bool, source: Source, rows: pa.Table
) -> Iterator[pa.Table]:
    merge, snapshot = _open_merge(request, source, rows)
    schema = snapshot.definition.schema
    decided = Decision(merge, snapshot).decide()
    files = np.array(sorted(decided.scanned), np.int64)
    yield from _changed_rows(merge, snapshot, decided)
    yield from _new_rows(snapshot, decided)
    yield from _absent_keys(snapshot, decided)
    yield _read_files(schema, files, snapshot.file_groups.of_files(files))
    yield without_data(schema, READ, __mdt_group=[-1], __mdt_n=[len(merge.source)])
    if keeps_pairs:
        unchanged = decided.pairs.take(~np.isin(decided.pairs.places, decided.actions.pairs.places))
        groups = snapshot.file_groups.of_files(unchanged.file)
        yield without_data(
            schema,
            MATCHED,
            __mdt_group=groups,
            __mdt_segment=unchanged.file,
            __mdt_position=unchanged.position,
            __mdt_n=0 * groups,
        )


def _open_merge(request: MergeText, source: Source, rows: pa.Table) -> tuple[MergedRows, Snapshot]:
    metadata, snapshot = open_table(source)
    definition = snapshot.definition
    read = request.parse(rows, definition)
    return MergedRows(metadata, source.parsed(), *read), snapshot


def matched_rows(batches: Iterator[pa.RecordBatch], attempt: int = 0) -> bytes | None:
    """Return the rows of the table that tagged rows of the source match: FILES as an Arrow
    stream.
    """
    bitmaps: dict[int, BitMap] = {}
    for batch in batches:
        rows = pa.Table.from_batches([batch]).select(
            ["__mdt_kind", "__mdt_segment", "__mdt_position"]
        )
        rows = rows.filter(pc.is_in(rows[0], _MATCHED_KINDS))
        for file, positions in by_value(rows[2].to_numpy(), rows[1].to_numpy()).items():
            bitmaps.setdefault(file, BitMap()).update(positions.astype(np.uint32))
    return bytes(encode_ipc(files_table(bitmaps))) if bitmaps else None


def files_table(matched: Mapping[int, BitMap]) -> pa.Table:
    """Return FILES. ``matched``: file number -> positions."""
    return pa.table([list(matched), [rows.serialize() for rows in matched.values()]], schema=FILES)


def bitmaps_of(files: pa.Table) -> dict[int, BitMap]:
    """Convert FILES back to the argument of :func:`files_table`."""
    return {row["file"]: BitMap.deserialize(row["matched"]) for row in files.to_pylist()}


def tag_alone(
    request: MergeText,
    columns: pa.Schema,
    source: Source,
    batches: Iterator[pa.RecordBatch],
    attempt: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the table without a match in the source, tagged with CONTROL columns.
    ``columns``: of the source. The batches are FILES.
    """
    return of_part(partial(_tag_alone, request, columns, source), batches)


def _tag_alone(
    request: MergeText, columns: pa.Schema, source: Source, files: pa.Table
) -> Iterator[pa.Table]:
    merge, snapshot = _open_merge(request, source, columns.empty_table())
    decided = Decision(merge, snapshot).decide_unmatched(bitmaps_of(files))
    scanned = np.array(sorted(decided.scanned), np.int64)
    yield from _changed_rows(merge, snapshot, decided)
    yield from _new_rows(snapshot, decided)
    yield _read_files(snapshot.definition.schema, scanned, np.full(len(scanned), -1))


def _changed_rows(
    merge: MergedRows, snapshot: Snapshot, decided: MergeOutcome
) -> Iterator[pa.Table]:
    """Yield the rows of the table that are updated in place, end, or move."""
    stays, falls = decided.updates & ~decided.actions.moved, decided.falls
    for kind, which in ((UPDATE, stays & ~falls), (FALLING, stays & falls)):
        pairs = decided.actions.take(which)
        if len(pairs):
            yield _at_old_places(
                snapshot,
                keyed_rows(merge.updated(snapshot, pairs), snapshot.definition),
                pairs,
                kind,
            )
    deletes = decided.actions.take(~decided.updates)
    if len(deletes):
        yield _at_old_places(snapshot, _ended_rows(merge, snapshot, deletes), deletes, FURTHER)
    moved = decided.actions.take(decided.actions.moved)
    if len(moved) and decided.batch is not None:
        yield _at_old_places(
            snapshot,
            decided.batch.rows(np.arange(decided.inserted, len(decided.batch))),
            moved,
            DELETE,
        )


def _ended_rows(merge: MergedRows, snapshot: Snapshot, deletes: MatchedActions) -> KeyedRows:
    """Return rows that end: their keys, and null in every nullable column."""
    definition = snapshot.definition
    needed = {field.name for field in definition.schema if not field.nullable}
    needed |= {*definition.key, *definition.ordering}
    names = [name for name in definition.schema.names if name in needed]
    table = merge.target(snapshot, deletes.pairs, names, threads=1)
    return keyed_rows(with_nulls(table, definition.schema), definition)


def _at_old_places(
    snapshot: Snapshot, rows: KeyedRows, actions: MatchedActions, kind: int
) -> pa.Table:
    """Return rows with the locations of the rows that they replace or end."""
    groups = snapshot.file_groups.of_files(actions.pairs.file)
    places = Located(actions.pairs.file, actions.pairs.position, groups, np.empty(0, np.uint64))
    return tagged_rows(
        rows,
        places,
        np.arange(len(actions)),
        kind,
        np.asarray(snapshot.file_groups.partitions(groups)),
    )


def _new_rows(snapshot: Snapshot, decided: MergeOutcome) -> Iterator[pa.Table]:
    """Yield the rows that get a new location, and the count of late rows."""
    if decided.batch is None:
        return
    names = partition_names(decided.batch)
    for kind, rows in zip((INSERT, RETURN), decided.new_rows(), strict=True):
        yield tagged_rows(decided.batch, decided.located, rows, kind, names)
    late = int(decided.late.sum())
    yield without_data(snapshot.definition.schema, DROPPED, __mdt_group=[-1], __mdt_n=[late])


def _read_files(schema: pa.Schema, files: Int64Array, groups: Int64Array) -> pa.Table:
    """Return the files that were read. ``groups``: file groups that must not change until the
    commit, -1 for no restriction.
    """
    return without_data(schema, READ, __mdt_group=groups, __mdt_segment=files, __mdt_n=0 * files)


def _absent_keys(snapshot: Snapshot, decided: MergeOutcome) -> Iterator[pa.Table]:
    """Yield the hashes of absent keys, without those that new files will contain."""
    definition, written = snapshot.definition, dict[str, KeyHashes]()
    if decided.batch is not None:
        written = absent_keys(
            decided.batch, np.sort(np.concatenate(decided.new_rows())), definition.is_global
        )
    for path, hashes in decided.absent(definition.is_global).items():
        if path in written:
            hashes = hashes.take(
                ~(np.isin(hashes.hi, written[path].hi) & np.isin(hashes.lo, written[path].lo))
            )
        if len(hashes):
            partition = [path] * len(hashes)
            yield hash_rows(definition.schema, ABSENT, hashes, __mdt_partition=partition)
