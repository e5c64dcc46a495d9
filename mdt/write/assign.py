"""Decide which file group takes which rows, and whether it gets a log file or a new base file.

Inserts go first to small file groups of their partition, then to new ones.  On a merge-on-read
table whose key index cannot see log files, inserts go to the smallest file group without log files,
whose base file is then rewritten: this is how HUDI's merge-on-read upsert handles small files.  A
base file is rewritten for inserts only if it is not many times as large as they are, or if it is
rewritten anyway: ten rows go into a small file of their own, and such are joined later
(:mod:`mdt.services.layout.small_files`).

A key that returns after it was deleted goes to the file group where its dead row stands.  Hudi's
own indexes take that row for a live one: elsewhere, the next writer of Hudi's would bring it back
beside the new one, or update it instead.  In a table with an ordering field such a key ends the
slice that it was deleted from.  Hudi readers fail on its log record or lose it: Hudi 1.0 compares
its ordering value with the int 0 of the delete (a ClassCastException for other types), others with
the value of the dead base row.

Where the key index has buckets (:meth:`indexes.base.KeyIndex.buckets`), a new key goes to the file
group of its bucket, or opens that of a bucket which has none yet; sizes do not matter then.

Only numbers of rows are needed here, so that it costs the same whoever holds the rows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from mdt.config import Options
from mdt.limits import REWRITTEN_BYTES_MIN
from mdt.metadata.snapshot.snapshot import Snapshot

NEW = -1
"""Stands for the number of a file group that does not exist yet; smaller numbers for that of a
bucket (:func:`mdt.metadata.keys.buckets.opened`).
"""

Place = tuple[str, int]
"""Where inserts belong: partition path, and number of a file group, or NEW: any of the partition,
or that of a bucket.
"""

_STORED_SHARES = {"lz4": 0.6, "snappy": 0.6, "zstd": 0.35, "uncompressed": 1.0}
"""Bytes of a row in a file, as a share of its bytes in Arrow; a guess for tables that are still
empty.
"""
SHARED_BYTES_MIN = 32 << 20
"""New file groups are as many as there are writers, so that all have work, but none for fewer bytes
than these.
"""
_ROWS_THAT_MEASURE = 1_000
REWRITTEN_TIMES_MAX = 8
"""A larger base file is rewritten for inserts that have at least this part of its bytes: files grow
by this factor until they are full.
"""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one file group takes.

    ``group``: its number in the snapshot, or NEW, or that of a bucket.  ``is_log``: whether a log
    file is written, or a new base file from the live rows and the new ones.  ``inserts``: which of
    the inserts with the place (``partition``, ``home``) it takes.  The rows that it replaces and
    deletes, and keys that return to it, are not counted here: the file group alone decides who
    takes them.
    """

    partition: str
    group: int
    is_log: bool
    inserts: range = range(0)
    home: int = NEW

    @property
    def place(self) -> Place:
        """The place of the inserts that it takes."""
        return self.partition, self.home


@dataclass(frozen=True, slots=True)
class _Small:
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
    """Return one assignment for each file group that changes.

    ``touched``: groups with rows that are replaced or deleted.  ``returns``: groups to which keys
    return.  ``inserts``: place -> number of rows.  ``row_bytes``: mean bytes of a row in Arrow,
    from which that of a stored one is guessed where the table gives no measure.  ``writers``: how
    many files can be written at a time; 0: as many as the options say.  ``rewritten``: groups that
    must have a new base file.
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
        one = stored[partition]
        small: Iterator[_Small] = iter(())
        if use_small_files:
            affordable = max(REWRITTEN_BYTES_MIN, REWRITTEN_TIMES_MAX * int(rows * one))
            small = _small_groups(
                snapshot, options, partition, one, can_index_log_files, touched, affordable
            )
        taken = 0
        while taken < rows and (place := next(small, None)) is not None:
            part = range(taken, min(rows, taken + place.capacity_rows))
            inserts_of[place.group] = part
            taken = part.stop
            if is_mor and not can_index_log_files:
                rewrites.add(place.group)
        per_file = max(1, int(fresh_bytes_max / one))
        fresh += [
            Assignment(partition, NEW, False, part) for part in _even(range(taken, rows), per_file)
        ]
    if snapshot.definition.ordering is not None:
        rewrites.update(returns)  # see the head of this module
    return fresh + [
        Assignment(
            snapshot.file_groups.partition(group),
            group,
            is_mor and group not in rewrites,
            inserts_of.get(group, range(0)),
            group if (snapshot.file_groups.partition(group), group) in inserts else NEW,
        )
        for group in sorted({*touched, *returns, *inserts_of})
    ]


def _even(rows: range, per_file: int) -> list[range]:
    """Cut ``rows`` into ranges of about equal length, none over ``per_file``."""
    if not rows:
        return []
    files = -(-len(rows) // per_file)
    ends = [rows.start + -(-len(rows) * n // files) for n in range(files + 1)]
    return [range(*part) for part in pairwise(ends)]


def _row_bytes(snapshot: Snapshot, partition: str, guess: float) -> float:
    """Return the mean bytes of a row in the base files of the partition, or of the table, or
    ``guess``.
    """
    for place in (partition, None):
        size, rows = snapshot.file_groups.weight(place)
        if rows > _ROWS_THAT_MEASURE:
            return float(size / rows)
    return max(guess, 1.0)


def _fresh_bytes_max(options: Options, all_bytes: float, writers: int) -> float:
    """Return the size at which a new base file is full: the largest of which every writer gets as
    many as the others.
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
) -> Iterator[_Small]:
    """Yield the file groups of ``partition`` that may take inserts: those that are rewritten
    anyway, then the smallest first.

    ``affordable``: bytes of the largest group that is rewritten for the inserts alone.
    """
    is_mor = snapshot.definition.is_mor
    anyway: set[int] = set()
    if not is_mor:
        for number in touched:
            group = snapshot.file_groups.group(number)
            if group.partition == partition and group.bytes < options.small_file_bytes:
                anyway.add(number)
                if capacity := int((options.max_file_bytes - group.bytes) / row_bytes):
                    yield _Small(number, capacity)
    for small in snapshot.file_groups.small(partition, options.small_file_bytes):
        if small.bytes > affordable and not (is_mor and can_index_log_files):
            return
        if small.group in anyway:
            continue
        capacity = int((options.max_file_bytes - small.bytes) / row_bytes)
        if capacity > 0 and (not small.logs or (is_mor and can_index_log_files)):
            yield _Small(small.group, capacity)
            # One rewrite a partition and commit bounds what a small merge-on-read upsert writes;
            # HUDI does the same.
            if is_mor and not can_index_log_files:
                return
