"""Archiving: records that no state which can be read is made from leave the log; their history
stays.

Two checkpoints that were read as a whole must stand at or before the horizon.  The log goes up to
and with the older one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from mdt.errors import Corrupt
from mdt.hudi.layout import layout_of
from mdt.hudi.timeline import COMPLETED
from mdt.limits import FRAME_BYTES_MAX
from mdt.metadata import references
from mdt.metadata.files import paths
from mdt.metadata.history.tolerate_missing import begun_again
from mdt.metadata.log import archive as archived
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.stores.contract import Storage

_NO_INSTANT = "A"
"""Sorts after every instant."""
_COMMITS = frozenset(("commit", "deltacommit", "replacecommit"))

CHECKPOINTS_KEPT = 2
"""At or before the horizon: if one is damaged later, states are made from the other."""


def verified_before(
    metadata: Metadata, snapshot: Snapshot, horizon: int, records: int
) -> Snapshot | None:
    """Return the older one of the two newest checkpoints at or before ``horizon`` that are whole.

    None if there are fewer, or if not so many ``records`` would leave the log; checkpoints are read
    only if they might.
    """
    found: list[Snapshot] = []
    for seq in metadata.checkpoints.listed():
        if seq > horizon:
            continue
        if seq + 1 < snapshot.retention.first + records:
            return None
        try:
            metadata.check_checkpoint(seq)
            found.append(metadata.checkpoints.open(seq).snapshot)
        except Corrupt:
            continue
        if len(found) == CHECKPOINTS_KEPT:
            return found[-1]
    return None


def archive(metadata: Metadata) -> int:
    """Take what :class:`mdt.services.reclaiming.cleaning.Clean` has let go out of the log; return
    how many records.  May be repeated.

    The archive has a record before the log loses it; records go oldest first, so that the log has
    no gap at any moment.  What another process takes out meanwhile is no error: then it is begun
    again.
    """
    return begun_again(lambda: _archived(metadata))


def _archived(metadata: Metadata) -> int:
    snapshot = metadata.newest()
    oldest = snapshot.retention.first
    if not oldest:
        return 0
    storage = metadata.storage
    last = archived.last_archived(storage)
    gone = before(metadata, oldest)
    if gone or last < oldest - 1:
        _require_checkpoint(metadata, snapshot)
    if last < oldest - 1:
        archived.add(storage, metadata.history_of(last + 1, oldest - 1))
    # Each of them one by one, for what is oldest goes first, but beside the other: neither needs
    # what the other deletes.
    storage.together(
        partial(_archive_timeline, metadata, snapshot), partial(_delete_in_order, storage, gone)
    )
    _remove_checkpoints(metadata, snapshot)
    return len(gone)


def _require_checkpoint(metadata: Metadata, snapshot: Snapshot) -> None:
    """Raise Corrupt unless the checkpoint stands, whole, that the log is to begin after: a record
    that says so is not believed.
    """
    seq = snapshot.retention.first - 1
    metadata.check_checkpoint(seq)
    instant = metadata.checkpoints.open(seq).snapshot.last_instant
    if instant != snapshot.retention.instant:
        raise Corrupt(
            "a cleaning names another instant than the checkpoint that the log is to begin after",
            path=paths.checkpoint_manifest(seq),
            expected=instant,
            got=snapshot.retention.instant,
        )


def before(metadata: Metadata, seq: int) -> list[str]:
    """Return the paths of the records in the log before ``seq``, oldest first."""
    listed = [info.path for info in metadata.storage.list_dir(paths.log_dir())]
    return sorted(
        path for path in listed if (found := paths.seq_of(path)) is not None and found < seq
    )


def _archive_timeline(metadata: Metadata, snapshot: Snapshot) -> None:
    """Move the instants of archived records from Hudi's active timeline to its archive, oldest
    first.

    The newest one that tells of files stays: readers take the schema from there.  So do those from
    the oldest instant of the log on: a record may have an older one than a record before it, and
    what is newer than an active instant, and not active, is not committed to Hudi's readers. So do
    those from a savepoint on, as Hudi has it, and those from the first one on that replaced file
    groups which a tagged state has: without it Hudi's readers would see them again.
    """
    storage, layout = metadata.storage, layout_of(snapshot.definition)
    found = []
    for info in storage.list_dir(layout.timeline):
        instant = layout.instant_at(info.path)
        if instant is not None:
            found.append((instant, info.path))
    newest = max(
        (i.time for i, _ in found if i.state == COMPLETED and i.action in _COMMITS), default=""
    )
    end = min(newest, pc.min(snapshot.history["instant"]).as_py(), _held_back(metadata, snapshot))
    old = [(i, path) for i, path in found if i.time <= snapshot.retention.instant and i.time < end]
    old.sort(key=lambda one: one[0].time)
    commits = [(i, path) for i, path in old if i.state == COMPLETED and i.action in _COMMITS]
    if commits:
        read = storage.each(
            partial(storage.read_whole, path, FRAME_BYTES_MAX) for _, path in commits
        )
        told = [(i, data) for (i, _), data in zip(commits, read, strict=True)]
        known = [info.path for info in storage.list_dir(layout.archive)]
        storage.put_if_absent(*layout.archived(known, told))
    # The pending ones first: to readers who find these alone the files of an instant are not
    # committed.
    storage.delete_many([path for i, path in old if i.state != COMPLETED])
    _delete_in_order(storage, [path for i, path in old if i.state == COMPLETED])


def _delete_in_order(storage: Storage, found: Sequence[str]) -> None:
    """Delete objects so that at no moment one is gone and an older one is there."""
    for path in found:
        storage.delete(path)


def _held_back(metadata: Metadata, snapshot: Snapshot) -> str:
    """Return the oldest instant that must stay in Hudi's active timeline because of tags, one after
    all if none must.
    """
    tags = snapshot.tags
    held = [_NO_INSTANT, *tags.savepoints.values()]
    kept = tags.before(snapshot.retention.horizon)
    if kept:
        history = metadata.history(since=kept[0])
        is_replacing = pc.and_(
            pc.greater(history["seq"], kept[0]), pc.equal(history["action"], "replacecommit")
        )
        held += history["instant"].filter(is_replacing).to_pylist()
    return min(held)


def _remove_checkpoints(metadata: Metadata, snapshot: Snapshot) -> None:
    """Remove the checkpoints before the one that the log begins after, but those of tags, and what
    only they referred to.
    """
    storage, oldest = metadata.storage, snapshot.retention.first - 1
    listed = [info.path for info in storage.list_dir(paths.checkpoints_dir())]
    tagged = snapshot.tags.states
    old = [
        p
        for p in listed
        if (seq := paths.checkpoint_of(p)) is not None and seq < oldest and seq not in tagged
    ]
    manifests = [path for path in old if paths.seq_of(path) is not None]
    storage.delete_many(manifests)
    if len(old) == len(manifests):
        return
    kept = references.everything(metadata, snapshot)
    others = pa.array([path for path in old if paths.seq_of(path) is None], pa.string())
    storage.delete_many(set(others.to_pylist()) - set(kept.to_pylist()))
