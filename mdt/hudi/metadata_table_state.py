"""The state of Hudi's metadata table that our commits keep, as its listings show it.

Each partition has a single file group, but a record index of each partition has one for each
partition of the table. The newest slice of a file group is a base file and the log files that
belong to it. The names of our files have the seq of the commit record that added them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain

from mdt.hudi.metadata_table_files import (
    FILES,
    INDEX_SCHEMA,
    PARTITION_STATS,
    RECORD_INDEX,
    Group,
    Layout1,
    Slice,
    group_of,
    shifted,
)
from mdt.hudi.timeline import COMPLETED, Instant

_LOGS_MIN, _LOGS_MAX = 10, 40
"""A slice is compacted after 10 log files, as in Hudi, unless they are small."""
_LOG_SHARE_MIN = 0.5
"""Log files are small if they have less than this share of the bytes of the base file. Slices with
small log files are compacted after 40.
"""
_SLICE_COMMITS_MAX = 100
"""Commits since its base file after which a slice with any log files is compacted, because readers
need the instants of its log files.
"""
_INSTANTS_MAX = 30
"""Completed instants of the metadata table after which older ones are archived."""
_COMMITS = ("commit", "deltacommit")
_BASE = re.compile(r"(?P<id>.+)_[0-9]+-(?P<seq>[0-9]{1,18})-[0-9]+_(?P<base>[0-9]{17,20})\.hfile")
_LOG = re.compile(
    r"\.(?P<id>.+)_(?P<base>[0-9]{17,20})\.log\.(?P<version>[0-9]{1,9})"
    r"_[0-9]+-(?P<seq>[0-9]{1,18})-[0-9]+"
)


@dataclass(frozen=True, slots=True)
class GroupFiles:
    """The files of a file group of the metadata table.

    Attributes:
        slice: The newest complete slice, or None.
        old: Paths of the files of older slices.
        seqs: Seqs of the records that have a log file in the slice.
        is_due: True if the slice has so many log files that it is to be compacted.
    """

    slice: Slice | None
    old: tuple[str, ...]
    seqs: frozenset[int]
    is_due: bool = False


_NO_SLICE = GroupFiles(None, (), frozenset())


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of the metadata table.

    Attributes:
        instants: Its active instants.
        files: File group -> its files.
        newest_seq: The largest seq in a name of a file, -1 if there are none.
        has_strays: True if there are instants or files that no commit can have made.
    """

    instants: frozenset[Instant]
    files: Mapping[Group, GroupFiles]
    newest_seq: int
    has_strays: bool = False

    def has(self, time: str) -> bool:
        """Return True if the deltacommit at ``time`` is completed."""
        return Instant(time, "deltacommit", COMPLETED) in self.instants

    def seqs(self) -> frozenset[int]:
        """Return the seqs of the records that have a log file in a slice."""
        return frozenset(chain.from_iterable(files.seqs for files in self.files.values()))

    def is_beyond(self, seq: int, instant: str) -> bool:
        """Return True if the metadata table has the commit record ``seq`` at ``instant``. Another
        publisher may have gone on to later ones while this one waited, also between the listings.
        """
        return self.newest_seq > seq or self.has(instant)

    def newest_delta(self) -> Instant | None:
        """Return the newest completed deltacommit, or None."""
        deltas = (i for i in self.instants if (i.state, i.action) == (COMPLETED, "deltacommit"))
        return max(deltas, key=end_of, default=None)

    def has_lost_files(self, seq: int, instant: str) -> bool:
        """Return True if the partition ``files`` has fewer log files than there are commits since
        its base file. Each commit has one there.

        Args:
            seq, instant: Of the commit record that is added, which does not count.
        """
        files = self.files[group_of(FILES)]
        if files.slice is None:
            return False
        base, commits = files.slice.base_instant, 0
        for i in self.instants:
            is_delta = (i.state, i.action) == (COMPLETED, "deltacommit")
            commits += is_delta and end_of(i) >= base and i.time not in (base, instant)
        return commits > len(files.seqs - {seq})

    def outdated(self, first: str) -> list[Instant]:
        """Return the instants before all that have completed since ``first``, oldest first. None if
        there are few instants.
        """
        done = [i for i in self.instants if i.state == COMPLETED]
        if len(done) < _INSTANTS_MAX:
            return []
        start = min((i.time for i in done if end_of(i) >= first), default=first)
        return sorted(i for i in self.instants if i.time < start)

    def pending(self) -> set[str]:
        """Return the times of instants that are not completed."""
        return _pending_times(self.instants)

    def slices(self) -> list[Slice]:
        """Return the slice of each file group that has one. All are complete."""
        return [files.slice for files in self.files.values() if files.slice is not None]

    def is_complete(self) -> bool:
        """Return True if each file group has a slice."""
        return len(self.slices()) == len(self.files)


