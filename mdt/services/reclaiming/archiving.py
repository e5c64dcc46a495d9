"""Archiving: remove records from the log that no readable state needs, and keep their summaries.

Two verified checkpoints must exist at or before the horizon. The log up to and including the older
one is archived.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from operator import attrgetter

import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import in_batches
from mdt.commit import hudi_archive
from mdt.commit.hudi_locks import locked
from mdt.errors import Corrupt
from mdt.hudi.layout import Layout, layout_of
from mdt.hudi.read.instants import InstantFile
from mdt.hudi.read.loading import load_body, load_properties, load_timeline
from mdt.hudi.timeline import COMMITS, COMPLETED, REQUESTED, Instant, InstantContent
from mdt.limits import ARCHIVED_BYTES_MAX
from mdt.metadata import references
from mdt.metadata.files import paths
from mdt.metadata.history.tolerate_missing import retry_missing
from mdt.metadata.log import archive as archived
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.adoption.hudi_files import NO_INSTANT, first_needed_instant
from mdt.stores.contract import Storage

CHECKPOINTS_KEPT = 2
"""Number of checkpoints at or before the horizon. If one is damaged later, states are made from the
other.
"""


def verified_before(
    metadata: Metadata, snapshot: Snapshot, horizon: int, records: int
) -> Snapshot | None:
    """Return the older of the two newest intact checkpoints at or before ``horizon``.

    Returns None if there are fewer, if fewer than ``records`` records would leave the log, or if
    the checkpoint is later than a pending write. Instants before the log count as known, so the
    commit of such a write would never be imported. Checkpoints are read only if enough records
    might leave.
    """
    oldest_pending = min(metadata.watch.pending, default=NO_INSTANT)
    intact: list[Snapshot] = []
    for seq in metadata.checkpoints.listed():
        if seq > horizon:
            continue
        if seq + 1 < snapshot.retention.first + records:
            return None
        try:
            metadata.check_checkpoint(seq)
            intact.append(metadata.checkpoints.open(seq).snapshot)
        except Corrupt:
            continue
        if len(intact) == CHECKPOINTS_KEPT:
            return intact[-1] if intact[-1].last_instant < oldest_pending else None
    return None


def archive(metadata: Metadata) -> int:
    """Remove records from the log that :class:`mdt.services.reclaiming.cleaning.Clean` released.

    Returns their number. May be repeated. A record is archived before it is deleted, and records
    are deleted oldest first, so the log never has a gap. Restarts if another process deletes
    records meanwhile.
    """
    return retry_missing(lambda: _archive(metadata))


def _archive(metadata: Metadata) -> int:
    snapshot = metadata.newest()
    oldest = snapshot.retention.first
    if not oldest:
        return 0
    storage = metadata.storage
    last = archived.last_archived(storage)
    released = records_before(metadata, oldest)
    if released or last < oldest - 1:
        _require_checkpoint(metadata, snapshot)
    if last < oldest - 1:
        archived.add(storage, metadata.history_of(last + 1, oldest - 1))
    # Both delete in order, oldest first. They run concurrently because neither needs the other's
    # objects.
    storage.together(
        partial(_archive_timeline, metadata, snapshot), partial(_delete_in_order, storage, released)
    )
    _remove_checkpoints(metadata, snapshot)
    return len(released)


def _require_checkpoint(metadata: Metadata, snapshot: Snapshot) -> None:
    """Raise Corrupt unless the checkpoint before the new start of the log is intact.

    It is verified because the record of the cleaning could be wrong.
    """
    seq = snapshot.retention.first - 1
    metadata.check_checkpoint(seq)
    instant = metadata.checkpoints.open(seq).snapshot.last_instant
    if instant != snapshot.retention.instant:
        raise Corrupt(
            "a cleaning and the checkpoint before the new start of the log have different instants",
            path=paths.checkpoint_manifest(seq),
            expected=instant,
            got=snapshot.retention.instant,
        )


def records_before(metadata: Metadata, seq: int) -> list[str]:
    """Return the paths of the log's records before ``seq``, oldest first."""
    listed = [info.path for info in metadata.storage.list_dir(paths.LOG_DIR)]
    return sorted(
        path for path in listed if (number := paths.seq_of(path)) is not None and number < seq
    )


