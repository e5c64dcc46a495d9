"""From rows that came and died to changes: what each row was to its key, and the rows themselves.

``all``: a commit's row that died and one of the same key that came with it are an update; the others were deleted and
inserted.  ``net``: of each key the first row that died, if the key lived before the range, and the last that came, if it
lives after it.  Keys are read of the rows of the range only, and not at all where nothing came, or nothing died.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes.base import BoolArray, Int64Array
from indexes.buffers import numbers
from indexes.paths import top_levels
from indexes.predicate import Predicate, bind, columns
from mdt.hudi.schema import RECORD_KEY, with_meta
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.plan.planner import SegmentScan, plan
from mdt.scan.history_range import CommitRows, Events, HistoryRange, history_range
from mdt.scan.reader import read_at
from mdt.scan.tasks import rows_in
from mdt.stores.storage import Storage

CHANGE = pa.schema([("_change", pa.string()), ("_seq", pa.int64()), ("_instant", pa.string())])
"""Columns that say of a row what changed it."""
KINDS = ("insert", "update_before", "update_after", "delete")
"""What a row is to its key; :attr:`Changed.kind` counts in this order."""
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)

_BATCH_ROWS = 65_536
"""Rows that are read together; small commits share a batch."""
_AT_ONCE_ROWS = 4 * _BATCH_ROWS
"""Up to so many rows are read with their keys, before it is known what they are; of more the keys are read first."""


@dataclass(frozen=True, slots=True)
class Changed:
    """n changes.  ``kind``: int8[n], positions in KINDS.  ``seq``: int64[n], of the last commit that changed the key.
    ``file``, ``position``: int64[n], where the row stands in the view of the range.  ``event``: int64[n], which of the events it is.
    """

    kind: np.ndarray[tuple[int], np.dtype[np.int8]]
    seq: Int64Array
    file: Int64Array
    position: Int64Array
    event: Int64Array

    def __len__(self) -> int:
        return len(self.seq)

    def rows(self, at: Int64Array | BoolArray | slice) -> Changed:
        """Return some of the changes."""
        return Changed(self.kind[at], self.seq[at], self.file[at], self.position[at], self.event[at])


@dataclass(frozen=True)
class ChangedRows:
    """Reads the changes of a range.

    ``names``: columns to return.  ``predicate``: on a row, as it was before or is after; None for every row.
    """

    metadata: Metadata
    of: HistoryRange
    is_net: bool
    names: Sequence[str]
    predicate: Predicate | None
    threads: int

    def __reduce__(self) -> Any:
        """A pickle is the table's place, the range and what was asked for."""
        place = self.metadata.storage, dict(self.metadata.overrides)
        return _again, (*place, self.of.since, self.of.until, self.is_net, self.names, self.predicate, self.threads)

    def changes(self) -> Iterator[Changed]:
        """Yield what may match, in batches: commits in their order (net: all at once), first what died."""
        maybe = self._maybe()
        for events in self._events():
            changed = self._told(events, self._keys(events))
            changed = changed if maybe is None else changed.rows(_within(changed, maybe))
            for start in range(0, len(changed), _BATCH_ROWS):
                yield changed.rows(slice(start, start + _BATCH_ROWS))

    def tables(self) -> Iterator[tuple[Changed, pa.Table]]:
        """Yield the changes that match, as :meth:`changes` orders them, with their columns ``names``.

        Raises Expired if the state before the range is cleaned meanwhile.
        """
        with self.metadata.reading(self.of.oldest):
            if self.predicate is not None or sum(commit.rows for commit in self.of.commits) > _AT_ONCE_ROWS:
                yield from map(self.read, self.changes())
                return
            for events in self._events():
                yield self._read_at_once(events)

    def _events(self) -> Iterator[Events]:
        """Yield the rows that came and died, those together that are looked at together."""
        together = [self.of.commits] if self.is_net else _batches(self.of.commits)
        return map(Events.of, together)

    def _told(self, events: Events, key: Int64Array | None) -> Changed:
        return net(events, key) if self.is_net else one_by_one(events, key)

    def _read_at_once(self, events: Events) -> tuple[Changed, pa.Table]:
        """Return changes with their columns, of which keys and rows are read in one go."""
        wanted = tuple(dict.fromkeys((*self.names, RECORD_KEY)))
        view, threads = self.of.view, self.threads
        table = rows_at(self.metadata, view, events.file, events.position, wanted, threads=threads)
        changed = self._told(events, self._numbered(events, table[RECORD_KEY]))
        if len(changed) < len(events) or self.is_net:
            table = table.take(pa.array(changed.event))
        return changed, table.select(self.names)

    def read(self, changed: Changed) -> tuple[Changed, pa.Table]:
        """Return those of the changes that match, and their columns ``names``."""
        schema = with_meta(self.of.view.definition.schema)
        tested = () if self.predicate is None else top_levels(schema, columns(self.predicate))
        wanted = tuple(dict.fromkeys((*self.names, *tested))) or (RECORD_KEY,)
        table = rows_at(self.metadata, self.of.view, changed.file, changed.position, wanted, threads=self.threads)
        if self.predicate is not None and len(table):
            found = bind(self.predicate, pa.schema([schema.field(name) for name in tested]))(table.select(tested))
            table, changed = table.filter(found), changed.rows(np.flatnonzero(found))
        return changed, table.select(self.names)

    def labels(self, changed: Changed) -> list[pa.Array]:
        """Return the columns CHANGE of changes."""
        kind = pa.DictionaryArray.from_arrays(pa.array(changed.kind), pa.array(KINDS)).cast(pa.string())
        return [kind, pa.array(changed.seq), self.of.instants(changed.seq)]

    def _keys(self, events: Events) -> Int64Array | None:
        """Return a number for each event's key, unique in its scope -> int64[n]; None where no two events can share a key."""
        if events.died.all() or not events.died.any():
            return None
        place = events.file, events.position
        table = rows_at(self.metadata, self.of.view, *place, (RECORD_KEY,), threads=self.threads)
        return self._numbered(events, table[RECORD_KEY])

    def _numbered(self, events: Events, keys: pa.ChunkedArray) -> Int64Array:
        """Return a number for each event's record key, string[n], unique in its scope -> int64[n]."""
        view, key = self.of.view, _codes(keys)
        if view.definition.is_global:
            return key
        partition = _codes(view.files.column("partition"))
        return key * (int(partition.max(initial=0)) + 1) + partition[events.file]

    def _maybe(self) -> dict[int, BitMap | None] | None:
        """Return the rows that may match of each file, None for all of them; None for every file."""
        if self.predicate is None:
            return None
        found = plan(self.metadata, self.of.view, self.predicate, among=self.of.files())
        return {scan.file: self._positions(scan) for scan in found.segments}

    def _positions(self, scan: SegmentScan) -> BitMap | None:
        if scan.positions is not None or scan.row_groups is None:
            return scan.positions
        return rows_in(self.of.view.segment(scan.file).row_groups, scan.row_groups)


