"""Application of a commit record to a snapshot.

:func:`apply` is the only definition of a record's effect.  Its cost depends on the record, not on
the size of the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes.arrays import numbers, take_rows
from indexes.registry import parse_spec
from mdt.errors import Corrupt, Invalid
from mdt.limits import SEGMENTS_PER_COMMIT_MAX
from mdt.metadata.files import paths
from mdt.metadata.files.deletion_vectors import positions
from mdt.metadata.key_indexes import is_kept_in_table
from mdt.metadata.log.checkpoint_columns import no_files
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.log.imports import Imports
from mdt.metadata.log.streams import Streams
from mdt.metadata.snapshot import log_tail
from mdt.metadata.snapshot.key_parts import KeyPart, key_parts_of
from mdt.metadata.snapshot.persistent_map import Layered
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.metadata.snapshot.transactions import history_row
from mdt.schema import versions
from mdt.schema.definition import TableDefinition, from_json, key_hash_of

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class IndexChange:
    """Index specifications that a record adds, drops, or forgets.  Forgetting drops older
    summaries.

    ``packages`` has the packages of third-party indexes, as in the definition.
    """

    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)

    def applied(self, indexes: tuple[str, ...]) -> tuple[str, ...]:
        """Return the table's indexes after the change.  Changes of concurrent writers add up."""
        retained = tuple(spec for spec in indexes if spec not in self.dropped)
        return retained + tuple(spec for spec in self.added if spec not in retained)

    def defined(self, definition: TableDefinition) -> TableDefinition:
        """Return the table's definition after the change.

        An unchanged definition is returned itself, so that values cached for it stay valid.
        """
        if not (self.added or self.dropped or self.packages):
            return definition
        packages = {**definition.packages, **self.packages}
        return replace(definition, indexes=self.applied(definition.indexes), packages=packages)


def change_of(field: Mapping[str, Any]) -> IndexChange:
    """Return the change in the header field ``indexes`` of a record."""
    dropped = tuple(field.get("drop", ()))
    forgotten = dropped + tuple(field.get("forget", ()))
    return IndexChange(
        tuple(field.get("add", ())), dropped, forgotten, dict(field.get("packages", {}))
    )


def _definition_after(definition: TableDefinition, record: CommitRecord) -> TableDefinition:
    """Return the table's definition after ``record``.

    Raises Corrupt for an invalid schema change, or if a transaction that began before the last
    schema change adds files.
    """
    path, newest = paths.commit(record.seq), 0
    if definition.versions:
        newest = definition.versions[-1].since
    if newest > record.header["begun_at"] and len(record.table("files")):
        raise Corrupt(
            "a record has files with a schema from before an alter",
            path=path,
            expected=f"begun after {newest}",
        )
    definition = _with_options(definition, record)
    version = record.header.get("hudi_version")
    if version is not None:
        return replace(definition, hudi_version=version, upgraded_at=record.instant)
    if record.rekeys:
        return replace(definition, key_hash=key_hash_of(record.header["key_hash"]))
    if not record.alters:
        return definition
    try:
        return definition.with_version(versions.from_json(record.header["schema"], record.seq))
    except (KeyError, TypeError, ValueError, OSError, OverflowError, pa.ArrowException) as error:
        raise Corrupt(f"a schema version cannot be read: {error!r}"[:300], path=path) from error


def _without_ended(
    snapshot: Snapshot, definition: TableDefinition, record: CommitRecord
) -> TableDefinition:
    """Return the definition without the schema versions that ``record`` removes.

    Raises Corrupt if a live file has a removed version.
    """
    ended = record.ended_versions
    if not ended:
        return definition
    try:
        remaining = definition.without_versions(ended)
    except ValueError as error:
        raise Corrupt(
            str(error), path=paths.commit(record.seq), got=str(sorted(ended))[:80]
        ) from error
    since = np.array([version.since for version in definition.versions], np.int64)
    file_versions = since[
        versions.numbers_of(definition.versions, snapshot.segment_ids[snapshot.live])
    ]
    if bool(np.isin(file_versions, list(ended)).any()):
        raise Corrupt(
            "a record ends the schema version of a live file", path=paths.commit(record.seq)
        )
    return remaining


def _with_options(definition: TableDefinition, record: CommitRecord) -> TableDefinition:
    """Return the definition with the options that ``record`` changes.  Raises Corrupt if they are
    invalid.
    """
    changes = record.header.get("options")
    if changes is None:
        return definition
    try:
        return definition.with_options_of(changes, record.seq)
    except Invalid as error:
        raise Corrupt(
            f"a record has invalid options: {error.message}", path=paths.commit(record.seq)
        ) from error


