"""What a writer of Hudi's does, when it begins, to transactions whose writers it takes for dead:
found in experiments with Hudi 1.2.
"""

from __future__ import annotations

from mdt.hudi import timeline
from mdt.hudi.layout import LAYOUTS, Layout
from mdt.hudi.timeline import Instant
from mdt.metadata.files import paths
from mdt.stores.storage import Storage

LATER = "20990101000000000"


def data_files(storage: Storage) -> set[str]:
    """Return the paths of the data files that stand in a table, of whomever."""
    found = [info.path for info in storage.list("")]
    return {
        path
        for path in found
        if not paths.is_hudis(path) and not path.endswith(paths.partition_metadata(""))
    }


def layout_of(storage: Storage) -> Layout:
    """Return the layout whose directory has instants."""
    return LAYOUTS[9 if storage.list_dir(LAYOUTS[9].timeline) else 6]


def named_by_markers(storage: Storage, instant: str) -> set[str]:
    """Return the paths of the data files that the markers of an instant name, in either form."""
    folder = f"{paths.markers_of(instant)}/"
    found = [info.path.removeprefix(folder) for info in storage.list(folder)]
    if "MARKERS.type" in found:
        assert storage.read(f"{folder}MARKERS.type") == b"TIMELINE_SERVER_BASED"
        lists = [name for name in found if name.startswith("MARKERS") and name != "MARKERS.type"]
        assert len(lists) == len(found) - 1, found
        found = [
            line for name in lists for line in storage.read(folder + name).decode().splitlines()
        ]
    named = set()
    for marker in found:
        path, _ = marker.split(".marker.")
        assert marker == layout_of(storage).marker(path)
        named.add(path)
    return named


def roll_back(storage: Storage) -> list[str]:
    """Roll back what is pending; return the instants.  Of log files Hudi ends the blocks; here they
    are deleted.
    """
    layout = layout_of(storage)
    found = [
        instant
        for info in storage.list(layout.timeline)
        if (instant := layout.instant_at(info.path))
    ]
    found = [
        instant for instant in found if instant.action in ("commit", "deltacommit", "replacecommit")
    ]
    ended = {instant.time for instant in found if instant.state == timeline.COMPLETED}
    doomed = sorted(
        {instant.time for instant in found if instant.state == timeline.INFLIGHT} - ended
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
        done = Instant(LATER, "rollback", timeline.COMPLETED, LATER)
        storage.create(layout.path_of(done), b"rolled back")
    return doomed
