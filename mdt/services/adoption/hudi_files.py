"""The files of other writers that a cleaning must keep, and those that it must delete."""

from __future__ import annotations

from dataclasses import dataclass

from mdt.hudi.read.file_slices import group_files
from mdt.hudi.read.instants import SAVEPOINT, Timeline, timeline_of
from mdt.hudi.read.loading import load_body, load_replaced_groups
from mdt.hudi.read.service_metadata import decode_savepoint
from mdt.hudi.read.table_properties import TableProperties
from mdt.hudi.timeline import COMPLETED
from mdt.metadata.files import paths
from mdt.metadata.log.trusted_names import is_partition
from mdt.stores.storage import Storage

NO_INSTANT = "A"
"""Sorts after every instant."""


@dataclass(frozen=True, slots=True)
class ReplacedFile:
    """A data file of a file group that was replaced.

    Attributes:
        path: Path in the table.
        size: Size in bytes.
        replaced_at: The instant that replaced the file group.
    """

    path: str
    size: int
    replaced_at: str


def saved_paths(storage: Storage, active: Timeline) -> frozenset[str]:
    """Return the paths of the data files of all savepoints on the timeline ``active``.

    Raises Corrupt, and Missing if a savepoint was removed meanwhile.
    """
    saved = set[str]()
    for file in active.of_action(SAVEPOINT):
        for partition, names in decode_savepoint(load_body(storage, file), file.path).items():
            saved.update(paths.data_file(partition, name) for name in names)
    return frozenset(saved)


def replaced_files(
    storage: Storage, table: TableProperties, active: Timeline, last: str
) -> list[ReplacedFile]:
    """Return the data files that exist of file groups that old instants replaced: those up to
    ``last``, and before the first pending instant and the first savepoint.

    Args:
        active: The timeline.

    Raises Corrupt, and Missing if an instant was archived meanwhile.
    """
    end = _first_held(active)
    old = timeline_of(file for file in active.files if file.time <= last and file.time < end)
    replaced = load_replaced_groups(storage, old)
    listed = {}
    for partition in sorted(filter(is_partition, {partition for partition, _ in replaced})):
        listed[partition] = {
            info.path.rpartition("/")[2]: info.size for info in storage.list_dir(partition)
        }
    files = []
    for group_id, group in group_files(listed, table).items():
        if group_id in replaced:
            for file in (*group.bases.values(), *(file for _, file in group.logs)):
                path = paths.data_file(group_id[0], file.name)
                files.append(ReplacedFile(path, file.size, replaced[group_id]))
    return files


def first_needed_instant(
    storage: Storage, table: TableProperties, active: Timeline, last: str
) -> str:
    """Return the oldest instant that has to stay on the active timeline for other writers.

    It is pending, a savepoint, or has replaced file groups whose files still exist, which Hudi's
    readers would see again. Returns a text that sorts after every instant if there is none.

    Args:
        active: The timeline.
        last: Replacing instants after this one are not looked at.

    Raises Corrupt, and Missing if an instant was archived meanwhile.
    """
    replaced = (file.replaced_at for file in replaced_files(storage, table, active, last))
    return min([_first_held(active), *replaced])


def _first_held(active: Timeline) -> str:
    begun, completed, saved = set[str](), set[str](), {NO_INSTANT}
    for file in active.files:
        if file.action == SAVEPOINT:
            saved.add(file.time)
        elif file.state == COMPLETED:
            completed.add(file.time)
        else:
            begun.add(file.time)
    return min(saved | (begun - completed))