def _maps(snapshot: Snapshot, record: CommitRecord, removed: Int64s) -> pa.Table | None:
    """Return :attr:`Snapshot.maps` after ``record``.

    Raises Corrupt if a new key hash leaves a live file without a key map.
    """
    maps, path = record.table("maps"), paths.commit(record.seq)
    if not record.rekeys and not len(maps):
        return snapshot.maps
    number = _file_numbers(snapshot, maps["segment"], path)
    needed = snapshot.live & snapshot.has_key_map
    needed[removed] = False
    rows = np.full(snapshot.numbered, -1, np.int64)
    rows[number[number >= 0]] = np.flatnonzero(number >= 0)
    new = take_rows(maps.drop_columns(["segment"]), rows).combine_chunks()
    if not record.rekeys:
        return _with_maps(snapshot, new)
    if bool((needed & (rows < 0)).any()):
        raise Corrupt(
            "a commit record changes the key hash without new key maps for all files",
            path=path,
        )
    return new


def _with_maps(snapshot: Snapshot, new: pa.Table) -> pa.Table:
    """Return the maps of all files: those of ``new`` [numbered], and elsewhere the current maps."""
    current = [snapshot.files.column(name) for name in new.column_names]
    columns = [pc.coalesce(*pair) for pair in zip(new.columns, current, strict=True)]
    return pa.table(columns, schema=new.schema).combine_chunks()


def first(record: CommitRecord, *, path: str) -> Snapshot:
    """Return the snapshot of record 0, which defines the table."""
    if "definition" not in record.header:
        raise Corrupt("record 0 does not define a table", path=path)
    definition = from_json(record.header["definition"], path=path)
    history = (history_row(record),)
    return Snapshot(
        record.seq,
        definition,
        no_files(),
        record.instant,
        history_since=history,
        last_completion=record.completion,
    )


def _file_numbers(snapshot: Snapshot, segments: pa.ChunkedArray, path: str) -> Int64s:
    """Return the file numbers of segments, -1 for segments removed before the checkpoint ->
    int64[n].

    Raises Corrupt for a segment that no record has added.  ``path`` is that of the current record.
    """
    ids = numbers(segments)
    file_numbers = np.full(len(ids), -1, np.int64)
    since = ids >= (snapshot.checkpoint.seq + 1) * SEGMENTS_PER_COMMIT_MAX
    end = snapshot.numbered
    for i in np.flatnonzero(since).tolist():
        seq, ordinal = divmod(int(ids[i]), SEGMENTS_PER_COMMIT_MAX)
        start = snapshot.starts.get(seq)
        number = end if start is None else start + ordinal
        if number >= end or snapshot.files.value("segment", number).as_py() != ids[i]:
            raise Corrupt(
                "a commit record changes a segment that does not exist",
                path=path,
                got=str(ids[i]),
            )
        file_numbers[i] = number
    if snapshot.checkpoint.rows and not since.all():
        checkpoint_ids = snapshot.checkpoint.numpy("files/segment")
        at = np.minimum(np.searchsorted(checkpoint_ids, ids), len(checkpoint_ids) - 1)
        hit = ~since & (checkpoint_ids[at] == ids)
        file_numbers[hit] = at[hit]
    return file_numbers


def _vectors(
    snapshot: Snapshot, record: CommitRecord, removed: Int64s
) -> tuple[Layered[int, BitMap], int]:
    """Return the deletion vectors since the checkpoint after ``record``, and the number of new
    positions.

    Vectors of ``removed`` segments are left out.  Only readers of changes need them.
    """
    table, path = record.table("vectors"), paths.commit(record.seq)
    vectors = _dead_from_start(snapshot.numbered, record)
    dead = sum(map(len, vectors.values()))
    changed = _file_numbers(snapshot, table["segment"], path)
    for number, data in zip(changed.tolist(), table["positions"].to_pylist(), strict=True):
        if number >= 0:
            rows = int(snapshot.files.value("rows", number).as_py())
            since, old, new = (
                snapshot.vectors_since.get(number),
                snapshot.vector(number),
                positions(data, rows, path=path),
            )
            if old is not None:
                new = new - old
            dead += len(new)
            if since is not None:
                new = since | new
            vectors[number] = new
    remaining = {number: new for number, new in vectors.items() if number not in removed}
    return snapshot.vectors_since.with_items(remaining), dead


