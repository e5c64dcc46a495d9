"""Hudi's markers: which data files a transaction may have written.

If a transaction dies, the next writer of Hudi's rolls its pending instant back, and deletes the
files that its markers name.  Without markers the files stay, and count as committed as soon as
Hudi's archiving has moved the beginning of the timeline past the instant.

There are two forms.  On a local disk an empty file for each data file: it needs no flush, since it
has no content.  On an object store a file ``MARKERS…`` for all files that are known together, with
a line for each, and ``MARKERS.type``, which says so.

A heartbeat stands beside them.  Hudi's writers that roll back failed writes before they write need
it where a later instant has been completed; those that do so after they have written take a
transaction for alive that has a young one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mdt.hudi.layout import Layout
from mdt.metadata.files import paths
from mdt.stores.storage import Storage

_TYPE = b"TIMELINE_SERVER_BASED"
"""Hudi's word for markers in lists."""
_AFTER = "~"
"""Sorts behind every character of an instant."""


def begun(storage: Storage, instant: str) -> Sequence[tuple[str, bytes]]:
    """Return (path, content) of what stands before the pending instants of a transaction that
    writes data files.
    """
    heartbeat = (paths.heartbeat(instant), b"")
    if not storage.is_remote:
        return [heartbeat]
    return [heartbeat, (f"{paths.markers_of(instant)}/MARKERS.type", _TYPE)]


def put(storage: Storage, layout: Layout, instant: str, name: str, files: Sequence[str]) -> None:
    """Put the markers of data files.  ``name``: unique among the calls of a transaction; ``files``:
    their paths.
    """
    folder, markers = paths.markers_of(instant), list(map(layout.marker, files))
    if storage.is_remote:
        storage.put_passing(f"{folder}/MARKERS{name}", "\n".join([*markers, ""]).encode())
        return
    storage.together(
        *(partial(storage.put_passing, f"{folder}/{marker}", b"") for marker in markers)
    )


def standing(storage: Storage, instant: str) -> Sequence[str]:
    """Return the paths of the markers of a transaction."""
    return [info.path for info in storage.list(paths.markers_of(instant))]


def end(storage: Storage, instant: str, found: Sequence[str]) -> None:
    """Remove the markers ``found``, the heartbeat, and at last the claim of a transaction that has
    ended.
    """
    storage.delete_many([*found, paths.heartbeat(instant), paths.pending(instant)])
    drop_folders(storage, found)


def drop_folders(storage: Storage, found: Sequence[str]) -> None:
    """Remove the directories in which the objects ``found`` stood, as far as these were markers,
    and nothing else stands there.
    """
    top, folders = paths.markers_dir(), set[str]()
    for path in found:
        folder = path.rpartition("/")[0]
        while folder.startswith(f"{top}/"):
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    for folder in sorted(folders, reverse=True):  # those inside come first
        parent, _, name = folder.rpartition("/")
        storage.drop_directories(parent, name + _AFTER)
