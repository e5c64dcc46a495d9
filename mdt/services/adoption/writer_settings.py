"""Settings that the writers of a shared table must have in common, in ``hoodie.properties``. Hudi's
writers follow them from their next commit on.

By default, each writer of Hudi takes its instants from the clock of its own time zone
(``hoodie.table.timeline.timezone=LOCAL``). Those of mdt are in UTC. If Hudi's are behind UTC, its
next commit has an older instant than ours, and readers of both do not see its rows where they
replace ours. Such a table gets the time zone UTC before our first commit. If Hudi's instants are
ahead of UTC, ours follow its newest one, and its next one follows ours.

By default, Hudi does not encode partition values in paths. Its row for ``L'Aquila`` and ours would
be in two directories, and the key would have two rows. Such a table gets
``hoodie.datasource.write.partitionpath.urlencode=true`` before our first commit.
"""

from __future__ import annotations

import pyarrow as pa

from mdt import logs
from mdt.commit import hudi_locks
from mdt.commit.shared_metadata import lost_partitions
from mdt.commit.upgrading import replace_properties
from mdt.hudi import timeline
from mdt.hudi.properties import ENCODES_PATHS, TIME_ZONE
from mdt.hudi.read.loading import load_properties, load_timeline
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.definition import TableDefinition
from mdt.stores.storage import Storage


def may_differ(metadata: Metadata, snapshot: Snapshot) -> bool:
    """Return True if the instants of Hudi's next commits may be older than ours, or if their
    partition paths may differ from ours.
    """
    stored = metadata.watch.properties
    if not snapshot.is_shared or stored is None:
        return False
    if stored.get(ENCODES_PATHS, "").lower() != "true" and _may_encode(snapshot.definition):
        return True
    if stored.get(TIME_ZONE, "").upper() == "UTC":
        return False
    return max(snapshot.imports.instants, default="") <= _now(metadata.storage)


def unify(metadata: Metadata, snapshot: Snapshot) -> None:
    """Let all writers encode partition paths, and set the time zone of the table to UTC, unless an
    instant is ahead of UTC. A writer of Hudi that is at work has its instant, and may complete it.

    Does not set the time zone if Hudi has meanwhile made a record index with times of another zone.
    The next write removes it, and sets the time zone.

    Raises Corrupt if the properties cannot be read, Conflict if another writer holds the lock for
    too long, and Unavailable.
    """
    storage = metadata.storage
    chosen: dict[str, str] = {}
    with hudi_locks.locked(metadata, snapshot.definition):
        table = load_properties(storage)
        if _may_encode(snapshot.definition):
            chosen[ENCODES_PATHS] = "true"
        files = load_timeline(storage, table).files
        newest = max((max(file.time, file.completion) for file in files), default="")
        if newest <= _now(storage) and not lost_partitions(metadata, snapshot):
            chosen[TIME_ZONE] = "UTC"
        chosen = {name: text for name, text in chosen.items() if table.stored.get(name) != text}
        if not chosen:
            return
        replace_properties(metadata, {**table.stored, **chosen})
    logs.METADATA.warning(
        "%s: set %s for all writers, because Hudi's next instants could be older than ours, or its"
        " partition paths differ",
        storage.url,
        ", ".join(f"{name}={text}" for name, text in chosen.items()),
    )


def _may_encode(definition: TableDefinition) -> bool:
    """Return True if partition values can have characters that paths encode."""
    types = (definition.schema.field(name).type for name in definition.partition_by)
    return definition.time_path is None and any(pa.types.is_string(type) for type in types)


def _now(storage: Storage) -> str:
    return timeline.instant_text(storage.now_us())
