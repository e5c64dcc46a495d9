"""Reads the parts of a table's state from its storage: properties, timeline, files.

The order of the calls matters, because writers may be active: first the timeline, then the files.
Files that are newer than the timeline then belong to unknown instants and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mdt.errors import Corrupt
from mdt.hudi.file_names import HUDI
from mdt.hudi.read import commit_metadata, table_properties
from mdt.hudi.read.commit_metadata import CommitContent
from mdt.hudi.read.file_slices import (
    Files,
    FileSlice,
    group_files,
    instants_to_look_up,
    newest_slices,
)
from mdt.hudi.read.history import completion_times
from mdt.hudi.read.instants import (
    COMPACTION,
    REPLACE,
    InstantFile,
    Timeline,
    parse_name,
    timeline_of,
)
from mdt.hudi.read.objects import read_listed
from mdt.hudi.read.service_metadata import GroupId, decode_compaction_plan
from mdt.hudi.read.table_properties import TableProperties
from mdt.hudi.timeline import REQUESTED
from mdt.limits import INSTANT_BYTES_MAX, PROPERTIES_BYTES_MAX
from mdt.stores.storage import Storage

_MARKER = ".hoodie_partition_metadata"
"""Name of the file that makes a folder a partition. Its extension depends on the base format."""


def load_properties(objects: Storage) -> TableProperties:
    """Return the properties of a table.

    Raises Missing if there is no table, Corrupt, and Unsupported.
    """
    return table_properties.parse(objects.read_whole(table_properties.PATH, PROPERTIES_BYTES_MAX))


def load_timeline(objects: Storage, table: TableProperties) -> Timeline:
    """Return the active timeline of a table. Other files in its folder are left out."""
    files = []
    for info in objects.list_dir(table.timeline_folder):
        file = parse_name(info.path.rpartition("/")[2], table.layout)
        if file is not None:
            files.append(replace(file, path=info.path, size=info.size))
    return timeline_of(files)


def load_body(objects: Storage, file: InstantFile) -> bytes:
    """Return the content of an instant.

    Raises Corrupt if it is too large, and Missing if it was archived or rolled back meanwhile.
    """
    return read_listed(objects, file.path, file.size, INSTANT_BYTES_MAX)


def load_commit(objects: Storage, file: InstantFile, *, with_files: bool = True) -> CommitContent:
    """Return the content of a completed write. Raises Corrupt and Missing.

    Args:
        with_files: False leaves the new files out.
    """
    return commit_metadata.decode(load_body(objects, file), file.path, with_files=with_files)


def load_replaced_groups(objects: Storage, timeline: Timeline) -> dict[GroupId, str]:
    """Return the replaced file groups, with the instant that replaced each of them first.

    Raises Corrupt and Missing.
    """
    replaced: dict[GroupId, str] = {}
    for file in timeline.of_action(REPLACE):
        for partition, file_ids in load_commit(objects, file, with_files=False).replaced.items():
            for file_id in file_ids:
                replaced.setdefault((partition, file_id), file.time)
    return replaced


def load_pending_compactions(objects: Storage, timeline: Timeline) -> dict[GroupId, str]:
    """Return the file groups with a pending compaction, and its instant.

    Raises Corrupt, also for a compaction without a plan, and Missing.
    """
    pending = {}
    for file in timeline.pending.values():
        if file.action != COMPACTION:
            continue
        if file.state != REQUESTED:
            raise Corrupt("a compaction has no plan", path=file.path)
        for group in decode_compaction_plan(load_body(objects, file), file.path):
            pending[group] = file.time
    return pending


def load_files(objects: Storage) -> dict[str, dict[str, int]]:
    """Return the names and sizes of the files in every partition, from a listing.

    A partition is a folder with Hudi's marker. If the table's own folder is one, it is the only
    one.
    """
    files: dict[str, dict[str, int]] = {"": {}}
    listed = objects.list_dir("")
    if not any(info.path.startswith(_MARKER) for info in listed):
        listed = []
        for child in objects.children(""):
            if child != HUDI:
                listed += objects.list(child)
    for info in listed:
        partition, _, name = info.path.rpartition("/")
        files.setdefault(partition, {})[name] = info.size
    return {path: names for path, names in files.items() if _is_partition(names)}


def _is_partition(names: Iterable[str]) -> bool:
    return any(name.startswith(_MARKER) for name in names)


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of a table at one moment.

    Attributes:
        timeline: Also tells readers of log files which blocks are completed.
        slices: The newest slice of each file group, sorted by partition path and file id.
        at: The instant of the state, inclusive. "" for the newest.
    """

    table: TableProperties
    timeline: Timeline
    slices: list[FileSlice]
    at: str = ""


def state_of(
    objects: Storage, table: TableProperties, timeline: Timeline, files: Files, at: str = ""
) -> TableState:
    """Return the state of a table at its ``timeline``.

    Args:
        files: Files of the partitions to read, listed after the timeline.
        at: Return the slices as of this instant, inclusive.

    Raises Corrupt and Missing.
    """
    compactions = load_pending_compactions(objects, timeline)
    replaced = load_replaced_groups(objects, timeline)
    groups = group_files(files, table)
    times = instants_to_look_up(groups, timeline, table)
    history = completion_times(objects, table.history_folder, times)
    timeline = timeline.with_history(history)
    slices = newest_slices(
        groups, timeline, table, compactions=compactions, replaced=replaced, at=at
    )
    return TableState(table, timeline, slices, at)