def _archive_timeline(metadata: Metadata, snapshot: Snapshot) -> None:
    """Move the instants of archived records from Hudi's active timeline to its archive, oldest
    first.

    These instants stay active:

    - The newest instant with files, because readers take the schema from it.
    - Instants from the oldest one in the log on. A record may have an older instant than its
      predecessor, and Hudi's readers treat an instant as uncommitted if it is newer than an active
      one and not active.
    - Instants from a savepoint on, as in Hudi.
    - Instants from the first one that replaced file groups of a tagged state. Without it Hudi's
      readers would see these groups again.
    - On a table with other writers, instants from their first pending one on, and from the first
      one on that replaced file groups whose files still exist.
    """
    with locked(metadata, snapshot.definition):
        _archive_instants(metadata, snapshot)


def _archive_instants(metadata: Metadata, snapshot: Snapshot) -> None:
    """Move instants to Hudi's archive, as :func:`_archive_timeline` says."""
    storage, last = metadata.storage, snapshot.retention.instant
    table = load_properties(storage)
    active = load_timeline(storage, table)
    completed = (file for file in active.files if file.state == COMPLETED)
    end = min(
        max((file.time for file in completed if file.action in COMMITS), default=""),
        pc.min(snapshot.history["instant"]).as_py(),
        _oldest_held_instant(metadata, snapshot),
    )
    if snapshot.is_shared:
        end = min(end, first_needed_instant(storage, table, active, last))
    layout = layout_of(snapshot.definition)
    for batch in _batches(file for file in active.files if file.time <= last and file.time < end):
        if not _is_archived(storage, layout, batch):
            return
        # Pending ones first: if only these remained, readers would treat files as uncommitted.
        storage.delete_many([file.path for file in batch if file.state != COMPLETED])
        _delete_in_order(storage, [file.path for file in batch if file.state == COMPLETED])


def _batches(files: Iterable[InstantFile]) -> Iterator[list[InstantFile]]:
    """Yield the files of instants, sorted by time, as many as are archived at once."""
    instants = (list(group) for _, group in groupby(files, key=attrgetter("time")))
    for batch in in_batches(instants, _bytes, ARCHIVED_BYTES_MAX):
        yield list(chain.from_iterable(batch))


def _bytes(files: Iterable[InstantFile]) -> int:
    return sum(file.size for file in files)


def _is_archived(storage: Storage, layout: Layout, old: Sequence[InstantFile]) -> bool:
    """Add the completed instants among ``old`` to Hudi's archive.

    Return False if another process does the same at the moment.
    """
    archived = [
        file for file in old if file.state == COMPLETED and file.action in layout.archived_actions
    ]
    if not archived:
        return True
    plans = {file.time: file for file in old if file.state == REQUESTED and file.size}
    contents = storage.each(
        partial(_content, storage, file, plans.get(file.time)) for file in archived
    )
    return hudi_archive.add(storage, layout, list(contents))


def _content(storage: Storage, file: InstantFile, plan: InstantFile | None) -> InstantContent:
    instant = Instant(file.time, file.action, COMPLETED, file.completion)
    body = load_body(storage, file)
    return InstantContent(instant, body, None if plan is None else load_body(storage, plan))


def _delete_in_order(storage: Storage, objects: Sequence[str]) -> None:
    """Delete objects one by one, so that no object is deleted before an older one."""
    for path in objects:
        storage.delete(path)


def _oldest_held_instant(metadata: Metadata, snapshot: Snapshot) -> str:
    """Return the oldest instant that tags keep on Hudi's active timeline.

    Returns a text that sorts after every instant if there is none.
    """
    tags = snapshot.tags
    instants = [NO_INSTANT, *tags.savepoints.values()]
    tagged = tags.before(snapshot.retention.horizon)
    if tagged:
        history = metadata.history(since=tagged[0])
        is_held = pc.and_(
            pc.greater(history["seq"], tagged[0]), pc.equal(history["action"], "replacecommit")
        )
        if snapshot.is_shared:  # an import does not say if its instants replaced file groups
            is_held = pc.greater_equal(history["seq"], tagged[0])
        instants += history["instant"].filter(is_held).to_pylist()
    return min(instants)


def _remove_checkpoints(metadata: Metadata, snapshot: Snapshot) -> None:
    """Delete checkpoints before the start of the log, and objects to which only they refer.

    Checkpoints of tagged states are kept.
    """
    storage, oldest = metadata.storage, snapshot.retention.first - 1
    listed = [info.path for info in storage.list_dir(paths.CHECKPOINTS_DIR)]
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
    referenced = references.all_paths(metadata, snapshot)
    parts = pa.array([path for path in old if paths.seq_of(path) is None], pa.string())
    storage.delete_many(set(parts.to_pylist()) - set(referenced.to_pylist()))
