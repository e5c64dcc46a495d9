"""The newest file slice of each file group, from the names of files alone.

Base files begin slices. In version 6, the name of a log file contains the instant of its slice. In
versions 8 and 9 it contains the instant of its own commit, and the file belongs to the newest
slice that was requested before this commit completed. A commit that ran beside a compaction is thus
part of the slice that the compaction begins.

A requested compaction begins a slice, too. Its base file is not there yet, so the slice is read
together with the slice before it. Other slices without a base file consist of log files only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mdt.hudi import file_names
from mdt.hudi.file_names import LogFileName
from mdt.hudi.read.instants import Timeline
from mdt.hudi.read.service_metadata import GroupId
from mdt.hudi.read.table_properties import TableProperties

_END_OF_TIME = "~"
"""Sorts after every instant."""

Files = Mapping[str, Mapping[str, int]]
"""Partition path -> file name -> size in bytes."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A base file or log file.

    Attributes:
        name: Name in its partition.
        size: Size in bytes.
        instant: The instant in its name.
    """

    name: str
    size: int
    instant: str


@dataclass(frozen=True, slots=True)
class FileSlice:
    """The files that make the rows of a file group.

    Attributes:
        partition, file_id: The file group.
        instant: Instant of the base file. Without one, that of a pending compaction or of the first
            log file.
        base: The base file, or None.
        logs: Log files, in the order in which their blocks are merged.
    """

    partition: str
    file_id: str
    instant: str
    base: DataFile | None
    logs: tuple[DataFile, ...]

    @property
    def group_id(self) -> GroupId:
        """The partition path and the file id."""
        return self.partition, self.file_id

    def path(self, file: DataFile) -> str:
        """Return the path of one of the slice's files in the table."""
        return f"{self.partition}/{file.name}" if self.partition else file.name


@dataclass(slots=True)
class FileGroup:
    """All files of a file group, of every instant.

    Attributes:
        bases: Instant -> base file.
        logs: Log files with the parts of their names, in the order in which they are merged.
    """

    bases: dict[str, DataFile] = field(default_factory=dict)
    logs: list[tuple[LogFileName, DataFile]] = field(default_factory=list)


def group_files(files: Files, table: TableProperties) -> dict[GroupId, FileGroup]:
    """Return the file groups of ``files``, sorted by partition path and file id.

    Files with other names are left out, and so are log files of a copy-on-write table. If an
    instant has several base files of a group, the last one by name counts.
    """
    groups: dict[GroupId, FileGroup] = {}
    extension = f".{table.base_format.lower()}"
    for partition, names in files.items():
        for name in sorted(names):
            if name.startswith("."):
                log = file_names.parse_log(name, file_names.ANY_LOG)
                if table.is_merge_on_read and log is not None and not log.is_cdc:
                    group = groups.setdefault((partition, log.file_id), FileGroup())
                    group.logs.append((log, DataFile(name, names[name], log.instant)))
            elif name.endswith(extension):
                base = file_names.parse_base(name, file_names.ANY_BASE)
                if base is not None:
                    group = groups.setdefault((partition, base.file_id), FileGroup())
                    group.bases[base.instant] = DataFile(name, names[name], base.instant)
    for group in groups.values():
        group.logs.sort(key=log_order)
    return dict(sorted(groups.items()))


def newest_slices(
    groups: Mapping[GroupId, FileGroup],
    timeline: Timeline,
    table: TableProperties,
    *,
    compactions: Mapping[GroupId, str] | None = None,
    replaced: Mapping[GroupId, str] | None = None,
    at: str = "",
) -> list[FileSlice]:
    """Return the newest slice of each file group that has rows, in the order of ``groups``.

    Files of pending or unknown instants are left out. Log files of version 6 may also contain
    blocks of commits that are pending or later than ``at``, so readers have to check the instant
    of each block.

    Args:
        groups: See :func:`group_files`.
        timeline: With the history of :func:`instants_to_look_up`.
        compactions: File group -> instant of its pending compaction, all in ``timeline``.
        replaced: File group -> instant of the commit that replaced it.
        at: Return the slices as of this instant, inclusive. It is compared with times of requests.
    """
    view = _View(timeline, table, compactions or {}, replaced or {}, at or _END_OF_TIME)
    newest = (view.newest(group_id, group) for group_id, group in groups.items())
    return [file_slice for file_slice in newest if file_slice is not None]


def instants_to_look_up(
    groups: Mapping[GroupId, FileGroup], timeline: Timeline, table: TableProperties
) -> set[str]:
    """Return the instants in file names whose completion only the history knows.

    Always empty for version 6, which stores no completion times. Base files that are older than the
    start of the timeline are not included, because their instants are completed.
    """
    times: set[str] = set()
    if table.layout == 1:
        return times
    for group in groups.values():
        times.update(name.instant for name, _ in group.logs)
        times.update(time for time in group.bases if time >= timeline.start)
    return set(filter(timeline.needs_history, times))


@dataclass(slots=True)
class _Slice:
    """A slice that is being made: log files with their names, which define their order."""

    base: DataFile | None = None
    logs: list[tuple[LogFileName, DataFile]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _View:
    """The parts of a table's state that decide about slices."""

    timeline: Timeline
    table: TableProperties
    compactions: Mapping[GroupId, str]
    replaced: Mapping[GroupId, str]
    at: str

    def newest(self, group_id: GroupId, group: FileGroup) -> FileSlice | None:
        """Return the newest slice of a file group, or None if it has no rows at ``at``."""
        if group_id in self.replaced and self.replaced[group_id] <= self.at:
            return None
        slices: dict[str, _Slice] = {}
        for time, file in group.bases.items():
            if self._is_visible(time):
                slices[time] = _Slice(file)
        pending = self.compactions.get(group_id, "")
        if pending and pending <= self.at:
            slices.setdefault(pending, _Slice())
        for name, file in group.logs:
            start = self._slice_of_log(name.instant, slices)
            if start:
                slices.setdefault(start, _Slice()).logs.append((name, file))
        return self._merged(group_id, slices)

    def _is_visible(self, time: str) -> bool:
        return time <= self.at and self.timeline.is_completed(time)

    def _slice_of_log(self, time: str, slices: Iterable[str]) -> str:
        """Return the instant of the slice that a log file belongs to, or "" if it is not visible.

        Args:
            time: The instant in the file's name.
            slices: Instants of the slices so far, including those of all earlier log files.
        """
        if self.table.layout == 1:
            if time <= self.at and self.timeline.is_pending_compaction(time):
                return time
            return time if self._is_visible(time) else ""
        completion = self.timeline.completion(time)
        if time > self.at or completion is None:
            return ""
        # a log file that is older than every base file begins a slice of its own
        return max((start for start in slices if start <= completion), default=time)

    def _merged(self, group_id: GroupId, slices: Mapping[str, _Slice]) -> FileSlice | None:
        """Return the newest slice, joined with the one before it if a compaction is pending."""
        starts = sorted(slices, reverse=True)
        if not starts:
            return None
        instant = starts[0]
        base, logs = slices[instant].base, slices[instant].logs
        if self.timeline.is_pending_compaction(instant) and len(starts) > 1:
            instant = starts[1]
            base, logs = slices[instant].base, slices[instant].logs + logs
        if base is None and not logs:
            return None
        ordered = tuple(file for _, file in sorted(logs, key=log_order))
        return FileSlice(*group_id, instant, base, ordered)


def log_order(log: tuple[LogFileName, DataFile]) -> tuple[str, int, str, str]:
    """Return the sort key that puts the log files of a slice into the order of merging."""
    name, file = log
    return name.instant, name.version, name.token, file.name
