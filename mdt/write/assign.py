"""Assign rows to file groups, and choose between a log file and a new base file.

Inserts first fill small file groups of their partition, then new file groups. On a merge-on-read
table whose key index cannot look up keys in log files, they go to the smallest file group without
log files, and its base file is rewritten. Hudi's merge-on-read upsert handles small files in the
same way. A large base file is rewritten for inserts only if it is at most 8 times
(REWRITTEN_TIMES_MAX) as large as they are, or if it is rewritten anyway. Ten rows get a small file
of their own, and :mod:`mdt.services.layout.small_files` merges such files later.

A re-inserted key goes to the file group of its deleted row. Hudi's indexes take that row for a live
row. If the key were inserted elsewhere, the next Hudi writer would restore the deleted row as a
duplicate, or update it instead of the new row. In a table with an ordering field the file group
gets a new base file. Hudi readers fail on a log record of such a key or lose it: Hudi 1.0 compares
its ordering value with the int 0 of the delete, which raises a ClassCastException for other types.
Other readers compare it with the value of the deleted base row.

If the key index has buckets (:meth:`indexes.base.KeyIndex.buckets`), a new key goes to the file
group of its bucket, which is created if necessary. File sizes do not matter then.

The functions only take row counts, so their cost does not depend on the engine that holds the rows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from mdt.config import Options
from mdt.formats.uris import takes_log_files
from mdt.limits import REWRITTEN_BYTES_MIN
from mdt.metadata.snapshot.snapshot import Snapshot

NEW = -1
"""Group number of a file group to be created. Smaller numbers represent the file group of a bucket
(:func:`mdt.metadata.keys.buckets.placeholders`).
"""

Place = tuple[str, int]
"""Target of inserts: (partition path, file group number). NEW is any file group of the partition,
smaller numbers are buckets.
"""

_STORED_SHARES = {"lz4": 0.6, "snappy": 0.6, "zstd": 0.35, "uncompressed": 1.0}
"""Estimated ratio of the file size to the Arrow size of a row, for tables without files."""
SHARED_BYTES_MIN = 32 << 20
"""Minimum size of new file groups when rows are split so that every writer has work."""
_ROWS_THAT_MEASURE = 1_000
REWRITTEN_TIMES_MAX = 8
"""A base file over REWRITTEN_BYTES_MIN is rewritten for inserts only if it is at most this many
times as large as they are. Files grow by this factor until they are full.
"""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The rows that a file group takes.

    Rows that it updates or deletes and re-inserted keys are not included. They follow from the file
    group.

    Attributes:
        group: Number of the file group in the snapshot, NEW, or the number of a bucket.
        is_log: True for a log file, False for a new base file with the live and the new rows.
        inserts: Range within the inserts of the place (``partition``, ``home``).
    """

    partition: str
    group: int
    is_log: bool
    inserts: range = range(0)
    home: int = NEW

    @property
    def place(self) -> Place:
        """The place of its inserts."""
        return self.partition, self.home


@dataclass(frozen=True, slots=True)
class _SmallGroup:
    group: int
    capacity_rows: int


