"""What the commits of a range of history did to rows: which came and which died, by file and position.

Every record says it: the positions in ``vectors`` died, those in ``fresh``, or all of a file that is not named there, came
(FORMAT.md 4).  Rows that a service moved are in neither, so a row that died is read in the file where it stood when it died,
whatever compaction did before or after, and nothing is looked up by key.

Files of all states of a range are counted together, in one :attr:`HistoryRange.view`: a snapshot in which no file has left
and no row is dead, so that readers, statistics and indexes work on it as on any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
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


@dataclass(frozen=True, slots=True)
class CommitRows:
    """The rows of one commit by file: (number in the view, positions)."""

    seq: int
    instant: str
    died: tuple[tuple[int, BitMap], ...]
    came: tuple[tuple[int, BitMap], ...]

    @property
    def rows(self) -> int:
        """How many rows died and came, together."""
        return sum(len(rows) for _, rows in (*self.died, *self.came))


@dataclass(frozen=True, slots=True)
class Events:
    """n rows that came or died.  ``seq``, ``file``, ``position``: int64[n]; ``died``: bool[n]."""

    seq: Int64Array
    file: Int64Array
    position: Int64Array
    died: BoolArray

    @classmethod
    def of(cls, commits: Sequence[CommitRows]) -> Events:
        """Return the rows of commits, oldest first, of each those that died before those that came."""
        parts = [
            (commit.seq, file, rows, died)
            for commit in commits
            for died, files in ((True, commit.died), (False, commit.came))
            for file, rows in files
        ]
        sizes = [len(rows) for _, _, rows, _ in parts]

        def repeated(values: list[int] | list[bool], dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
            return np.repeat(np.array(values, dtype), sizes)

        found = [np.asarray(rows.to_array()).astype(np.int64) for _, _, rows, _ in parts]
        return cls(
            repeated([seq for seq, _, _, _ in parts], np.int64),  # type: ignore[arg-type]
            repeated([file for _, file, _, _ in parts], np.int64),  # type: ignore[arg-type]
            np.concatenate([_NO_ROWS, *found]),
            repeated([died for _, _, _, died in parts], np.bool_),  # type: ignore[arg-type]
        )

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
        found[[file for commit in self.commits for file, _ in (*commit.died, *commit.came)]] = True
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
    """What a record says of rows: (segment, bytes of positions, None for all of its rows)."""

    seq: int
    instant: str
    died: tuple[tuple[int, bytes | None], ...]
    came: tuple[tuple[int, bytes | None], ...]

    @classmethod
    def by(cls, record: CommitRecord) -> _Told:
        vectors, fresh = record.table("vectors"), record.table("fresh")
        moved = dict(zip(fresh["segment"].to_pylist(), fresh["positions"].to_pylist(), strict=True))
        first = record.seq * SEGMENTS_PER_COMMIT_MAX
        came = [(first + n, moved.get(n)) for n in record.table("files")["segment"].to_pylist()]
        died = zip(vectors["segment"].to_pylist(), vectors["positions"].to_pylist(), strict=True)
        return cls(record.seq, record.instant, tuple(died), tuple(came))

    def numbered(self, view: Snapshot, rows: Int64Array) -> CommitRows:
        """Return the same by numbers of files.  ``rows``: of each file of the view."""
        died, came = (tuple(self._placed(view, rows, part)) for part in (self.died, self.came))
        return CommitRows(self.seq, self.instant, died, came)

    def _placed(
        self, view: Snapshot, rows: Int64Array, told: Sequence[tuple[int, bytes | None]]
    ) -> Iterable[tuple[int, BitMap]]:
        segments = np.array([segment for segment, _ in told], np.int64)
        files = np.searchsorted(view.segment_ids, segments)
        path = paths.commit(self.seq)
        for (segment, data), file in zip(told, files.tolist(), strict=True):
            if file == view.numbered or view.segment_ids[file] != segment:
                raise Corrupt("a commit record changes a segment that was not live", path=path, got=str(segment))
            size = int(rows[file])
            found = BitMap(range(size)) if data is None else positions(data, size, path=path)
            if found:
                yield file, found
