"""The live rows of a file slice that Hudi wrote, found by sorting instead of row by row.

A slice is a base file and log blocks in order. Hudi merges the log's rows among themselves first
and then once with the row of the base file, per record key (``HoodieMergedLogRecordReader``):

* By commit time, the later row or delete wins.
* By event time, it wins unless its ordering value is smaller. A delete without an ordering value
  (a commit-time delete) wins over all that stood before it in the log and loses to all that follows
  it there.
* Hudi takes a null for the int 0, which a delete without an ordering value has, too. So null is 0
  among integers of 32 bits and dates. Hudi cannot compare other nulls. Here, those of a single
  field win and lose like commit-time deletes, and those of several fields are the smallest values.
  So a row of nulls that is marked as a delete is not a commit-time delete if there are several.
* Floats have Java's order: -0.0 is below 0.0, and NaN is the largest.
* A commit-time delete that is the last of its key in the log deletes the base row, too. Otherwise
  the winner of the log replaces the base row unless its ordering value is smaller.
* A delete record after a commit-time delete changes nothing.

Folding the events of a key in this way ends with the largest ordering value after the last event
without one, and of equal values with the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import flags, row_ranks

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Events:
    """Rows of a base file, or rows and deletes of a log in order.

    Attributes:
        keys: Record keys, string[n] without nulls.
        ordering: A column for each ordering field, each [n]. Empty to merge by commit time.
        is_delete: True for deletes, bool[n].
        is_marked: True for deletes that are rows with a mark, bool[n]. None if there are none.
    """

    keys: pa.Array
    ordering: Sequence[pa.Array]
    is_delete: Bools
    is_marked: Bools | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def marks(self) -> Bools:
        """``is_marked``, with False for None."""
        return np.zeros(len(self), np.bool_) if self.is_marked is None else self.is_marked


def live_rows(base: Events, log: Events) -> tuple[Bools, Bools]:
    """Return masks of the live rows of the base file and of the log, bool[n] each.

    The columns of ``ordering`` must have the same types in both. Deletes are never live. If a key
    is repeated in ``base``, its first row meets the log, and the others stay. O(n log n).

    >>> base = Events(pa.array(["a", "b"]), [pa.array([5, 5])], np.zeros(2, bool))
    >>> log = Events(pa.array(["a", "b", "c"]), [pa.array([6, 4, 1])], np.zeros(3, bool))
    >>> [live.tolist() for live in live_rows(base, log)]
    [[False, True], [True, False, True]]
    """
    base_live, log_live = ~base.is_delete, np.zeros(len(log), np.bool_)
    if not len(log):
        return base_live, log_live
    ranked = rank(base, log)
    winner = _last_by_rank(ranked)
    rival = ranked.base_row[ranked.key[winner]]
    wins = ranked.beats_base(winner, rival)
    base_live[rival[(rival >= 0) & wins]] = False
    log_live[winner[wins]] = True
    return base_live, log_live & ~log.is_delete


@dataclass(frozen=True, slots=True)
class RankedLog:
    """The events of a log with numbers for their keys and ordering values.

    Attributes:
        rows: Numbers of the events that count, ascending.
        key: Number of the key of each event, int64[n].
        rank: Rank of the ordering value of each event, -1 if it has none, int64[n].
        base_row: Number of a key -> its first row in the base file, or -1.
        base_rank: Rank of each row of the base file, -1 for those whose keys are not in the log.
    """

    rows: Int64s
    key: Int64s
    rank: Int64s
    base_row: Int64s
    base_rank: Int64s

    def beats_base(self, events: Int64s, rival: Int64s) -> Bools:
        """Return True where an event wins over a row of the base file, or has no rival (-1)."""
        event_rank = self.rank[events]
        base_rank = np.append(self.base_rank, -1)[rival]  # -1 without a rival, too
        wins: Bools = (base_rank < 0) | (event_rank < 0) | (event_rank >= base_rank)
        return wins


def rank(base: Events, log: Events) -> RankedLog:
    """Return the events of ``log``, which has at least one, with keys and ranks as numbers.

    Delete records that follow a commit-time delete of their key do not count, so that they do not
    turn it into a delete that a newer row survives.
    """
    encoded = log.keys.dictionary_encode()
    key = encoded.indices.to_numpy().astype(np.int64)
    base_key = pc.index_in(base.keys, value_set=encoded.dictionary)
    rivals = np.flatnonzero(flags(base_key.is_valid()))
    base_row = np.full(len(encoded.dictionary), -1)
    base_row[base_key.drop_null().to_numpy()[::-1]] = rivals[::-1]
    columns = [
        pa.chunked_array([base_values.take(pa.array(rivals)), log_values])
        for base_values, log_values in zip(base.ordering, log.ordering, strict=True)
    ]
    is_row = np.zeros(len(rivals), np.bool_)
    ranks = _ranks(columns, np.append(is_row, log.is_delete), np.append(is_row, log.marks))
    base_rank = np.full(len(base), -1)
    base_rank[rivals], log_rank = np.split(ranks, [len(rivals)])
    rows = np.flatnonzero(~_repeats_delete(key, log_rank, log))
    return RankedLog(rows, key, log_rank, base_row, base_rank)


def _repeats_delete(key: Int64s, rank: Int64s, log: Events) -> Bools:
    """Return True for delete records after a commit-time delete of their key, without a row or a
    marked delete between.
    """
    repeats = np.zeros(len(key), np.bool_)
    is_final = log.is_delete & (rank < 0)
    if not is_final.any():
        return repeats
    is_record = log.is_delete & ~log.marks
    order = np.argsort(key, kind="stable")
    number = np.arange(len(key))
    begins = np.append(True, key[order][1:] != key[order][:-1])
    last_of = []
    for events in (begins, is_final[order], ~(is_record | is_final)[order]):
        last_of.append(np.maximum.accumulate(np.where(events, number, -1)))
    begin, final, row = last_of
    final, row = np.append(-1, final[:-1]), np.append(-1, row[:-1])
    repeats[order] = is_record[order] & (final >= begin) & (final > row)
    return repeats


def _ranks(columns: Sequence[pa.ChunkedArray], is_delete: Bools, is_marked: Bools) -> Int64s:
    """Return the rank of each row by ``columns``, -1 for a row without a value -> int64[n].

    Without columns, all rows have rank 0.
    """
    if not columns:
        return np.zeros(len(is_delete), np.int64)
    values = [_with_zeros(column.combine_chunks()) for column in columns]
    ranks: Int64s = row_ranks([_numbers(column) for column in values]).astype(np.int64)
    if len(columns) > 1:
        has_none = np.logical_and.reduce([flags(column.is_null()) for column in columns])
        ranks[is_delete & ~is_marked & has_none] = -1
    elif _is_int(values[0].type):
        ranks[is_delete & flags(pc.equal(values[0].cast(pa.int32()), 0))] = -1
    else:
        ranks[flags(values[0].is_null())] = -1
    return ranks


def _with_zeros(values: pa.Array) -> pa.Array:
    """Return values with 0 for null if they have a type in which Hudi compares nulls."""
    if not _is_int(values.type):
        return values
    return values.fill_null(pa.scalar(0, pa.int32()).cast(values.type))


def _is_int(type: pa.DataType) -> bool:
    """Return True for the types whose values are integers of 32 bits in Hudi on Spark."""
    return bool(pa.types.is_int32(type) or pa.types.is_date32(type))


def _numbers(values: pa.Array) -> Int64s:
    """Return numbers with the same order as ``values``, 0 for null, int64[n]."""
    numbers: Int64s = 2 * pc.rank(values, tiebreaker="dense").to_numpy().astype(np.int64)
    numbers[flags(values.is_null())] = 0
    if pa.types.is_floating(values.type):
        floats = values.fill_null(0.0).to_numpy(zero_copy_only=False)
        numbers -= (floats == 0) & np.signbit(floats)
    return numbers


def _last_by_rank(log: RankedLog) -> Int64s:
    """Return for each key the event that remains of its events in order -> rows, ascending by key.

    That is the last one with the largest rank after the last event of rank -1, or that event if it
    is the last.
    """
    key, rank, rows = log.key, log.rank, log.rows
    reset = np.full(int(key.max()) + 1, -1)
    resets = rows[rank[rows] < 0]
    np.maximum.at(reset, key[resets], resets)
    rows = rows[rows >= reset[key[rows]]]
    order = rows[np.lexsort((rows, rank[rows], key[rows]))]
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = key[order][1:] != key[order][:-1]
    return order[is_last]
