"""Hudi's archive of instants, to which old instants are added before they leave the timeline."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mdt.hudi.layout import Layout
from mdt.hudi.timeline import InstantContent
from mdt.limits import FRAME_BYTES_MAX
from mdt.stores.storage import Storage


def add(storage: Storage, layout: Layout, instants: Sequence[InstantContent]) -> bool:
    """Add completed instants, oldest first, to the archive. Can be repeated.

    Returns False if another process has added some at the same time. Theirs may be the same.

    Raises Corrupt if an instant or the archive cannot be read.
    """
    read = partial(storage.read_whole, bytes_max=FRAME_BYTES_MAX)
    archive = layout.archived(_paths(storage, layout), read, instants)
    for path, content in archive.files:
        storage.replace(path, content)
    if not storage.put_if_absent(*archive.commit):
        return False
    _move_pointer(storage, layout)
    storage.delete_many(archive.outdated)
    return True


def _move_pointer(storage: Storage, layout: Layout) -> None:
    """Point to the newest part of the archive.

    Processes that add to it at the same time all do this. The last one to write finds the newest.
    """
    stored = None
    while True:
        pointer = layout.archive_pointer(_paths(storage, layout))
        if pointer is None or pointer == stored:
            return
        storage.replace(*pointer)
        stored = pointer


def _paths(storage: Storage, layout: Layout) -> list[str]:
    return [info.path for info in storage.list_dir(layout.archive)]