def _again(
    storage: Storage, overrides: Mapping[str, object], since: int, until: int, is_net: bool, names: Sequence[str],
    predicate: Predicate | None, threads: int,
) -> ChangedRows:  # fmt: skip
    """Return what was pickled.  Raises Expired if its range was cleaned."""
    metadata = Metadata(storage, overrides)
    return ChangedRows(metadata, history_range(metadata, since, until), is_net, names, predicate, threads)


def _codes(values: pa.ChunkedArray) -> Int64Array:
    """Return a number for each value, the same for equal ones -> int64[n]."""
    found = pc.dictionary_encode(values.combine_chunks())
    array = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    return numbers(array.indices).astype(np.int64)


def _batches(commits: Sequence[CommitRows]) -> Iterator[Sequence[CommitRows]]:
    """Yield commits in their order, small ones together."""
    batch: list[CommitRows] = []
    rows = 0
    for commit in commits:
        batch.append(commit)
        rows += commit.rows
        if rows >= _BATCH_ROWS:
            yield batch
            batch, rows = [], 0
    if batch:
        yield batch


def one_by_one(events: Events, key: Int64Array | None) -> Changed:
    """Return every event as a change; an update is two events of one commit and key.

    >>> one, none = np.ones(2, np.int64), np.zeros(2, np.int64)
    >>> one_by_one(Events(one, none, none, np.array([True, False])), none).kind.tolist()
    [1, 2]
    """
    kind = np.where(events.died, DELETE, INSERT).astype(np.int8)
    if key is not None:
        place = events.seq * (int(key.max(initial=0)) + 1) + key
        died, came = np.flatnonzero(events.died), np.flatnonzero(~events.died)
        kind[died[np.isin(place[died], place[came])]] = UPDATE_BEFORE
        kind[came[np.isin(place[came], place[died])]] = UPDATE_AFTER
    return Changed(kind, events.seq, events.file, events.position, np.arange(len(events)))


