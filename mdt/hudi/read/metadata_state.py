"""The state of Hudi's metadata table, and whether it is in step with the data table.

The metadata table is a merge-on-read table of HFiles in ``.hoodie/metadata``. Each of its
partitions is an index of the data table. A write completes in the metadata table first, under the
same instant, so its records do not count while it is pending in the data table.

Instants that begin with 14 zeros initialize partitions from the files that exist. A writer that
does not know the metadata table leaves it behind. Readers of Hudi do not notice that.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import chain

from mdt.errors import Corrupt, Missing
from mdt.hudi.file_names import HUDI
from mdt.hudi.log_file import COMMAND, TARGET_INSTANT_TIME
from mdt.hudi.read import table_properties
from mdt.hudi.read.file_slices import FileSlice
from mdt.hudi.read.instants import COMPACTION, InstantFile, Timeline
from mdt.hudi.read.loading import TableState, load_commit, load_timeline, state_of
from mdt.hudi.read.log_blocks import LogBlock, live_blocks, load_blocks
from mdt.hudi.read.table_properties import TableProperties
from mdt.hudi.timeline import COMMITS, COMPLETED
from mdt.limits import PROPERTIES_BYTES_MAX
from mdt.stores.storage import Storage

FOLDER = f"{HUDI}/metadata"
HINT = (
    f"delete the folder {FOLDER}: files are listed without it, and Hudi's next writer makes it anew"
)
_RESTORE = "restore"
_ROLLBACK = "rollback"
_CHANGES = COMMITS | {"clean", _ROLLBACK, _RESTORE}
"""Actions that add or remove data files, so that the metadata table must contain them."""
_LOG_COMPACTION = "logcompaction"
_COMPACTIONS = (COMPACTION, _LOG_COMPACTION)
_INITIAL = "0" * 14
"""The first digits of the instants that initialize partitions."""
_INSTANT_DIGITS = 17
"""In version 6, services of the metadata table append digits to the instant of a write."""
_FIRST_INITIALIZATION = "010"
"""The digits that the initialization of the first partition appends. Services append smaller ones.
"""
_RESTORED = "003"
"""The digits that a restore appends to the instants under which it adds files."""
_FILES = "files"
_END = "9" * _INSTANT_DIGITS
"""Later than all instants."""


@dataclass(frozen=True, slots=True)
class MetadataTable:
    """Hudi's metadata table.

    Attributes:
        table: Its properties, with the paths of its folders in the data table.
        timeline: Its active timeline.
    """

    table: TableProperties
    timeline: Timeline

    def _completed(self) -> dict[str, InstantFile]:
        return {file.time: file for file in self.timeline.files if file.state == COMPLETED}

    def missing_instants(self, data: Timeline) -> list[str]:
        """Return the completed instants of the data table that are not in the metadata table.

        Instants that are older than its timeline or its initialization are not expected there.

        Args:
            data: The timeline of the data table, loaded before this one.
        """
        known = self._completed().keys() | self._restores(data).keys()
        if self.table.layout != 1 and not self.unknown_instants(data):
            # In layout 2 only writes that this table has are rolled back here, and none is left.
            known |= {file.time for file in data.files if file.action == _ROLLBACK}
        initial = self._initial_time()
        missing = []
        for file in data.files:
            is_change = file.state == COMPLETED and file.action in _CHANGES
            if is_change and file.time not in known and file.time >= self.timeline.start:
                time = file.time if self.table.layout == 1 else file.completion
                if time > initial:
                    missing.append(file.time)
        return missing

    def problem(self, data: Timeline) -> str:
        """Return the reason why its indexes cannot be used with the timeline ``data``, or ""."""
        missing, unknown = self.missing_instants(data), self.unknown_instants(data)
        if missing:
            return f"Hudi's metadata table lacks the instants {', '.join(missing[:3])}"
        if unknown:
            return f"Hudi's metadata table has other instants: {', '.join(unknown[:3])}"
        return ""

    def _restores(self, data: Timeline) -> dict[str, list[str]]:
        """Return the restores of the data table that this table contains -> the instants of the
        writes to this table that belong to each.

        A restore first restores this table under an instant of its own, and then adds what a
        listing of files shows. Layout 1 does not store when it ended. It marks these additions with
        digits, and the next instant of the data table is later.
        """
        restores = {}
        for file in data.of_action(_RESTORE):
            end = file.completion
            if self.table.layout == 1:
                end = min(
                    (other.time for other in data.files if other.time > file.time), default=_END
                )
            during = [
                own
                for own in self._completed().values()
                if file.time < own.time and own.completion < end and self._may_restore(own)
            ]
            if any(own.action == _RESTORE for own in during):
                restores[file.time] = [own.time for own in during]
        return restores

    def _may_restore(self, own: InstantFile) -> bool:
        is_marked = own.time[_INSTANT_DIGITS:] == _RESTORED
        return self.table.layout != 1 or own.action == _RESTORE or is_marked

    def lost_instants(self, objects: Storage, data: Timeline) -> list[str]:
        """Return the missing instants without those that were completed when the names of all files
        were listed last.

        Readers do not rely on it: a write that was pending then may have been completed without the
        metadata table.

        Args:
            data: As in :meth:`missing_instants`.

        Raises Corrupt and Missing.
        """
        missing = self.missing_instants(data)
        until = self._listed_at(objects) if missing else ""
        times = {}
        for file in data.files:
            if file.state == COMPLETED:
                times[file.time] = file.time if self.table.layout == 1 else file.completion
        return [time for time in missing if times[time] > until]

    def _listed_at(self, objects: Storage) -> str:
        """Return the time at which the names of all files were listed last, "" if it is unknown.

        In layout 1 it is the instant of a write to the data table, with three more digits.
        """
        newest = ""
        for time, file in self._completed().items():
            listed_at = file.completion if time.startswith(_INITIAL) else ""
            if time[_INSTANT_DIGITS:] >= _FIRST_INITIALIZATION:
                listed_at = time[:_INSTANT_DIGITS]
            if listed_at > newest:
                partitions = {written.partition for written in load_commit(objects, file).files}
                if _FILES in partitions:
                    newest = listed_at
        return newest

    def _initial_time(self) -> str:
        """Return the time until which writes are contained because of the initialization.

        Layout 1 does not store when that was. A writer initializes the table and then commits, so
        the first commit is newer than all writes that are contained.
        """
        completed = self._completed()
        times = [file.completion for file in completed.values() if file.time.startswith(_INITIAL)]
        if times and self.table.layout == 1:
            times = [time for time in completed if not time.startswith(_INITIAL)]
        return min(times, default="")

    def unknown_instants(self, data: Timeline) -> list[str]:
        """Return completed writes that the data table does not have: they began after its timeline
        was loaded, or were rolled back without the metadata table.

        Args:
            data: As in :meth:`missing_instants`.
        """
        times = {file.time for file in data.files}
        times |= {file.time for file in self.timeline.files if file.action == _LOG_COMPACTION}
        times.update(chain.from_iterable(self._restores(data).values()))
        unknown = []
        for time, file in self._completed().items():
            is_write = file.action == "deltacommit" and not time.startswith(_INITIAL)
            if is_write and time >= data.start and not times & {time, time[:_INSTANT_DIGITS]}:
                unknown.append(time)
        return unknown

    def state(self, objects: Storage, partition: str) -> TableState:
        """Return the state of a partition. Its paths are relative to FOLDER.

        Raises Corrupt, and Missing if the partition has no files.
        """
        path = f"{FOLDER}/{partition}"
        names = {}
        for info in objects.list_dir(path):
            names[info.path.rpartition("/")[2]] = info.size
        state = state_of(objects, self.table, self.timeline, {partition: names})
        if not state.slices:
            raise Missing("Hudi's metadata table has no files", path=path, hint=HINT)
        return state


def load_metadata_table(objects: Storage) -> MetadataTable | None:
    """Return the metadata table of the table in ``objects``, or None if it has none.

    Raises Corrupt and Unsupported.
    """
    path = f"{FOLDER}/{table_properties.PATH}"
    try:
        data = objects.read_whole(path, PROPERTIES_BYTES_MAX)
    except Missing:
        return None
    table = table_properties.parse(data, path)
    table = replace(
        table,
        timeline_folder=f"{FOLDER}/{table.timeline_folder}",
        history_folder=f"{FOLDER}/{table.history_folder}",
    )
    return MetadataTable(table, load_timeline(objects, table))


def pending_instants(timeline: Timeline) -> set[str]:
    """Return the times of all instants that are not completed, also of those that write no data."""
    completed = {file.time for file in timeline.files if file.state == COMPLETED}
    return {file.time for file in timeline.files} - completed


def load_live_blocks(
    objects: Storage,
    state: TableState,
    file_slice: FileSlice,
    pending: Collection[str],
    *,
    all_known: bool = False,
) -> list[LogBlock]:
    """Return the blocks of a slice that count, in the order in which they are merged.

    Args:
        state: See :meth:`MetadataTable.state`.
        pending: The pending instants of the data table.
        all_known: Raise Corrupt for torn blocks, and for blocks of unknown instants.

    Raises Corrupt, Missing, and Unsupported.
    """
    blocks: list[LogBlock] = []
    for log in file_slice.logs:
        path = f"{FOLDER}/{file_slice.path(log)}"
        log_blocks = load_blocks(objects, path, log.size)
        if all_known and sum(block.block.length for block in log_blocks) != log.size:
            raise Corrupt("a log file has a torn block", path=path)
        blocks += log_blocks
    if all_known:
        _require_known(blocks, state.timeline, pending)
    return live_blocks(
        blocks, lambda time: state.timeline.is_completed(time) and time not in pending
    )


def _require_known(
    blocks: Collection[LogBlock], timeline: Timeline, pending: Collection[str]
) -> None:
    """Raise Corrupt for a block whose instant is not completed, pending or rolled back."""
    headers = [block.block.header for block in blocks if block.block.kind == COMMAND]
    rolled_back = {header.get(TARGET_INSTANT_TIME) for header in headers}
    for block in blocks:
        time = block.instant
        is_known = timeline.is_completed(time) or time in timeline.pending or time in pending
        if block.block.kind != COMMAND and not is_known and time not in rolled_back:
            raise Corrupt(
                f"a log block has the unknown instant {time[:60]!r}",
                path=block.path,
                offset=block.block.offset,
            )


def require_completed_base(state: TableState, file_slice: FileSlice, data: Timeline) -> None:
    """Raise Corrupt if the base file of a slice may contain writes that are pending in the data
    table.

    Compactions do not move keys to other file groups, so they do not matter.
    """
    if file_slice.base is None:
        return
    end = state.timeline.completion(file_slice.base.instant) or ""
    for time, file in data.pending.items():
        completion = state.timeline.completion(time)
        if file.action not in _COMPACTIONS and completion is not None and completion < end:
            path = f"{FOLDER}/{file_slice.path(file_slice.base)}"
            raise Corrupt(f"it may contain the pending instant {time}", path=path)
