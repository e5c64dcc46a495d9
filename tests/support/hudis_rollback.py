"""What a writer of Hudi's does, when it begins, to transactions whose writers it takes for dead:
found in experiments with Hudi 1.2.
"""

from __future__ import annotations

from mdt.hudi import timeline
from mdt.hudi.layout import LAYOUTS
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
        path, kind = marker.split(".marker.")
        assert kind == ("APPEND" if ".log." in path else "CREATE")
        named.add(path)
    return named


def roll_back(storage: Storage) -> list[str]:
    """Roll back what is pending; return the instants.  Of log files Hudi ends the blocks; here they
    are deleted.
    """
    layout = LAYOUTS[6]
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
        storage.create(f"{layout.timeline}/{LATER}.rollback", b"rolled back")
    return doomed
