"""The rollback that a writer of Hudi runs when it begins, of transactions whose writers seem to
have crashed. Observed in experiments with Hudi 1.2.
"""

from __future__ import annotations

from mdt.hudi import timeline
from mdt.hudi.layout import LAYOUTS, Layout
from mdt.hudi.timeline import Instant
from mdt.metadata.files import paths
from mdt.stores.storage import Storage

LATER = "20990101000000000"


def data_files(storage: Storage) -> set[str]:
    """Return the paths of all data files of a table, of every writer."""
    listed = [info.path for info in storage.list("")]
    return {
        path
        for path in listed
        if not paths.is_hudis(path) and not path.endswith(paths.partition_metadata(""))
    }


def layout_of(storage: Storage) -> Layout:
    """Return the layout whose directory has instants."""
    return LAYOUTS[9 if storage.list_dir(LAYOUTS[9].timeline) else 6]


def named_by_markers(storage: Storage, instant: str) -> set[str]:
    """Return the paths of the data files that the markers of an instant name, in either form."""
    folder = f"{paths.markers_of(instant)}/"
    markers = [info.path.removeprefix(folder) for info in storage.list(folder)]
    if "MARKERS.type" in markers:
        assert storage.read(f"{folder}MARKERS.type") == b"TIMELINE_SERVER_BASED"
        lists = [name for name in markers if name.startswith("MARKERS") and name != "MARKERS.type"]
        assert len(lists) == len(markers) - 1, markers
        markers = [
            line for name in lists for line in storage.read(folder + name).decode().splitlines()
        ]
    data_paths = set()
    for marker in markers:
        path, _ = marker.split(".marker.")
        assert marker == layout_of(storage).marker(path)
        data_paths.add(path)
    return data_paths


def roll_back(storage: Storage) -> list[str]:
    """Roll back all pending instants and return them. Hudi ends the blocks of log files with a
    rollback block. Here log files are deleted.
    """
    layout = layout_of(storage)
    instants = [
        instant
        for info in storage.list(layout.timeline)
        if (instant := layout.instant_at(info.path))
    ]
    instants = [
        instant
        for instant in instants
        if instant.action in ("commit", "deltacommit", "replacecommit")
    ]
    ended = {instant.time for instant in instants if instant.state == timeline.COMPLETED}
    doomed = sorted(
        {instant.time for instant in instants if instant.state == timeline.INFLIGHT} - ended
    )
    for time in doomed:
        storage.delete_many(named_by_markers(storage, time))
        pending = [
            info.path
            for info in storage.list_dir(layout.timeline)
            if info.path.rpartition("/")[2][:17] == time
        ]
        storage.delete_many(pending)
    if doomed:
        rollback = Instant(LATER, "rollback", timeline.COMPLETED, LATER)
        storage.create(layout.path_of(rollback), b"rolled back")
    return doomed
