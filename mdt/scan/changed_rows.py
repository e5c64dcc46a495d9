"""Derives the changes of a range of commits from inserted and deleted rows.

``all``: Within a commit, a deleted and an inserted row with the same key are an update. Other rows
are deletes and inserts. ``net``: The oldest pre-image of each key that existed before the range,
and the newest post-image of each key that exists after it. Keys are only read for rows of the
range, and not at all for a single commit whose record states the kind of each row.

Deleted rows are read by page from their original files. A page has about 100 rows, so 1 % of all
rows, evenly spread, touch almost every page and cost a scan of the requested columns in any order
of reading. Pre-images are read only if requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes.arrays import in_batches, numbers, spans, take_rows
from indexes.base import BoolArray, Int64Array
from indexes.paths import top_levels
from indexes.predicate import And, Predicate, bind, columns
from mdt.hudi.avro_schema import COMMIT_SEQNO, RECORD_KEY, with_meta
from mdt.metadata.metadata import Metadata
from mdt.plan.planner import SegmentScan, plan, rows_in
from mdt.scan.history_range import (
    DELETE,
    INSERT,
    KINDS,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    CommitRows,
    Events,
    HistoryRange,
)
from mdt.scan.lookup import KeyRows, rows_at

CHANGE = pa.schema([("_change", pa.string()), ("_seq", pa.int64()), ("_instant", pa.string())])
"""Columns that describe the change of a row."""
Maybe = Mapping[int, BitMap | None] | None
"""File number -> the rows that may match, or None for all rows. None: all rows of all files."""

_BATCH_ROWS = 65_536
"""Number of rows read together. Small commits share a batch."""
_AT_ONCE_ROWS = 4 * _BATCH_ROWS
"""Up to this many rows are read with their keys before their kind is known. For more rows, keys are
read first.
"""


@dataclass(frozen=True, slots=True)
class Changes:
    """n changes.

    Attributes:
        kind: Index in KINDS, int8[n].
        seq: The last commit that changed the key, int64[n].
        file, position: Location of the row in the view of the range, int64[n].
        event: Index of the event, int64[n].
    """

    kind: np.ndarray[tuple[int], np.dtype[np.int8]]
    seq: Int64Array
    file: Int64Array
    position: Int64Array
    event: Int64Array

    def __len__(self) -> int:
        return len(self.seq)

    def rows(self, at: Int64Array | BoolArray | slice) -> Changes:
        """Return the selected changes."""
        return Changes(
            self.kind[at], self.seq[at], self.file[at], self.position[at], self.event[at]
        )


@dataclass(frozen=True)
class ChangedRows:
    """Reads the changes of a range.

    Attributes:
        names: Columns to return.
        predicate: Filter on pre- and post-images, or None.
        before: True to include the pre-images of updates.
        hint: Another filter, which the caller of :meth:`changes` applies itself. Rows that do not
            match it may be left out.
    """

    metadata: Metadata
    history: HistoryRange
    is_net: bool
    names: Sequence[str]
    predicate: Predicate | None
    threads: int
    before: bool = True
    hint: Predicate | None = None

    def changes(self) -> Iterator[Changes]:
        """Yield the changes that may match in batches, by commit (net: all together), deleted rows
        first.
        """
        maybe = self._maybe()
        for commits in self._commit_batches():
            yield from self._changes_of(commits, maybe)

    def _changes_of(self, commits: Sequence[CommitRows], maybe: Maybe) -> Iterator[Changes]:
        events = Events.from_commits(commits)
        changed = self._find_changes(events, self._keys(events, self._unknown(commits, events)))
        changed = changed if maybe is None else changed.rows(_within(changed, maybe))
        yield from map(changed.rows, spans(len(changed), _BATCH_ROWS))

    def tables(self) -> Iterator[tuple[Changes, pa.Table]]:
        """Yield the changes that match, ordered like :meth:`changes`, with their columns ``names``.

        Raises Expired if the snapshot before the range is cleaned in the meantime.
        """
        with self.metadata.reading(self.history.oldest):
            maybe = self._maybe()
            for commits in self._commit_batches():
                if self._may_read_at_once(commits):
                    yield self._read_at_once(commits)
                else:
                    yield from map(self.read, self._changes_of(commits, maybe))

    def _commit_batches(self) -> Iterable[Sequence[CommitRows]]:
        """Return the commits in batches that are processed together."""
        commits = self.history.commits
        if not self.before:
            commits = tuple(commit.without_before() for commit in commits)
        if self.is_net:
            return [commits]
        return in_batches(commits, lambda commit: commit.rows, _BATCH_ROWS)

    def _unknown(self, commits: Sequence[CommitRows], events: Events) -> Int64Array:
        """Return the events whose keys must be compared.

        For net changes of several commits these are all events, otherwise the events without a
        recorded kind.
        """
        if self.is_net and len(commits) > 1:
            return np.arange(len(events))
        return np.flatnonzero(~events.is_known)

    def _may_read_at_once(self, commits: Sequence[CommitRows]) -> bool:
        """Return True to read rows before knowing which are needed: few rows, most of which are
        needed.
        """
        if self.predicate is not None or sum(commit.rows for commit in commits) > _AT_ONCE_ROWS:
            return False
        return self.before or (
            all(commit.is_known for commit in commits) and not (self.is_net and len(commits) > 1)
        )

    def _find_changes(self, events: Events, key: Int64Array) -> Changes:
        """Return the changes for ``events``.

        Args:
            key: Number of each event's key, int64[n], or -1 if unused.
        """
        unknown = np.flatnonzero(~events.is_known)
        kind = events.kind.copy()
        if len(unknown):
            kind[unknown] = changes_per_commit(events.rows(unknown), key[unknown]).kind
        events = events.with_kinds(kind)
        if self.is_net and len(key) and key.min() >= 0:
            if self.before:
                return net_changes(events, key)
            return net_post_images(events, key)
        changed = _recorded_changes(events)
        if self.before:
            return changed
        return changed.rows(kind != UPDATE_BEFORE)

    def _read_at_once(self, commits: Sequence[CommitRows]) -> tuple[Changes, pa.Table]:
        """Return changes with their columns. Reads rows and, if needed, their keys together."""
        events = Events.from_commits(commits)
        unknown = self._unknown(commits, events)
        columns_to_read = tuple(
            dict.fromkeys((*self.names, *((self._identity,) if len(unknown) else ())))
        ) or (RECORD_KEY,)
        table = self._rows_of(events, columns_to_read)
        key = np.full(len(events), -1)
        if len(unknown):
            key[unknown] = self._key_numbers(
                events.rows(unknown), take_rows(table.select([self._identity]), unknown)[0]
            )
        changed = self._find_changes(events, key)
        if self.is_net and len(unknown):
            table = take_rows(table, changed.event)
        return changed, table.select(self.names)

    def read(self, changed: Changes) -> tuple[Changes, pa.Table]:
        """Return the changes that match, with their columns ``names``.

        Reads nothing if there are neither columns nor a predicate.
        """
        if not self.names and self.predicate is None:
            return changed, pa.table({})
        schema = with_meta(self.history.view.definition.schema)
        tested = () if self.predicate is None else top_levels(schema, columns(self.predicate))
        columns_to_read = tuple(dict.fromkeys((*self.names, *tested))) or (RECORD_KEY,)
        table = self._rows_of(changed, columns_to_read)
        if self.predicate is not None and len(table):
            matches = bind(self.predicate, pa.schema([schema.field(name) for name in tested]))(
                table.select(tested)
            )
            table, changed = table.filter(matches), changed.rows(np.flatnonzero(matches))
        return changed, table.select(self.names)

    def _rows_of(self, rows: Changes | Events, names: Sequence[str]) -> pa.Table:
        """Return columns of the rows of changes or events."""
        places = KeyRows(rows.file, rows.position)
        return rows_at(self.metadata, self.history.view, places, names, threads=self.threads)

    def labels(self, changed: Changes) -> list[pa.Array]:
        """Return the columns of CHANGE for ``changed``."""
        kind = pa.DictionaryArray.from_arrays(pa.array(changed.kind), pa.array(KINDS)).cast(
            pa.string()
        )
        return [kind, pa.array(changed.seq), self.history.instants(changed.seq)]

    def _keys(self, events: Events, unknown: Int64Array) -> Int64Array:
        """Return a number per event, int64[n], equal for equal keys in a scope; -1 unless in
        ``unknown``.
        """
        key = np.full(len(events), -1)
        if len(unknown):
            selected = events.rows(unknown)
            table = self._rows_of(selected, (self._identity,))
            key[unknown] = self._key_numbers(selected, table[self._identity])
        return key

    @property
    def _identity(self) -> str:
        """The column that identifies a row.

        With repeated keys, net changes refer to rows instead of keys, and there are no updates.
        """
        if self.is_net and self.history.view.definition.keys_repeat:
            return COMMIT_SEQNO
        return RECORD_KEY

    def _key_numbers(self, events: Events, keys: pa.ChunkedArray) -> Int64Array:
        """Return a number per event, int64[n], equal for equal record keys in a scope."""
        view, key = self.history.view, _codes(keys)
        if view.definition.is_global:
            return key
        partition = _codes(view.files.column("partition"))
        return key * (int(partition.max(initial=0)) + 1) + partition[events.file]

    def _maybe(self) -> Maybe:
        """Return the rows that may match the predicate and the hint."""
        tests = tuple(test for test in (self.predicate, self.hint) if test is not None)
        if not tests:
            return None
        scan_plan = plan(
            self.metadata,
            self.history.view,
            And(tests),
            among=self.history.files(),
            uncovered=self.history.uncovered,
        )
        return {scan.file: self._positions(scan) for scan in scan_plan.segments}

    def _positions(self, scan: SegmentScan) -> BitMap | None:
        if scan.positions is not None or scan.row_groups is None:
            return scan.positions
        return rows_in(self.history.view.segment(scan.file).row_groups, scan.row_groups)


def _codes(values: pa.ChunkedArray) -> Int64Array:
    """Return a number per value, int64[n], equal for equal values."""
    encoded = pc.dictionary_encode(values.combine_chunks())
    array = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    return numbers(array.indices).astype(np.int64)


def _recorded_changes(events: Events) -> Changes:
    """Return every event with its own kind as a change."""
    return Changes(events.kind, events.seq, events.file, events.position, np.arange(len(events)))


def changes_per_commit(events: Events, key: Int64Array) -> Changes:
    """Return every event as a change. An update is a pair of events with the same commit and key.

    >>> ones, zeros = np.ones(2, np.int64), np.zeros(2, np.int64)
    >>> changes_per_commit(
    ...     Events(ones, zeros, zeros, np.array([DELETE, INSERT], np.int8), zeros > 0), zeros
    ... ).kind.tolist()
    [1, 2]
    """
    kind = np.where(events.is_deleted, DELETE, INSERT).astype(np.int8)
    place = events.seq * (int(key.max(initial=0)) + 1) + key
    deleted, inserted = np.flatnonzero(events.is_deleted), np.flatnonzero(~events.is_deleted)
    kind[deleted[np.isin(place[deleted], place[inserted])]] = UPDATE_BEFORE
    kind[inserted[np.isin(place[inserted], place[deleted])]] = UPDATE_AFTER
    return _recorded_changes(events.with_kinds(kind))


def net_changes(events: Events, key: Int64Array) -> Changes:
    """Return the oldest pre-image and the newest post-image of each key, pre-images first.

    Args:
        events: Oldest first.

    >>> seq, key, place = np.array([1, 2, 2, 3]), np.zeros(4, np.int64), np.arange(4)
    >>> inserted_and_deleted = np.array([INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE], np.int8)
    >>> len(net_changes(Events(seq, place, place, inserted_and_deleted, key == 0), key))
    0
    """
    first, last = _first_and_last(events, key)
    before, after = events.is_deleted[first], ~events.is_deleted[last]
    updated, seq = before & after, events.seq[last]
    old, new = np.where(updated, UPDATE_BEFORE, DELETE), np.where(updated, UPDATE_AFTER, INSERT)
    return _sorted_changes(
        events, (old[before], first[before], seq[before]), (new[after], last[after], seq[after])
    )


def net_post_images(events: Events, key: Int64Array) -> Changes:
    """Return the newest post-image of each key, or its last image if it was deleted.

    Args:
        events: With correct kinds for their commits. Pre-images of updates may be missing.

    >>> key, place, after = np.zeros(2, np.int64), np.arange(2), np.full(2, UPDATE_AFTER, np.int8)
    >>> net_post_images(Events(np.array([1, 2]), place, place, after, key == 0), key).kind.tolist()
    [2]
    """
    first, last = _first_and_last(events, key)
    before, after, seq = events.kind[first] != INSERT, ~events.is_deleted[last], events.seq[last]
    deleted_keys, new_kind = before & ~after, np.where(before, UPDATE_AFTER, INSERT)
    deleted = np.full(np.count_nonzero(deleted_keys), DELETE)
    return _sorted_changes(
        events,
        (deleted, last[deleted_keys], seq[deleted_keys]),
        (new_kind[after], last[after], seq[after]),
    )


def _first_and_last(events: Events, key: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the first and the last event of each key, int64[keys] each."""
    order = np.lexsort((~events.is_deleted, events.seq, key))
    begins = np.diff(key[order], prepend=-1) != 0
    return order[begins], order[np.append(begins[1:], True)] if len(order) else order


def _sorted_changes(events: Events, *parts: tuple[Int64Array, Int64Array, Int64Array]) -> Changes:
    """Return (kinds, event numbers, seqs) as changes, each part ordered by file and position."""
    ordered = []
    for kind, at, seq in parts:
        by_place = np.lexsort((events.position[at], events.file[at]))
        ordered.append((kind[by_place], at[by_place], seq[by_place]))
    kinds, rows, seqs = (np.concatenate([part[n] for part in ordered]) for n in range(3))
    return Changes(kinds.astype(np.int8), seqs, events.file[rows], events.position[rows], rows)


def _within(changed: Changes, maybe: Mapping[int, BitMap | None]) -> BoolArray:
    """Return a mask of the changes that may match, bool[n].

    Args:
        maybe: The rows of each file that may match, None for all rows.
    """
    keep = np.isin(
        changed.file,
        np.array([file for file, positions in maybe.items() if positions is None], np.int64),
    )
    places = [
        np.asarray(positions.to_array()).astype(np.int64) | file << 32
        for file, positions in maybe.items()
        if positions
    ]
    return keep | np.isin(
        changed.file << 32 | changed.position, np.concatenate([np.empty(0, np.int64), *places])
    )
