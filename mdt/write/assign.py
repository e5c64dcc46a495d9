"""Decide which file group takes which rows, and whether it gets a log file or a new base file.

Inserts go first to small file groups of their partition, then to new ones.  On a merge-on-read table whose key index
cannot see log files, inserts go to the smallest file group without log files, whose base file is then rewritten: this is
how HUDI's merge-on-read upsert handles small files.

A key that returns after it was deleted goes to the file group where its dead row stands.  Hudi's own indexes take that row
for a live one: elsewhere, the next writer of Hudi's would bring it back beside the new one, or update it instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from indexes.base import Int64Array
from mdt.config import Options
from mdt.metadata.snapshot import Snapshot

REWRITE = "rewrite"
"""Write a new base file from the live rows of the slice and the new rows."""
LOG = "log"
"""Write a log file."""

_ROW_BYTES_GUESS = 64
_ROWS_THAT_MEASURE = 1_000
_NOTHING: Int64Array = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The work for one file group.

    ``group``: its number in the snapshot, or -1 for a new one.  ``updates``, ``inserts``, ``deletes``, ``returns``: int64, rows
    of the batch; ``returns`` are inserted too, where a dead row of their key stands.  ``mode``: REWRITE or LOG.
    """

    partition: str
    group: int
    mode: str
    updates: Int64Array = field(default_factory=lambda: _NOTHING)
    inserts: Int64Array = field(default_factory=lambda: _NOTHING)
    deletes: Int64Array = field(default_factory=lambda: _NOTHING)
    returns: Int64Array = field(default_factory=lambda: _NOTHING)

    @property
    def added(self) -> Int64Array:
        """Rows of the batch whose keys the group gains: int64."""
        return np.concatenate([self.inserts, self.returns]) if len(self.returns) else self.inserts


@dataclass(frozen=True, slots=True)
class _Small:
    group: int
    capacity_rows: int


def assign(
    snapshot: Snapshot,
    options: Options,
    *,
    can_index_log_files: bool,
    updates: Mapping[int, Int64Array],
    deletes: Mapping[int, Int64Array],
    inserts: Mapping[str, Int64Array],
    returns: Mapping[int, Int64Array],
    row_bytes_hint: float = _ROW_BYTES_GUESS,
    use_small_files: bool = True,
) -> list[Assignment]:
    """Return one assignment for each file group that changes.

    ``updates``, ``deletes``, ``returns``: group -> rows of the batch.  ``inserts``: partition path -> rows, in the order in which
    they should be stored.  ``row_bytes_hint``: expected bytes of a stored row where the table gives no measure.
    """
    inserts_of: dict[int, Int64Array] = {}
    rewrites: set[int] = set()
    fresh: list[Assignment] = []
    is_mor = snapshot.definition.is_mor
    for partition, rows in inserts.items():
        row_bytes = _row_bytes(snapshot, partition, row_bytes_hint)
        small = (
            _small_groups(snapshot, options, partition, row_bytes, can_index_log_files) if use_small_files else iter(())
        )
        taken = 0
        while taken < len(rows) and (place := next(small, None)) is not None:
            part = rows[taken : taken + place.capacity_rows]
            inserts_of[place.group] = part
            taken += len(part)
            if is_mor and not can_index_log_files:
                rewrites.add(place.group)
        per_file = max(1, int(options.max_file_bytes / row_bytes))
        fresh += [Assignment(partition, -1, REWRITE, inserts=part) for part in _even(rows[taken:], per_file)]
    touched = sorted({*updates, *deletes, *inserts_of, *returns})
    return fresh + [
        Assignment(
            snapshot.group_partition[group],
            group,
            REWRITE if not is_mor or group in rewrites else LOG,
            updates.get(group, _NOTHING),
            inserts_of.get(group, _NOTHING),
            deletes.get(group, _NOTHING),
            returns.get(group, _NOTHING),
        )
        for group in touched
    ]


def _even(rows: Int64Array, per_file: int) -> list[Int64Array]:
    """Cut ``rows`` into runs of about equal length, none over ``per_file``."""
    if not len(rows):
        return []
    return [np.asarray(part) for part in np.array_split(rows, -(-len(rows) // per_file))]


def _row_bytes(snapshot: Snapshot, partition: str, hint: float) -> float:
    """Return the mean bytes of a row in the base files of the partition, or of the table, or ``hint``."""
    for place in (partition, None):
        size, rows = snapshot.file_groups.weight(place)
        if rows > _ROWS_THAT_MEASURE:
            return float(size / rows)
    return max(hint, 1.0)


def _small_groups(
    snapshot: Snapshot, options: Options, partition: str, row_bytes: float, can_index_log_files: bool
) -> Iterator[_Small]:
    """Yield the file groups of ``partition`` that may take inserts, smallest first."""
    is_mor = snapshot.definition.is_mor
    for small in snapshot.file_groups.small(partition, options.small_file_bytes):
        capacity = int((options.max_file_bytes - small.bytes) / row_bytes)
        if capacity > 0 and (not small.logs or (is_mor and can_index_log_files)):
            yield _Small(small.group, capacity)
            # One rewrite a partition and commit bounds what a small merge-on-read upsert writes; HUDI does the same.
            if is_mor and not can_index_log_files:
                return
