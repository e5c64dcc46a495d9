"""What the commits of a range of history did to rows: which came and which died, by file and position.

Every record says it: the positions in ``vectors`` died, those in ``fresh``, or all of a file that is not named there, came
(FORMAT.md 4).  Rows that a service moved are in neither, so a row that died is read in the file where it stood when it died,
whatever compaction did before or after, and nothing is looked up by key.

What a row was to its key, a record tells by its counts of inserts, updates and deletes of each file, mostly: where no key was
deleted, every row that died was replaced.  Else keys tell it.

Files of all states of a range are counted together, in one :attr:`HistoryRange.view`: a snapshot in which no file has left
and no row is dead, so that readers, statistics and indexes work on it as on any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from indexes.base import BoolArray, Int64Array
from mdt.errors import Corrupt
from mdt.limits import SEGMENTS_PER_COMMIT_MAX
from mdt.metadata import paths
from mdt.metadata.apply import apply
from mdt.metadata.commit_log import CommitRecord
from mdt.metadata.deletion_vectors import positions
from mdt.metadata.layered import Layered
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot

_NO_ROWS: Int64Array = np.empty(0, np.int64)
Int8Array = np.ndarray[tuple[int], np.dtype[np.int8]]


KINDS = ("insert", "update_before", "update_after", "delete")
"""What a row is to its key; kinds count in this order."""
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)


@dataclass(frozen=True, slots=True)
class RowsOfFile:
    """Rows of one file, by its number in the view, that died or came in one commit, and what all of them were to their keys."""

    file: int
    rows: BitMap
    kind: int


@dataclass(frozen=True, slots=True)
class CommitRows:
    """The rows of one commit: ``parts``, first those that died.

    ``told``: whether the record tells their kinds; if not, what died is a delete and what came an insert until keys are compared.
    """

    seq: int
    instant: str
    parts: tuple[RowsOfFile, ...]
    told: bool

    @property
    def rows(self) -> int:
        """How many rows died and came, together."""
        return sum(len(part.rows) for part in self.parts)

    def without_before(self) -> CommitRows:
        """Return the same without rows of which it is told that they were replaced."""
        return replace(self, parts=tuple(part for part in self.parts if part.kind != UPDATE_BEFORE))


@dataclass(frozen=True, slots=True)
class Events:
    """n rows that came or died.  ``seq``, ``file``, ``position``: int64[n]; ``kind``: int8[n], as in :class:`CommitRows`."""

    seq: Int64Array
    file: Int64Array
    position: Int64Array
    kind: Int8Array

    @classmethod
    def of(cls, commits: Sequence[CommitRows]) -> Events:
        """Return the rows of commits, oldest first, of each those that died before those that came."""
        parts = [(commit.seq, part) for commit in commits for part in commit.parts]
        sizes = [len(part.rows) for _, part in parts]
        found = [np.asarray(part.rows.to_array()).astype(np.int64) for _, part in parts]
        return cls(
            np.repeat(np.array([seq for seq, _ in parts], np.int64), sizes),
            np.repeat(np.array([part.file for _, part in parts], np.int64), sizes),
            np.concatenate([_NO_ROWS, *found]),
            np.repeat(np.array([part.kind for _, part in parts], np.int8), sizes),
        )

    def of_kinds(self, kind: Int8Array) -> Events:
        """Return the same with other kinds, int8[n]."""
        return replace(self, kind=kind)

    @property
    def died(self) -> BoolArray:
        """Which rows died -> bool[n]."""
        return (self.kind == UPDATE_BEFORE) | (self.kind == DELETE)

    def __len__(self) -> int:
        return len(self.seq)


@dataclass(frozen=True)
class HistoryRange:
    """The commits after ``since`` up to and with ``until``.

    ``oldest``: the state before them.  ``view``: the files of all their states.  ``commits``: what each did to rows, oldest first; those that did nothing are left out.
    """

    oldest: Snapshot
    until: int
    view: Snapshot
    commits: tuple[CommitRows, ...]

    @property
    def since(self) -> int:
        """The seq of the state before the range."""
        return self.oldest.seq

    def files(self) -> BoolArray:
        """Return which files of the view have rows that came or died -> bool[numbered]."""
        found = np.zeros(self.view.numbered, np.bool_)
        found[[part.file for commit in self.commits for part in commit.parts]] = True
        return found

    def instants(self, seqs: Int64Array) -> pa.Array:
        """Return the instants of the commits ``seqs``, int64[n], each of which changed rows -> string[n]."""
        known = np.array([commit.seq for commit in self.commits], np.int64)
        texts = pa.array([commit.instant for commit in self.commits], pa.string())
        return texts.take(pa.array(np.searchsorted(known, seqs)))


def history_range(metadata: Metadata, since: int, until: int) -> HistoryRange:
    """Return what happened after commit ``since`` up to and with ``until``.  O(records of the range).

    Raises Invalid for states that are not there, Expired if the first was cleaned.
    """
    metadata.at(until)
    oldest = snapshot = metadata.at(since)
    newest = metadata.newest()
    if since < min(until, newest.retention.horizon):
        raise newest.expired(f"what happened after commit {since} was cleaned, a tag keeps the state alone")
    told = []
    with metadata.reading(oldest):
        for record in metadata.records(since + 1, until):
            snapshot = apply(snapshot, record)
            told.append(_Told.by(record))
    view = replace(snapshot, gone=_NO_ROWS, vectors_since=Layered())
    rows = view.files.numpy("rows")
    commits = (one.numbered(view, rows) for one in told)
    return HistoryRange(oldest, until, view, tuple(commit for commit in commits if commit.rows))


@dataclass(frozen=True, slots=True)
class _Told:
    """What a record says of rows: (segment, bytes of positions, None for all of its rows); the latter by the order of files.

    ``inserts``, ``updates``, ``deletes``: int64[files], what became of keys.
    """

    seq: int
    instant: str
    died: tuple[tuple[int, bytes | None], ...]
    came: tuple[tuple[int, bytes | None], ...]
    inserts: Int64Array
    updates: Int64Array
    deletes: Int64Array

    @classmethod
    def by(cls, record: CommitRecord) -> _Told:
        vectors, fresh, files = record.table("vectors"), record.table("fresh"), record.table("files")
        moved = dict(zip(fresh["segment"].to_pylist(), fresh["positions"].to_pylist(), strict=True))
        first = record.seq * SEGMENTS_PER_COMMIT_MAX
        came = [(first + n, moved.get(n)) for n in files["segment"].to_pylist()]
        died = zip(vectors["segment"].to_pylist(), vectors["positions"].to_pylist(), strict=True)
        counts = (files[name].to_numpy() for name in ("inserts", "updates", "deletes"))
        return cls(record.seq, record.instant, tuple(died), tuple(came), *counts)

    def numbered(self, view: Snapshot, rows: Int64Array) -> CommitRows:
        """Return the same by numbers of files, with kinds.  ``rows``: of each file of the view."""
        died, came = (self._placed(view, rows, part) for part in (self.died, self.came))
        kinds = self._kinds([len(found) for _, found in died], [len(found) for _, found in came])
        told = kinds is not None
        died_kind, came_kinds = kinds if kinds is not None else (DELETE, [INSERT] * len(came))
        parts = [RowsOfFile(file, found, died_kind) for file, found in died]
        parts += [RowsOfFile(file, found, kind) for (file, found), kind in zip(came, came_kinds, strict=True)]
        return CommitRows(self.seq, self.instant, tuple(part for part in parts if part.rows), told)

    def _kinds(self, died: Sequence[int], came: Sequence[int]) -> tuple[int, list[int]] | None:
        """Return the kind of all rows that died, and of those that came in each file; None where keys must tell.

        ``died``, ``came``: how many, of each file.
        """
        if not sum(died) or not sum(came):
            return DELETE, [INSERT] * len(came)
        one_kind = (self.inserts == 0) | (self.updates == 0)
        agree = np.array_equal(self.inserts + self.updates, came) and int(self.updates.sum()) == sum(died)
        if not agree or bool(self.deletes.any()) or not bool(one_kind.all()):
            return None
        return UPDATE_BEFORE, np.where(self.updates > 0, UPDATE_AFTER, INSERT).tolist()

    def _placed(
        self, view: Snapshot, rows: Int64Array, told: Sequence[tuple[int, bytes | None]]
    ) -> list[tuple[int, BitMap]]:
        """Return numbers of files with positions, in the order of ``told``."""
        segments = np.array([segment for segment, _ in told], np.int64)
        files = np.searchsorted(view.segment_ids, segments)
        path, placed = paths.commit(self.seq), []
        for (segment, data), file in zip(told, files.tolist(), strict=True):
            if file == view.numbered or view.segment_ids[file] != segment:
                raise Corrupt("a commit record changes a segment that was not live", path=path, got=str(segment))
            size = int(rows[file])
            placed.append((file, BitMap(range(size)) if data is None else positions(data, size, path=path)))
        return placed
