"""Log compaction: merge log files of a file group if that costs less than a new base file.

In Hudi this is a ``deltacommit`` with the operation LOG_COMPACT. Live rows are copied with their
meta columns. The old log files stay until they are cleaned, and Hudi's readers may still read them.
Their result is the same, because each copied row is the current version of its key and comes last.

Two facts must not be lost with an old log file. One is a delete block. The other is a deleted row
of a key that a delete block names: it shows writers that the key must return to this file slice
(:mod:`mdt.write.assign`). So log files with deletes are kept, and log files before them are merged
only if they have no deleted rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim
from mdt.metadata.files.file_group import BASE
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet.segment import Segment
from mdt.services.layout.compaction import Compaction, CompactionPlan
from mdt.write.new_files import WriteJob
from mdt.write.rewrite_rows import live_rows
from mdt.write.slice_files import write_slices
from mdt.write.slices import Slice

SMALLEST_BYTES = 1 << 13
"""Upper bound of size class 0 of files and file groups. The bound of each further class is four
times larger.
"""


def size_class(bytes: int) -> int:
    """Return the size class: 0 for the smallest files, and one more for each factor of four.

    >>> [size_class(n << 10) for n in (1, 8, 31, 32, 128)]
    [0, 1, 1, 2, 3]
    """
    return ((bytes // SMALLEST_BYTES).bit_length() + 1) // 2


def files_to_merge(snapshot: Snapshot, group: int, least: int) -> list[int]:
    """Return the log files of a file group to merge: the smallest size class with ``least`` files.

    Files without live rows count in every class. Empty if no class has enough files. O(files of the
    group).
    """
    members = snapshot.file_groups.members(group)
    by_size: dict[int, list[int]] = {}
    ended: list[int] = []
    for number, file in _movable(snapshot, members.tolist(), snapshot.files.segments(members)):
        is_live = file.rows > len(snapshot.vector(number) or ())
        (by_size.setdefault(size_class(file.size), []) if is_live else ended).append(number)
    due = [size for size, numbers in by_size.items() if len(numbers) + len(ended) >= max(least, 2)]
    return sorted(by_size[min(due)] + ended) if due else []


def _movable(
    snapshot: Snapshot, numbers: Sequence[int], files: Sequence[Segment]
) -> list[tuple[int, Segment]]:
    """Return (number, file) of the log files whose rows may be moved, oldest first."""
    deletes = [position for position, file in enumerate(files) if file.deletes]
    settled = deletes[-1] if deletes else -1
    movable = []
    for position, (number, file) in enumerate(zip(numbers, files, strict=True)):
        if (
            file.kind != BASE
            and not file.deletes
            and (position > settled or not snapshot.vector(number))
        ):
            movable.append((number, file))
    return movable


@dataclass(frozen=True, slots=True)
class LogCompactionPlan(CompactionPlan):
    """A plan with the log files to merge for each file group, by their numbers in the snapshot."""

    files: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogCompaction(Compaction):
    """The log compaction of the file groups ``names``.

    ``least`` is the minimum number of log files of a size class.
    """

    least: int = 2
    name: str = "log_compact"
    action: str = "deltacommit"

    def prepare(self, snapshot: Snapshot, txn: str) -> LogCompactionPlan:
        """Return a plan with the log files to merge."""
        numbers = snapshot.file_groups.number(self.names or ())
        logs_by_group = {
            group: files_to_merge(snapshot, group, self.least)
            for group in numbers[numbers >= 0].tolist()
        }
        files = {group: logs for group, logs in logs_by_group.items() if logs}
        footprint = Footprint(txn, frozenset(snapshot.file_groups.names(list(files))))
        partitions = sorted({snapshot.file_groups.partition(group) for group in files})
        return LogCompactionPlan(
            footprint, partitions, is_needed=bool(files), groups=sorted(files), files=files
        )

    def write(self, snapshot: Snapshot, plan: CompactionPlan, claim: Claim) -> Changes:
        """Write one log file for each file group."""
        assert isinstance(plan, LogCompactionPlan)
        shared = WriteJob.for_claim(self.metadata, snapshot, self.options, claim)
        slices = []
        for group, logs in sorted(plan.files.items()):
            carried = partial(self._live, snapshot, logs)
            slices.append(
                Slice(
                    snapshot.file_groups.partition(group),
                    group,
                    True,
                    carried=carried,
                    replaced=logs,
                )
            )
        return write_slices(
            shared, slices, lambda item: item, self.progress, read=sorted(plan.files)
        )

    def _live(self, snapshot: Snapshot, logs: Sequence[int]) -> list[pa.Table]:
        return [live_rows(self.metadata, snapshot, number) for number in logs]