def _dead_from_start(first: int, record: CommitRecord) -> dict[int, BitMap]:
    """Return file number -> dead rows of the files that ``record`` imports.

    ``first`` is the number of its first file.
    """
    table, files = record.table("dead"), record.table("files")
    vectors: dict[int, BitMap] = {}
    ordinals, data = (table[name].to_pylist() for name in ("segment", "positions"))
    for ordinal, vector in zip(ordinals, data, strict=True):
        rows = int(files["rows"][ordinal].as_py())
        vectors[first + ordinal] = positions(vector, rows, path=paths.commit(record.seq))
    return vectors


def _streams(snapshot: Snapshot, record: CommitRecord, imports: Imports) -> Streams:
    """Return the batches of streams after ``record``, without those of voided commits."""
    voided = imports.voided - snapshot.imports.voided
    if not voided:
        return snapshot.streams.followed_by(record.header, record.seq)
    history = snapshot.history
    is_voided = pc.is_in(history["instant"], pa.array(sorted(voided), pa.string()))
    return snapshot.streams.without(set(history["seq"].filter(is_voided).to_pylist()))


_NO_GROUPS: frozenset[str] = frozenset()
_NOTHING: Int64s = np.empty(0, np.int64)


def _uncovered(record: CommitRecord, key_parts: tuple[KeyPart, ...], key_index: str) -> set[str]:
    if not is_kept_in_table(key_index):
        return set()
    files = record.table("files")
    insert_counts = zip(files["file_id"].to_pylist(), files["inserts"].to_pylist(), strict=True)
    grown = {name for name, inserts in insert_counts if inserts > 0}
    kind = parse_spec(key_index).kind.partition("/")[0]
    for key_part in key_parts:
        if key_part.index.partition("/")[0] == kind:
            grown -= set(key_part.groups)
    return grown


def apply(snapshot: Snapshot, record: CommitRecord) -> Snapshot:
    """Return ``snapshot`` after ``record``, which must be the next record.  O(record)."""
    assert record.seq == snapshot.seq + 1, "records must be applied in order"
    removed, all_removed = _NOTHING, snapshot.removed
    if len(record.table("removed")):
        removed = _file_numbers(
            snapshot, record.table("removed")["segment"], paths.commit(record.seq)
        )
        removed = np.setdiff1d(removed[removed >= 0], all_removed)
        all_removed = np.union1d(all_removed, removed)
    first = snapshot.numbered
    addition = log_tail.addition_of(record, first)
    key_parts = key_parts_of(record.table("key_parts"))
    change = change_of(record.header.get("indexes", {}))
    files = log_tail.NO_FILES if addition is None else addition.files
    starts = {}
    if len(files):
        starts[record.seq] = first
    computed = vars(snapshot).get("file_groups")  # if they have been computed
    groups, pending = snapshot.groups_known, snapshot.pending
    if computed is not None:
        groups, pending = computed, ()
    if len(files) or len(removed):
        pending = (*pending, (files, first, removed))
    uncovered = _uncovered(record, key_parts, snapshot.definition.key_index)
    covered_again, older_parts = _NO_GROUPS, snapshot.key_parts_since
    if record.action == "index":
        covered_again = frozenset(name for part in key_parts for name in part.groups)
        older_parts = tuple(
            part_left
            for part in older_parts
            if (part_left := part.without(covered_again)) is not None
        )
    vectors, dead = _vectors(snapshot, record, removed)
    imports = snapshot.imports.followed_by(record.header)
    return replace(
        snapshot,
        seq=record.seq,
        definition=_without_ended(
            snapshot, _definition_after(change.defined(snapshot.definition), record), record
        ),
        last_instant=max(snapshot.last_instant, record.instant),
        last_completion=max(snapshot.last_completion, record.completion),
        maps=_maps(snapshot, record, removed),
        additions=log_tail.append(snapshot.additions, addition),
        removed=all_removed,
        vectors_since=vectors,
        dead_since=snapshot.dead_since + dead,
        starts=snapshot.starts.with_items(starts),
        forgotten=snapshot.forgotten.with_items(dict.fromkeys(change.forgotten, record.seq)),
        key_parts_since=older_parts + key_parts,
        uncovered_since=(snapshot.uncovered_since - covered_again) | uncovered,
        known_again=snapshot.known_again | covered_again,
        history_since=(*snapshot.history_since, history_row(record)),
        retention=snapshot.retention.followed_by(record.header),
        tags=snapshot.tags.followed_by(record.header),
        streams=_streams(snapshot, record, imports),
        imports=imports,
        tombstones_since=snapshot.tombstones_since.followed_by(record),
        groups_known=groups,
        pending=pending,
    )
