"""Hudi's files of a table that was upgraded to a newer table version.

The commit record of the upgrade changes the version, and everything here follows from it. Until the
properties are replaced, readers see the old timeline; from then on they see the new one. Every step
can be repeated after a crash, and be done by several processes.
"""

from __future__ import annotations

from functools import partial

from mdt.commit import hudi_archive
from mdt.commit.hudi_metadata import remove_metadata_table, replace_properties
from mdt.hudi import properties
from mdt.hudi.layout import LAYOUTS, Layout, layout_of
from mdt.hudi.read.instants import COMMITS
from mdt.hudi.timeline import COMPLETED, Instant, InstantContent
from mdt.metadata.history.foreign_writers import BACKUP, read_properties
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.log.trusted_names import UPGRADE
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot

_OLD = LAYOUTS[6]
_NO_CONTENT = b'{"partitionToWriteStats":{},"operationType":"UNKNOWN"}'
"""Of an archived commit, whose statistics are only in the archive."""


def finish_upgrade(metadata: Metadata, record: CommitRecord, newest: Snapshot) -> None:
    """Convert Hudi's timeline and properties, if ``record`` is an upgrade. Removes the old ones."""
    if record.action != UPGRADE:
        return
    storage, layout = metadata.storage, layout_of(newest.definition)
    instants = []
    for info in storage.list_dir(_OLD.timeline):
        instant = _OLD.instant_at(info.path)
        if instant is not None:
            instants.append((instant, info.path))
    contents = storage.each(partial(storage.read_if_exists, path) for _, path in instants)
    for (instant, _), body in zip(instants, contents, strict=True):
        if body is not None:  # otherwise another process has finished
            storage.put_if_absent(*layout.upgraded(instant, body))
    _move_archive(metadata, newest, layout)
    stored = read_properties(storage)
    if stored is not None and stored.get(properties.VERSION) == str(_OLD.version):
        remove_metadata_table(metadata)  # the next commit makes one of the new version
        stored = read_properties(storage) or {}
        changed = layout.upgraded_properties(stored, newest.definition)
        replace_properties(metadata, changed)
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