def net(events: Events, key: Int64Array | None) -> Changed:
    """Return for each key what it was before the events, oldest first, and what it is after them; first what died.

    >>> seq, key, place = np.array([1, 2, 2, 3]), np.zeros(4, np.int64), np.arange(4)
    >>> found = net(Events(seq, place, place, np.array([False, True, False, True])), key)
    >>> len(found)
    0
    """
    if key is None:
        return one_by_one(events, None)
    order = np.lexsort((~events.died, events.seq, key))
    begins = np.diff(key[order], prepend=-1) != 0
    first, last = order[begins], order[np.append(begins[1:], True)] if len(order) else order
    before, after = events.died[first], ~events.died[last]
    updated = before & after
    kind = [np.where(updated, UPDATE_BEFORE, DELETE)[before], np.where(updated, UPDATE_AFTER, INSERT)[after]]
    at = [first[before], last[after]]
    seq = [events.seq[last][before], events.seq[last][after]]
    parts = []
    for one_kind, one_at, one_seq in zip(kind, at, seq, strict=True):
        by_place = np.lexsort((events.position[one_at], events.file[one_at]))
        parts.append((one_kind[by_place], one_at[by_place], one_seq[by_place]))
    kinds, rows, seqs = (np.concatenate([part[n] for part in parts]) for n in range(3))
    return Changed(kinds.astype(np.int8), seqs, events.file[rows], events.position[rows], rows)


def _within(changed: Changed, maybe: Mapping[int, BitMap | None]) -> BoolArray:
    """Return which changes are among the rows that may match -> bool[n].  ``maybe``: of each file, None for all of them."""
    keep = np.isin(changed.file, np.array([file for file, some in maybe.items() if some is None], np.int64))
    places = [np.asarray(some.to_array()).astype(np.int64) | file << 32 for file, some in maybe.items() if some]
    return keep | np.isin(changed.file << 32 | changed.position, np.concatenate([np.empty(0, np.int64), *places]))


def rows_at(
    metadata: Metadata, view: Snapshot, file: Int64Array, position: Int64Array, names: Sequence[str], *, threads: int
) -> pa.Table:
    """Return columns ``names`` of the rows at ``position`` of ``file``, int64[n] each, in that order; one may come twice."""
    wanted = file << 32 | position
    rising = bool((np.diff(wanted) > 0).all())
    places = wanted if rising else np.sort(wanted)
    places = places if rising else places[np.diff(places, prepend=-1) != 0]
    starts = np.flatnonzero(np.diff(places >> 32, prepend=-1))
    parts = [part for part in np.split(places, starts) if len(part)]
    rows = [(int(part[0] >> 32), part & 0xFFFFFFFF) for part in parts]
    table, found = read_at(metadata, view, rows, names, threads=threads)
    if np.array_equal(found, wanted):
        return table
    order = np.argsort(found)
    return table.take(pa.array(order[np.searchsorted(found, wanted, sorter=order)]))
