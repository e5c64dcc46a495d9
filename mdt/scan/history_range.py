"""Inserted and deleted rows of a range of commits, by file and position.

They come from the commit records: rows at the positions in ``vectors`` were deleted. Rows at the
positions in ``fresh``, or all rows of a new file that is not listed there, were inserted (FORMAT.md
4). Rows moved by table services are in neither. A deleted row is therefore read from the file that
contained it when it was deleted, regardless of compactions before or after, and without a look-up
by key.

The kind of a change usually follows from the record's counts of inserts, updates and deletes per
file: if no key was deleted, every deleted row was replaced. Otherwise, and for file groups with
both inserts and updates, keys are compared.

:attr:`HistoryRange.view` contains the files of all snapshots of the range, numbered together. In
this snapshot no file has been removed and no row deleted. Readers, statistics and indexes work on
it as on any other snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from indexes.arrays import numbers
from indexes.base import BoolArray, Int64Array
from mdt.errors import Corrupt, Unsupported
from mdt.limits import SEGMENTS_PER_COMMIT_MAX
from mdt.metadata.files import paths
from mdt.metadata.files.deletion_vectors import positions
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.apply import apply
from mdt.metadata.snapshot.persistent_map import Layered
from mdt.metadata.snapshot.snapshot import Snapshot

_NO_ROWS: Int64Array = np.empty(0, np.int64)
FileRows = tuple[int, BitMap]
Int8Array = np.ndarray[tuple[int], np.dtype[np.int8]]


KINDS = ("insert", "update_before", "update_after", "delete")
"""Kinds of changes, in the order of their numbers."""
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)


@dataclass(frozen=True, slots=True)
class RowsOfFile:
    """Rows of a file, by its number in the view, that a commit inserted or deleted.

    Attributes:
        kind: Kind of change of all these rows.
        is_known: True if the record determines the kind. Otherwise it is DELETE or INSERT until
            keys are compared.
    """

    file: int
    rows: BitMap
    kind: int
    is_known: bool


@dataclass(frozen=True, slots=True)
class CommitRows:
    """The rows of a commit.

    Attributes:
        parts: Deleted rows first.
    """

    seq: int
    instant: str
    parts: tuple[RowsOfFile, ...]

    @property
    def is_known(self) -> bool:
        """True if the record determines the kinds of all rows."""
        return all(part.is_known for part in self.parts)

    @property
    def rows(self) -> int:
        """Number of deleted and inserted rows."""
        return sum(len(part.rows) for part in self.parts)

    def without_before(self) -> CommitRows:
        """Return the same without rows that are known to be pre-images of updates."""
        return replace(self, parts=tuple(part for part in self.parts if part.kind != UPDATE_BEFORE))


@dataclass(frozen=True, slots=True)
class Events:
    """n inserted or deleted rows.

    Attributes:
        seq, file, position: The commit and the location of the row in the view, int64[n].
        kind: Kind of change, int8[n].
        is_known: True if the kind follows from the record, bool[n].
    """

    seq: Int64Array
    file: Int64Array
    position: Int64Array
    kind: Int8Array
    is_known: BoolArray

    @classmethod
    def from_commits(cls, commits: Sequence[CommitRows]) -> Events:
        """Return the rows of commits, oldest first, with the deleted rows of each commit first."""
        parts = [(commit.seq, part) for commit in commits for part in commit.parts]
        sizes = [len(part.rows) for _, part in parts]
        positions = [np.asarray(part.rows.to_array()).astype(np.int64) for _, part in parts]
        return cls(
            np.repeat(np.array([seq for seq, _ in parts], np.int64), sizes),
            np.repeat(np.array([part.file for _, part in parts], np.int64), sizes),
            np.concatenate([_NO_ROWS, *positions]),
            np.repeat(np.array([part.kind for _, part in parts], np.int8), sizes),
            np.repeat(np.array([part.is_known for _, part in parts], np.bool_), sizes),
        )

    def rows(self, at: Int64Array) -> Events:
        """Return the selected events."""
        return Events(
            self.seq[at], self.file[at], self.position[at], self.kind[at], self.is_known[at]
        )

    def with_kinds(self, kind: Int8Array) -> Events:
        """Return the same events with other kinds, int8[n]."""
        return replace(self, kind=kind)

    @property
    def is_deleted(self) -> BoolArray:
        """Mask of the deleted rows, bool[n]."""
        return (self.kind == UPDATE_BEFORE) | (self.kind == DELETE)

    def __len__(self) -> int:
        return len(self.seq)


@dataclass(frozen=True)
class HistoryRange:
    """The commits after ``since`` up to and including ``until``.

    Attributes:
        oldest: The snapshot before them.
        view: The files of all their snapshots.
        commits: Their row changes, oldest first, without commits that changed no rows.
        uncovered: Files that had been removed at ``until`` and whose shards got summaries within
            the range, bool[numbered]. These summaries may not cover them.
        columns_at: The commit whose columns the rows have.
    """

    oldest: Snapshot
    until: int
    view: Snapshot
    commits: tuple[CommitRows, ...]
    uncovered: BoolArray
    columns_at: int

    @property
    def since(self) -> int:
        """Number of the commit before the range."""
        return self.oldest.seq

    def files(self) -> BoolArray:
        """Return a mask of the files of the view with inserted or deleted rows, bool[numbered]."""
        has_changes = np.zeros(self.view.numbered, np.bool_)
        has_changes[[part.file for commit in self.commits for part in commit.parts]] = True
        return has_changes

    def instants(self, seqs: Int64Array) -> pa.Array:
        """Return the instants of the commits ``seqs`` (int64[n]), which have changed rows, as
        string[n].
        """
        seqs_of_range = np.array([commit.seq for commit in self.commits], np.int64)
        texts = pa.array([commit.instant for commit in self.commits], pa.string())
        return texts.take(pa.array(np.searchsorted(seqs_of_range, seqs)))


def history_range(
    metadata: Metadata,
    since: int,
    until: int,
    *,
    newest: Snapshot | None = None,
    columns_at: int | None = None,
) -> HistoryRange:
    """Return the row changes after commit ``since`` up to and including ``until``.

    Args:
        newest: The newest snapshot, if it has just been loaded.
        columns_at: The commit whose columns the rows get, ``until`` by default, or a later one.

    Raises Invalid if a commit does not exist, Expired if the first was cleaned, and Unsupported if
    the records lack the rows that changed. O(records of the range).
    """
    if not metadata.storage.knows_changes:
        raise Unsupported(
            "the changes of a table of another writer can only be read between two instants",
            hint="give instants or times as since and until",
        )
    # The commits of a range are in the log, whatever other writers have committed since.
    newest = newest or metadata.newest(watched=False, to_end=True)
    metadata.at(until, newest=newest)
    oldest = snapshot = metadata.at(since, newest=newest)
    if since < min(until, newest.retention.horizon):
        raise newest.expired(
            f"the changes after commit {since} were cleaned, a tag retains only the snapshot"
        )
    changes, built_shards = [], [_NO_ROWS]
    with metadata.reading(oldest):
        for record in metadata.records(since + 1, until):
            snapshot = apply(snapshot, record)
            if "without_changes" in record.header:
                raise Unsupported(
                    f"the rows that commit {record.seq} changed are not known: it imported commits"
                    " of another writer whose old files had been cleaned",
                    hint="compare two scans, or refresh before Hudi's cleaner runs: t.refresh()",
                )
            changes.append(_RecordedChanges.from_record(record))
            built_shards.append(numbers(record.table("covers")["shard"]))
    columns_at = until if columns_at is None else columns_at
    definition = snapshot.definition
    if columns_at > until:
        # The files of the range have key maps of their own time.
        definition = replace(
            metadata.at(columns_at, newest=newest).definition,
            key_index=definition.key_index,
            key_hash=definition.key_hash,
        )
    view = replace(snapshot, definition=definition, removed=_NO_ROWS, vectors_since=Layered())
    rows = view.files.numpy("rows")
    commits = (change.numbered(view, rows) for change in changes)
    shards = snapshot.shards
    is_built = np.isin(shards.number, np.concatenate(built_shards))[shards.of_file]
    uncovered = is_built & ~snapshot.has_rows
    changed = tuple(commit for commit in commits if commit.rows)
    return HistoryRange(oldest, until, view, changed, uncovered, columns_at)


@dataclass(frozen=True, slots=True)
class _RecordedChanges:
    """The row changes in a commit record.

    Attributes:
        deleted, inserted: Rows as (segment, serialized positions or None for all rows). The latter
            are in the order of files.
        inserts, updates, deletes: Counts of keys per file, int64[files].
    """

    seq: int
    instant: str
    deleted: tuple[tuple[int, bytes | None], ...]
    inserted: tuple[tuple[int, bytes | None], ...]
    inserts: Int64Array
    updates: Int64Array
    deletes: Int64Array

    @classmethod
    def from_record(cls, record: CommitRecord) -> _RecordedChanges:
        vectors, fresh_table, files = (
            record.table("vectors"),
            record.table("fresh"),
            record.table("files"),
        )
        fresh_positions = dict(
            zip(
                fresh_table["segment"].to_pylist(),
                fresh_table["positions"].to_pylist(),
                strict=True,
            )
        )
        first = record.seq * SEGMENTS_PER_COMMIT_MAX
        inserted = [(first + n, fresh_positions.get(n)) for n in files["segment"].to_pylist()]
        deleted = zip(vectors["segment"].to_pylist(), vectors["positions"].to_pylist(), strict=True)
        counts = (files[name].to_numpy() for name in ("inserts", "updates", "deletes"))
        return cls(record.seq, record.instant, tuple(deleted), tuple(inserted), *counts)

    def numbered(self, view: Snapshot, rows: Int64Array) -> CommitRows:
        """Convert segments to file numbers and add kinds.

        Args:
            rows: Row count of each file of the view.
        """
        deleted, inserted = (
            self._with_positions(view, rows, part) for part in (self.deleted, self.inserted)
        )
        kinds = self._kinds(view, deleted, inserted)
        parts = [
            RowsOfFile(file, rows_of_file, *kind)
            for (file, rows_of_file), kind in zip([*deleted, *inserted], kinds, strict=True)
        ]
        return CommitRows(self.seq, self.instant, tuple(part for part in parts if part.rows))

    def _kinds(
        self, view: Snapshot, deleted: Sequence[FileRows], inserted: Sequence[FileRows]
    ) -> list[tuple[int, bool]]:
        """Return (kind, is known) for the deleted rows of each file, then for the inserted rows of
        each file.
        """
        count, new = (
            np.array([len(rows) for _, rows in part], np.int64) for part in (deleted, inserted)
        )
        all_unknown = [(DELETE, False)] * len(deleted) + [(INSERT, False)] * len(inserted)
        if not count.any() or not new.any():
            return [(kind, True) for kind, _ in all_unknown]
        if self.deletes.any() or not np.array_equal(self.inserts + self.updates, new):
            return all_unknown
        old_group, group = (
            view.file_groups.of_files(np.array([file for file, _ in part], np.int64))
            for part in (deleted, inserted)
        )
        groups = int(max(old_group.max(), group.max())) + 1
        replaced = np.bincount(group, self.updates, groups)
        if not np.array_equal(replaced, np.bincount(old_group, count, groups)):
            return all_unknown
        is_mixed = (self.inserts > 0) & (self.updates > 0)
        is_known = ~np.isin(old_group, group[is_mixed])
        before = np.where(is_known, UPDATE_BEFORE, DELETE)
        after = np.where(~is_mixed & (self.updates > 0), UPDATE_AFTER, INSERT)
        kinds, known = np.concatenate([before, after]), np.concatenate([is_known, ~is_mixed])
        return list(zip(kinds.tolist(), known.tolist(), strict=True))

    def _with_positions(
        self, view: Snapshot, rows: Int64Array, rows_by_segment: Sequence[tuple[int, bytes | None]]
    ) -> list[FileRows]:
        """Return file numbers with positions, in the order of ``rows_by_segment``."""
        segments = np.array([segment for segment, _ in rows_by_segment], np.int64)
        files = np.searchsorted(view.segment_ids, segments)
        path, located = paths.commit(self.seq), []
        for (segment, data), file in zip(rows_by_segment, files.tolist(), strict=True):
            if file == view.numbered or view.segment_ids[file] != segment:
                raise Corrupt(
                    "a commit record changes a file that is not live",
                    path=path,
                    got=str(segment),
                )
            size = int(rows[file])
            located.append(
                (file, BitMap(range(size)) if data is None else positions(data, size, path=path))
            )
        return located
