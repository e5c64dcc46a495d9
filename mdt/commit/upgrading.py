"""Hudi's files of a table that was upgraded to a newer table version.

The commit record of the upgrade changes the version, and everything here follows from it. Until the
properties are replaced, readers see the old timeline; from then on they see the new one. Every step
can be repeated after a crash, and be done by several processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from mdt.commit import hudi_archive
from mdt.commit.hudi_locks import locked
from mdt.hudi import properties
from mdt.hudi.layout import LAYOUTS, Layout, layout_of
from mdt.hudi.read.metadata_state import FOLDER
from mdt.hudi.timeline import COMMITS, COMPLETED, UNARCHIVED, Instant, InstantContent
from mdt.metadata.files import paths
from mdt.metadata.history.foreign_writers import BACKUP, read_properties
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.log.trusted_names import UPGRADE
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.stores.storage import Storage

_OLD = LAYOUTS[6]
_OF_METADATA_TABLE = (properties.METADATA_PARTITIONS, properties.PENDING_METADATA_PARTITIONS)
_NO_CONTENT = b'{"partitionToWriteStats":{},"operationType":"UNKNOWN"}'
"""Of an archived commit, whose statistics are only in the archive."""


def finish_upgrade(metadata: Metadata, record: CommitRecord, newest: Snapshot) -> None:
    """Convert Hudi's timeline and properties, if ``record`` is an upgrade. Removes the old ones."""
    if record.action == UPGRADE:
        _convert(metadata, newest)


def upgrade_again(metadata: Metadata) -> None:
    """Convert the properties if a writer that had paused has put back those from before an upgrade
    and has died.
    """
    newest, stored = metadata.cached_snapshot(), metadata.watch.properties or {}
    if newest.definition.upgraded_at and stored.get(properties.VERSION) == str(_OLD.version):
        with locked(metadata, newest.definition):
            _convert(metadata, newest)


def replace_properties(metadata: Metadata, changed: Mapping[str, str]) -> None:
    """Replace the properties of a table in one step, and remove a backup that Hudi has left.

    A process that paused may replace those of a table that was upgraded meanwhile, so it finishes
    the upgrade again.
    """
    _replace(metadata.storage, changed)
    newest = metadata.newest(watched=False)
    if newest.definition.upgraded_at and changed.get(properties.VERSION) == str(_OLD.version):
        _convert(metadata, newest)


def without_metadata_table(stored: Mapping[str, str]) -> dict[str, str]:
    """Return properties without those of Hudi's metadata table.

    >>> without_metadata_table({"hoodie.table.metadata.partitions": "files", "a": "b"})
    {'a': 'b'}
    """
    return {name: value for name, value in stored.items() if name not in _OF_METADATA_TABLE}


def _replace(storage: Storage, changed: Mapping[str, str]) -> None:
    storage.delete(paths.PROPERTIES_CHECKSUM)
    storage.replace(paths.PROPERTIES, properties.encode(changed))
    storage.delete(BACKUP)


def _convert(metadata: Metadata, newest: Snapshot) -> None:
    """Convert the timeline, then the properties. The next commit makes the metadata table anew."""
    storage, layout = metadata.storage, layout_of(newest.definition)
    instants = []
    for info in storage.list_dir(_OLD.timeline):
        instant = _OLD.instant_at(info.path)
        if instant is not None:
            instants.append((instant, info.path))
    contents = storage.each(partial(storage.read_if_exists, path) for _, path in instants)
    for (instant, _), body in zip(instants, contents, strict=True):
        # without a body, another process has finished
        if body is not None and instant.action not in UNARCHIVED:
            storage.put_if_absent(*layout.upgraded(instant, body))
    _move_archive(metadata, newest, layout)
    stored = read_properties(storage)
    if stored is not None and stored.get(properties.VERSION) == str(_OLD.version):
        remaining = without_metadata_table(stored)
        if len(remaining) < len(stored):
            _replace(storage, remaining)
            storage.delete_many([info.path for info in storage.list(FOLDER)])
        _replace(storage, layout.upgraded_properties(remaining, newest.definition))
    storage.delete_many([BACKUP, *(path for _, path in instants)])
    storage.delete_many([info.path for info in storage.list_dir(_OLD.archive)])


def _move_archive(metadata: Metadata, newest: Snapshot, layout: Layout) -> None:
    """Put the times of archived commits into the new history.

    Log files have the instants of base files in their names, and readers look up when these were
    completed.
    """
    storage = metadata.storage
    if not storage.list_dir(_OLD.archive):
        return
    active = {
        instant.time
        for info in storage.list_dir(layout.timeline)
        if (instant := layout.instant_at(info.path)) is not None
    }
    history = metadata.history(until=newest).slice(0, newest.retention.first)
    entries = []
    for row in history.select(["instant", "action"]).to_pylist():
        action = {"create": newest.definition.commit_action, "compaction": "commit"}.get(
            row["action"], row["action"]
        )
        if action in COMMITS and row["instant"] not in active:
            instant = Instant(row["instant"], action, COMPLETED, row["instant"])
            entries.append(InstantContent(instant, layout.upgraded(instant, _NO_CONTENT)[1]))
    if entries:
        hudi_archive.add(storage, layout, sorted(entries, key=lambda entry: entry.instant.time))