def assign(
    snapshot: Snapshot,
    options: Options,
    *,
    can_index_log_files: bool,
    touched: Collection[int],
    returns: Collection[int],
    inserts: Mapping[Place, int],
    row_bytes: float = 0.0,
    writers: int = 0,
    use_small_files: bool = True,
    rewritten: Collection[int] = (),
) -> list[Assignment]:
    """Return the assignment of each file group that changes.

    Args:
        touched: Numbers of groups with updated or deleted rows.
        returns: Numbers of groups that get re-inserted keys.
        inserts: Place -> number of rows.
        row_bytes: Mean bytes of a row in Arrow. Used to estimate the stored size if the table has
            too few rows to measure it.
        writers: Number of files that can be written at a time. 0 takes it from the options.
        use_small_files: False writes inserts to new file groups only.
        rewritten: Numbers of groups that must get a new base file.
    """
    guess = row_bytes * _STORED_SHARES[options.compression]
    stored = {
        partition: _row_bytes(snapshot, partition, guess)
        for partition, home in inserts
        if home == NEW
    }
    fresh_bytes_max = _fresh_bytes_max(
        options, sum(inserts[at, NEW] * size for at, size in stored.items()), writers
    )
    inserts_of: dict[int, range] = {}
    rewrites = set(rewritten)
    fresh: list[Assignment] = []
    is_mor = snapshot.definition.is_mor
    for (partition, home), rows in inserts.items():
        if home > NEW:
            inserts_of[home] = range(rows)
            continue
        if home < NEW:
            fresh.append(Assignment(partition, home, False, range(rows), home))
            continue
        stored_row_bytes = stored[partition]
        small: Iterator[_SmallGroup] = iter(())
        if use_small_files:
            affordable = max(
                REWRITTEN_BYTES_MIN, REWRITTEN_TIMES_MAX * int(rows * stored_row_bytes)
            )
            small = _small_groups(
                snapshot,
                options,
                partition,
                stored_row_bytes,
                can_index_log_files,
                touched,
                affordable,
            )
        first = 0
        while first < rows and (place := next(small, None)) is not None:
            part = range(first, min(rows, first + place.capacity_rows))
            inserts_of[place.group] = part
            first = part.stop
            if is_mor and not can_index_log_files:
                rewrites.add(place.group)
        per_file = max(1, int(fresh_bytes_max / stored_row_bytes))
        fresh += [
            Assignment(partition, NEW, False, part) for part in _even(range(first, rows), per_file)
        ]
    if snapshot.definition.ordering:
        rewrites.update(returns)  # see the module docstring
    return fresh + [
        Assignment(
            snapshot.file_groups.partition(group),
            group,
            is_mor and group not in rewrites and _takes_log_files(snapshot, group),
            inserts_of.get(group, range(0)),
            group if (snapshot.file_groups.partition(group), group) in inserts else NEW,
        )
        for group in sorted({*touched, *returns, *inserts_of})
    ]


def _takes_log_files(snapshot: Snapshot, group: int) -> bool:
    return takes_log_files(snapshot.definition, snapshot.file_groups.partition(group))


def _even(rows: range, per_file: int) -> list[range]:
    """Cut ``rows`` into ranges of nearly equal length, at most ``per_file`` each."""
    if not rows:
        return []
    files = -(-len(rows) // per_file)
    ends = [rows.start + -(-len(rows) * n // files) for n in range(files + 1)]
    return [range(*part) for part in pairwise(ends)]


def _row_bytes(snapshot: Snapshot, partition: str, guess: float) -> float:
    """Return the mean bytes of a row in the base files of the partition, else of the table, else
    ``guess``.
    """
    for place in (partition, None):
        size, rows = snapshot.file_groups.weight(place)
        if rows > _ROWS_THAT_MEASURE:
            return float(size / rows)
    return max(guess, 1.0)


def _fresh_bytes_max(options: Options, all_bytes: float, writers: int) -> float:
    """Return the size of a full new base file: the largest that gives every writer the same number
    of files.
    """
    writers = writers or options.threads("writer")
    rounds = max(1, math.ceil(all_bytes / (writers * options.max_file_bytes)))
    return min(
        options.max_file_bytes, max(SHARED_BYTES_MIN, math.ceil(all_bytes / (writers * rounds)))
    )


def _small_groups(
    snapshot: Snapshot,
    options: Options,
    partition: str,
    row_bytes: float,
    can_index_log_files: bool,
    touched: Collection[int],
    affordable: int,
) -> Iterator[_SmallGroup]:
    """Yield the file groups of ``partition`` that can take inserts: first groups that are rewritten
    anyway, then by size.

    Args:
        affordable: Maximum bytes of a group that is rewritten only for the inserts.
    """
    is_mor = snapshot.definition.is_mor
    anyway: set[int] = set()
    if not is_mor:
        for number in touched:
            group = snapshot.file_groups.group(number)
            if group.partition == partition and group.bytes < options.small_file_bytes:
                anyway.add(number)
                if capacity := int((options.max_file_bytes - group.bytes) / row_bytes):
                    yield _SmallGroup(number, capacity)
    for small in snapshot.file_groups.small(partition, options.small_file_bytes):
        if small.bytes > affordable and not (is_mor and can_index_log_files):
            return
        if small.group in anyway:
            continue
        capacity = int((options.max_file_bytes - small.bytes) / row_bytes)
        if capacity > 0 and (not small.logs or (is_mor and can_index_log_files)):
            yield _SmallGroup(small.group, capacity)
            # Like Hudi, rewrite at most one file group for each partition and commit, so that a
            # small merge-on-read upsert stays cheap.
            if is_mor and not can_index_log_files:
                return
