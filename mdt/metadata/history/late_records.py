"""Commit records that exist but are not visible yet.

Network file systems may cache that a name does not exist, and show a new file late.
"""

from __future__ import annotations

from collections.abc import Callable

from mdt.limits import LATE_LOOK_SECONDS
from mdt.metadata.history.foreign_writers import TimelineListing, Watch
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.snapshot.apply import apply
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.stores.storage import Storage

Load = Callable[[int], CommitRecord | None]
"""Reads a commit record, or returns None if there is none."""


def late_record(storage: Storage, load: Load, seq: int) -> CommitRecord | None:
    """Return record ``seq``, which exists, or None if it stays invisible after
    LATE_LOOK_SECONDS.
    """
    for seconds in LATE_LOOK_SECONDS:
        record = load(seq)
        if record is not None:
            return record
        storage.sleep(seconds)
    return load(seq)


def with_late_records(
    watch: Watch, listing: TimelineListing | None, snapshot: Snapshot, load: Load
) -> Snapshot:
    """Apply the records of commits on Hudi's timeline to ``snapshot``, as far as they become
    visible.
    """
    while listing is not None and watch.is_late(listing, snapshot):
        record = late_record(watch.storage, load, snapshot.seq + 1)
        if record is None:
            break
        snapshot = apply(snapshot, record)
    return snapshot
