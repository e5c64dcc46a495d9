"""Hudi's markers: the names of the data files that a transaction may write.

If a transaction dies, the next Hudi writer rolls back its pending instant and deletes the files
named by its markers. Without markers the files would stay. They would count as committed once
Hudi's archiving has moved the start of the timeline past the instant.

Markers have two forms. On a local disk each data file has an empty marker file, which needs no
flush because it has no content. On an object store a file ``MARKERS…`` lists all files that are
known together, a line each, and ``MARKERS.type`` names this form.

A transaction also has a heartbeat. Hudi writers that roll back failed writes before their own write
look for it if a later instant is completed. Hudi writers that roll back after their own write
consider a transaction with a young heartbeat alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mdt.hudi.layout import Layout
from mdt.metadata.files import paths
from mdt.stores.storage import Storage

_TYPE = b"TIMELINE_SERVER_BASED"
"""Hudi's name for markers in lists."""
_AFTER = "~"
"""Sorts after every character of an instant."""


def heartbeat_files(storage: Storage, instant: str) -> Sequence[tuple[str, bytes]]:
    """Return (path, content) of the files to put before the pending instant of a writing
    transaction.
    """
    heartbeat = (paths.heartbeat(instant), b"")
    if not storage.is_remote:
        return [heartbeat]
    return [heartbeat, (f"{paths.markers_of(instant)}/MARKERS.type", _TYPE)]


def put(storage: Storage, layout: Layout, instant: str, name: str, files: Sequence[str]) -> None:
    """Put the markers of data files.

    Args:
        name: Suffix of the list file, unique among the calls of a transaction.
        files: Paths of the data files.
    """
    folder, markers = paths.markers_of(instant), list(map(layout.marker, files))
    if storage.is_remote:
        storage.put_passing(f"{folder}/MARKERS{name}", "\n".join([*markers, ""]).encode())
        return
    storage.together(
        *(partial(storage.put_passing, f"{folder}/{marker}", b"") for marker in markers)
    )


def marker_paths(storage: Storage, instant: str) -> Sequence[str]:
    """Return the paths of a transaction's markers."""
    return [info.path for info in storage.list(paths.markers_of(instant))]


def remove(storage: Storage, instant: str, files: Sequence[str] | None = None) -> None:
    """Remove the markers, the heartbeat, and finally the claim of an ended transaction.

    Args:
        files: Paths of the markers, if the caller has listed them.
    """
    files = marker_paths(storage, instant) if files is None else files
    storage.delete_many([*files, paths.heartbeat(instant), paths.pending(instant)])
    drop_folders(storage, files)


def drop_folders(storage: Storage, deleted: Sequence[str]) -> None:
    """Remove the marker directories of the ``deleted`` objects if they are empty.

    An empty directory of another instant may be one that a Hudi writer has just made.
    """
    top, folders = paths.MARKERS_DIR, set[str]()
    for path in deleted:
        folder = path.rpartition("/")[0]
        while folder.startswith(f"{top}/"):
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    for folder in sorted(folders, reverse=True):  # children first
        parent, _, name = folder.rpartition("/")
        storage.drop_directories(parent, name + _AFTER, start=name)