def state_of(
    layout: Layout1,
    instants: AbstractSet[Instant],
    listings: Mapping[str, Mapping[str, int]],
    last: tuple[int, str],
    *,
    by_partition: bool = False,
) -> TableState:
    """Return the state of the metadata table.

    Args:
        instants: Its active instants.
        listings: Partition -> names of the files in its folder -> bytes.
        last: The largest seq and the latest time that a commit can have given.
        by_partition: True if the record index is one of each partition.
    """
    last_seq, last_time = last
    known = frozenset(instant for instant in instants if not is_after(instant, last_time))
    ends = {i.time: end_of(i) for i in known if i.state == COMPLETED and i.action in _COMMITS}
    first = min((i.time for i in known), default="")
    pending = _pending_times(known)
    files = dict[Group, GroupFiles]()
    newest_seq, has_strays = -1, len(known) < len(instants)
    for partition, sizes in listings.items():
        sizes_of: dict[str, dict[str, int]] = {}
        for match in filter(None, map(_match, sizes)):
            name, seq = match[0], int(match["seq"])
            if seq > last_seq:
                has_strays = True
            elif match.re is not _LOG or match["base"] not in pending:
                newest_seq = max(newest_seq, seq)
                sizes_of.setdefault(match["id"], {})[name] = sizes[name]
        if partition == RECORD_INDEX and by_partition:
            files |= _files_by_partition(layout, ends, sizes_of, first)
        else:
            group = group_of(partition)
            files[group] = _files_of(layout, group, ends, sizes_of.get(group.file_id, {}), first)
    return TableState(known, files, newest_seq, has_strays)


def _files_by_partition(
    layout: Layout1, ends: Mapping[str, str], sizes_of: Mapping[str, Mapping[str, int]], first: str
) -> dict[Group, GroupFiles]:
    """Return the file groups of a record index of each partition. One that has nothing but a base
    file that is not complete is left out, as a crash of its first publisher leaves it.

    Args:
        sizes_of: Id of a file group -> names of its files -> bytes.
    """
    files = {}
    for file_id, sizes in sizes_of.items():
        group = Group(RECORD_INDEX, file_id, INDEX_SCHEMA)
        group_files = _files_of(layout, group, ends, sizes, first)
        if group_files.slice is not None or any(map(_LOG.fullmatch, sizes)):
            files[group] = group_files
    return files


def has_later(instants: Iterable[Instant], names: Iterable[str], seq: int, time: str) -> bool:
    """Return True if a file has a larger seq than ``seq``, or an instant is after ``time``."""
    is_later = any(seq_of(name) > seq for name in names if is_file(name))
    return is_later or any(is_after(instant, time) for instant in instants)


def _files_of(
    layout: Layout1, group: Group, ends: Mapping[str, str], sizes: Mapping[str, int], first: str
) -> GroupFiles:
    """Return the files of a file group.

    Args:
        ends: Completed instants of the metadata table that write -> when they were completed.
        sizes: Names of its files -> bytes.
        first: The first active instant. Earlier ones are completed.
    """
    bases = {match["base"]: match[0] for match in map(_BASE.fullmatch, sizes) if match}
    complete = sorted(base for base in bases if base in ends or base < first)
    if not complete:
        return _NO_SLICE
    newest = complete[-1]
    logs_of: dict[str, list[str]] = {}
    for match in map(_LOG.fullmatch, sizes):
        if match:
            base = layout.base_of(match["base"], ends.get(match["base"]), complete)
            logs_of.setdefault(base, []).append(match[0])
    log_names = tuple(sorted(logs_of.get(newest, []), key=_order))
    old = [name for time, name in bases.items() if time < newest]
    for time, found in logs_of.items():
        if time < newest:
            old += found
    seqs = frozenset(map(seq_of, log_names))
    if seqs and min(seqs) < seq_of(bases[newest]):
        # a publisher that paused has put a log file of a record that the base file has
        return _NO_SLICE
    slice_ = Slice(group, newest, bases[newest], log_names)
    log_bytes = sum(sizes[name] for name in log_names)
    is_small = log_bytes < _LOG_SHARE_MIN * sizes[bases[newest]]
    is_small |= group.partition == PARTITION_STATS  # its base file is made from all data files
    is_due = len(log_names) >= (_LOGS_MAX if is_small else _LOGS_MIN)
    if log_names and not is_due:
        is_due = sum(end >= newest for end in ends.values()) > _SLICE_COMMITS_MAX
    return GroupFiles(slice_, tuple(map(group.path, old)), seqs, is_due)


def _pending_times(instants: AbstractSet[Instant]) -> set[str]:
    """Return the times of instants that are not completed."""
    return {i.time for i in instants} - {i.time for i in instants if i.state == COMPLETED}


def end_of(completed: Instant) -> str:
    """Return the time by which completed instants are ordered."""
    return completed.completion or completed.time


def next_ms(time: str) -> str:
    """Return the time of a compaction after ``time``."""
    return shifted(time, 1)


def is_after(instant: Instant, time: str) -> bool:
    """Return True if an instant is later than ``time`` in its digits."""
    return end_of(instant)[: len(time)] > time


def _order(name: str) -> tuple[str, int]:
    """Return the key by which readers order the log files of a slice."""
    match = _LOG.fullmatch(name)
    assert match is not None, name
    return match["base"], int(match["version"])


def is_file(name: str) -> bool:
    """Return True for the name of a base file or a log file."""
    return _match(name) is not None


def seq_of(name: str) -> int:
    """Return the seq in the name of a file."""
    match = _match(name)
    assert match is not None, name
    return int(match["seq"])


def _match(name: str) -> re.Match[str] | None:
    return _LOG.fullmatch(name) or _BASE.fullmatch(name)
