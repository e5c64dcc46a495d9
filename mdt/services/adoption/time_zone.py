"""The time zone of the instants in a table that Hudi's writers share.

By default, each writer of Hudi takes its instants from the clock of its own time zone
(``hoodie.table.timeline.timezone=LOCAL``). Those of mdt are in UTC. If Hudi's are behind UTC, its
next commit has an older instant than ours, and readers of both do not see its rows where they
replace ours. Such a table gets the time zone UTC before our first commit, which Hudi's writers
follow from their next commit on.

If Hudi's instants are ahead of UTC, ours follow its newest one, and its next one follows ours.
"""

from __future__ import annotations

from mdt import logs
from mdt.commit import hudi_locks
from mdt.commit.shared_metadata import lost_partitions
from mdt.commit.upgrading import replace_properties
from mdt.hudi import timeline
from mdt.hudi.properties import TIME_ZONE
from mdt.hudi.read.loading import load_properties, load_timeline
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.stores.storage import Storage


def may_be_behind(metadata: Metadata, snapshot: Snapshot) -> bool:
    """Return True if the instants of Hudi's next commits may be older than ours."""
    if not snapshot.is_shared or metadata.watch.properties is None:
        return False
    if metadata.watch.properties.get(TIME_ZONE, "").upper() == "UTC":
        return False
    return max(snapshot.imports.instants, default="") <= _now(metadata.storage)


def use_utc(metadata: Metadata, snapshot: Snapshot) -> None:
    """Set the time zone of the table to UTC, unless an instant is ahead of UTC. A writer of Hudi
    that is at work has its instant, and may complete it.

    Does nothing if Hudi has meanwhile made a record index with times of another zone. The next
    write removes it, and sets the time zone.

    Raises Corrupt if the properties cannot be read, Conflict if another writer holds the lock for
    too long, and Unavailable.
    """
    storage = metadata.storage
    with hudi_locks.locked(metadata, snapshot.definition):
        table = load_properties(storage)
        files = load_timeline(storage, table).files
        newest = max((max(file.time, file.completion) for file in files), default="")
        if newest > _now(storage) or lost_partitions(metadata, snapshot):
            return
        replace_properties(metadata, {**table.stored, TIME_ZONE: "UTC"})
    logs.METADATA.warning(
        "%s: set %s=UTC for all writers, because the next instants of Hudi in local time could be"
        " older than ours",
        storage.url,
        TIME_ZONE,
    )


def _now(storage: Storage) -> str:
    return timeline.instant_text(storage.now_us())
