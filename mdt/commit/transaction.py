"""Begin, write, commit and retry: every change of a table runs through this module.

The commit point is one put-if-absent in :mod:`mdt.metadata.log.commit_log`. A failure before it
leaves only unreferenced garbage. All work after it can be repeated from the commit record.

:func:`run` executes a transaction. :func:`steps` is the same as a generator that pauses after each
phase, so that tests can interleave writers in every order.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic

import pyarrow as pa

from mdt import logs
from mdt.catalogs import pointers
from mdt.commit import (
    annotation,
    claims,
    conflicts,
    hudi_locks,
    hudi_metadata,
    markers,
    publish,
    shared_metadata,
)
from mdt.commit.claims import PendingClaim
from mdt.commit.conflicts import Footprint
from mdt.commit.delete_files import delete_released
from mdt.commit.hudi_locks import CommitLock
from mdt.commit.operation import Changes, Claim, Operation, P, WritePlan
from mdt.commit.own_files import remove_files, remove_overtaken_bases
from mdt.commit.upgrading import finish_upgrade
from mdt.errors import Conflict, Internal, MdtError, Missing, Unavailable, Unsupported
from mdt.formats import keeping as other_formats
from mdt.hudi import timeline
from mdt.hudi.timeline import COMMITS
from mdt.limits import COMMIT_ATTEMPTS_MAX, UNPUBLISHED_SECONDS_MAX
from mdt.metadata import skipping_indexes
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import LOG, files_table, fresh_table, shards_of
from mdt.metadata.history.late_records import late_record
from mdt.metadata.log import archive, commit_log
from mdt.metadata.log import trusted_names as names
from mdt.metadata.log.commit_log import CLEANED, REMOVED, SAVED, SLICES, VECTORS, CommitRecord
from mdt.metadata.metadata import Metadata
from mdt.metadata.references import file_paths
from mdt.metadata.snapshot.key_parts import key_parts_table
from mdt.metadata.snapshot.log_tail import stats_table, summaries_table
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.header_fields import present

_BACKOFF_SECONDS = 0.02
_BACKOFF_SECONDS_MAX = 0.5
_CLEANED_REASON = "its snapshot was cleaned"
_UNPUBLISHED_HINT = (
    "Hudi readers do not see this commit yet, nor those of mdt if Hudi writers share the table, and"
    " a Hudi writer would remove its files: write with mdt before a Hudi writer does"
)
_ARCHIVED_REASON = "the log has been archived since this transaction began"


@dataclass(frozen=True, slots=True)
class CommitResult(Generic[P]):
    """The result of a transaction.

    Attributes:
        record: The commit record, or None if there was nothing to commit.
        attempts: Number of attempts, including the last.
        warnings: Messages for the caller.
    """

    snapshot: Snapshot
    record: CommitRecord | None
    plan: P
    attempts: int
    warnings: tuple[str, ...] = ()


def run(
    metadata: Metadata,
    operation: Operation[P],
    *,
    attempts: int = COMMIT_ATTEMPTS_MAX,
    begun: Snapshot | None = None,
) -> CommitResult[P]:
    """Run ``operation`` to completion, retrying after conflicts.

    Args:
        attempts: Maximum number of attempts.
        begun: The newest snapshot, if the caller has just read it. Used for the first attempt.

    Raises Conflict after ``attempts`` conflicts, Unavailable if storage fails.
    """
    driver = steps(metadata, operation, attempts=attempts, begun=begun)
    while True:
        try:
            next(driver)
        except StopIteration as stop:
            result: CommitResult[P] = stop.value
            return result


def steps(
    metadata: Metadata,
    operation: Operation[P],
    *,
    attempts: int = COMMIT_ATTEMPTS_MAX,
    begun: Snapshot | None = None,
) -> Generator[str, None, CommitResult[P]]:
    """Run ``operation`` and yield the name of each phase when it has ended."""
    storage = metadata.storage
    since = logs.start_time(logs.COMMIT, storage)
    why = ""
    for attempt in range(1, attempts + 1):
        snapshot = begun or metadata.newest(watched=_is_watched(operation))
        _require_key_maps(snapshot, operation)
        other_formats.refuse_foreign_writers(metadata, snapshot)
        pointers.refuse_foreign_commits(metadata, snapshot)
        begun = None
        yield "begun"
        txn = storage.random_hex(16)
        lock = hudi_locks.lock_of(storage, metadata.options(snapshot.definition))
        committed, archived, plan = None, -1, _prepare(metadata, operation, snapshot, txn)
        if plan is None:
            why = _CLEANED_REASON
        else:
            with closing(plan), closing(lock):
                yield "prepared"
                if not plan.is_needed:
                    return CommitResult(snapshot, None, plan, attempt, plan.warnings)
                committed, archived, why = yield from _attempt(
                    metadata, snapshot, operation, plan, txn, lock
                )
                if committed is not None:
                    warnings = plan.warnings + finish(metadata, committed, archived, lock)
        if plan is not None and committed is not None:
            newest = metadata.after(committed)
            warnings += _index_warnings(newest)
            _log(metadata, newest.definition.name, committed, attempt, warnings, since)
            return CommitResult(newest, committed, plan, attempt, warnings)
        name = snapshot.definition.name
        logs.COMMIT.warning(
            "%s: %s: conflict in attempt %d of %d: %s",
            name,
            operation.name,
            attempt,
            attempts,
            why,
        )
        storage.sleep(min(_BACKOFF_SECONDS * attempt, _BACKOFF_SECONDS_MAX))
    raise Conflict(
        f"{operation.name} had conflicts in all {attempts} attempts; the last: {why}",
        hint="retry when fewer writers change the same keys or file groups",
    )


def _require_key_maps(snapshot: Snapshot, operation: Operation[P]) -> None:
    """Raise Unsupported if keys of imported files cannot be looked up yet. The caller maps them."""
    if operation.action in COMMITS and len(snapshot.without_key_map):
        raise Unsupported(
            "the keys of imported files are not known yet", hint="t.refresh() reads them"
        ).of_others()


def _is_watched(operation: Operation[P]) -> bool:
    """Return True for operations that must not run beside commits that the log does not contain."""
    return operation.action != names.IMPORT


def _prepare(metadata: Metadata, operation: Operation[P], snapshot: Snapshot, txn: str) -> P | None:
    """Return the plan, or None if a file is missing because the table was cleaned after
    ``snapshot`` was taken.
    """
    try:
        return operation.prepare(snapshot, txn)
    except Missing as error:
        if not _was_cleaned(metadata, snapshot, error):
            raise
        return None


def _was_cleaned(metadata: Metadata, snapshot: Snapshot, error: Exception) -> bool:
    """Return True if ``error`` reports a missing object and the table was cleaned after
    ``snapshot`` was taken.
    """
    if not isinstance(error, Missing):
        return False
    return metadata.newest(watched=False, to_end=True).retention != snapshot.retention


def _attempt(
    metadata: Metadata,
    snapshot: Snapshot,
    operation: Operation[P],
    plan: P,
    txn: str,
    lock: CommitLock,
) -> Generator[str, None, tuple[CommitRecord | None, int, str]]:
    """Try once to claim, write and commit. Return (record or None, newest archived seq, conflict).

    If the record is None, all traces of the attempt have been removed. Otherwise the lock is held.
    """
    has_instant = operation.action not in names.NO_INSTANTS
    groups = plan.footprint.groups
    try:
        profile = publish.profile_of(snapshot, operation.action, operation.name, txn, groups)
    except Missing as error:
        if not _was_cleaned(metadata, snapshot, error):
            raise
        return None, -1, _CLEANED_REASON
    if lock.is_configured and has_instant:
        lock.acquire()  # Hudi holds it for 0.2 s after it has read the clock for its instant
        metadata.newest(to_end=False)
        _require_compatible_writers(metadata, operation)
    claim = claim_instant(metadata, snapshot, operation, plan, txn, lock, profile)
    lock.release()
    yield "claimed"
    try:
        if has_instant:
            lock.begin_heartbeat(claim.instant)
        changes = operation.write(snapshot, plan, claim)
        yield "written"
        lock.acquire()
        # the last check for commits of other Hudi writers
        newest = metadata.newest(watched=_is_watched(operation), to_end=False)
        if not newest.continues(snapshot):
            raise Conflict(
                "another table, or an older copy of the table, has taken its place meanwhile",
                hint="open it again with mdt.open, and repeat the operation",
            )
        if lock.is_configured and has_instant:
            _require_compatible_writers(metadata, operation, claim.instant)
        looked_us = metadata.storage.now_us()
    except Exception as error:  # also errors of progress callbacks and third-party indexes
        if not isinstance(error, Unavailable):
            abandon(metadata, snapshot, claim, operation, plan, lock)
        if not _was_cleaned(metadata, snapshot, error):
            raise
        return None, -1, _CLEANED_REASON
    # From here on an error leaves the outcome open: nothing may be deleted, recovery decides by
    # the log.
    committed, why = yield from _commit(
        metadata, snapshot, operation, plan, claim, changes, newest.seq, lock
    )
    if committed is not None:
        yield "committed"
        archived = archive.last_archived(metadata.storage)
        if not _is_unreachable(metadata, committed, archived):
            is_late = metadata.storage.now_us() - looked_us > UNPUBLISHED_SECONDS_MAX * 1_000_000
            if not lock.is_held():
                _lock_again(lock, committed)  # Hudi's file lock provider removes that of others
                is_late = True
            if (
                is_late
                and archived < committed.seq  # archived records are published
                and not publish.is_published(metadata.storage, committed, snapshot.definition)
            ):
                require_unharmed(metadata, committed)
            return committed, archived, ""
        metadata.storage.delete(paths.commit(committed.seq))
        why = _ARCHIVED_REASON
    abandon(metadata, snapshot, claim, operation, plan, lock)
    return None, -1, why


def _lock_again(lock: CommitLock, record: CommitRecord) -> None:
    """Take a lock that was lost after the commit.

    Raises Unavailable if another writer keeps it. Conflict would mean that nothing was committed.
    """
    try:
        lock.acquire()
    except Conflict as error:
        raise Unavailable(
            f"commit {record.seq} at {record.instant} is in the log, and not on Hudi's timeline:"
            f" {error.message}",
            hint="do not write its rows again: the next write puts it on the timeline",
        ) from error


def _require_compatible_writers(
    metadata: Metadata, operation: Operation[P], instant: str = ""
) -> None:
    """Raise Unsupported if a Hudi writer is at work whose commit would not fit ``operation``.

    A service of Hudi moves rows. An operation of ours may move the rows that a write of Hudi in
    flight adds to: Hudi compares its write with commits, but not with compactions that began
    earlier.
    """
    if operation.moves_rows:
        hudi_locks.require_no_writers(metadata)
    try:
        is_in_step = hudi_metadata.is_in_step(metadata)
        metadata.watch.refuse_to_write(is_locked=True, has_metadata_table=is_in_step)
        if instant:
            hudi_locks.require_room(metadata, instant)
    except Unsupported as error:
        raise error.of_others() from None  # the caller waits for them, and tries again


def claim_instant(
    metadata: Metadata,
    snapshot: Snapshot,
    operation: Operation[P],
    plan: P,
    txn: str,
    lock: CommitLock,
    profile: bytes,
) -> Claim:
    """Claim an instant that is greater than all in the history, and announce it to Hudi.

    No data file is written before the claim. A claim ends with its commit, so with skewed clocks
    another writer may have used the instant since ``snapshot``. Therefore the history is read again
    under the claim.

    Args:
        profile: See :func:`mdt.commit.publish.profile_of`.
    """
    storage = metadata.storage
    token = int(storage.random_hex(4), 16) & 0x7FFFFFFF
    now = storage.now_us()
    last = max(snapshot.last_time, plan.after)
    at = max(now, timeline.date_us(last) + 1000)
    if lock.is_configured:
        try:
            at = hudi_locks.time_before_writers(metadata, last, at)
        except Unsupported as error:
            if operation.action not in names.NO_INSTANTS:
                raise error.of_others() from None
    while True:
        instant = timeline.instant_text(at)
        pending = PendingClaim(
            instant,
            txn,
            operation.action,
            operation.name,
            token,
            snapshot.seq,
            now,
            tuple(plan.partitions),
        )
        announcement = (storage, instant, operation.action, snapshot.definition)
        prepared, is_free = storage.together(
            partial(publish.prepare, *announcement), partial(claims.put, storage, pending)
        )
        if is_free:
            newest, announced = storage.together(
                partial(metadata.newest, watched=False),
                partial(publish.announce, *announcement, profile),
            )
            is_taken = lock.is_configured and not publish.is_announced_by(
                announced, *announcement[1:]
            )
            if newest.last_time < instant and not is_taken:
                break
            storage.delete_many(announced)
            if not is_taken:  # another writer at this instant may need its heartbeat
                storage.delete_many(prepared)
            storage.delete(paths.pending(instant))  # outlives the instants that it explains
            at = max(at, timeline.instant_us(newest.last_time))
        at += 1000
    return Claim(txn, instant, token)


def _record(
    operation: Operation[P], plan: P, claim: Claim, snapshot: Snapshot, changes: Changes
) -> CommitRecord:
    """Return the commit record, numbered as if no other transaction had committed."""
    header = {
        "txn": claim.txn,
        "instant": claim.instant,
        "action": operation.action,
        "operation": operation.name,
        "begun_at": snapshot.seq,
        "token": claim.token,
        "counts": {
            **plan.counts,
            **{name: plan.counts.get(name, 0) + n for name, n in changes.counts.items()},
        },
        "rolled_back": sorted(plan.footprint.rolls_back),
        **changes.extra,
        **present(metadata=dict(annotation.current())),
    }
    return CommitRecord(snapshot.seq + 1, header, record_tables(changes, claim.instant))


def record_tables(changes: Changes, instant: str) -> dict[str, pa.Table]:
    """Return the Arrow sections of a commit record."""
    files = changes.files
    slices = [(f.previous_instant, f.base_name, list(f.log_names)) for f in files]
    summaries = [
        (spec, n, data)
        for n, shard in enumerate(shards_of(files)[0])
        for spec, data in shard.summaries
    ]
    vectors = [(segment, dead.serialize()) for segment, dead in sorted(changes.vectors.items())]
    return {
        "files": files_table(files, instant),
        "slices": _columns(slices, SLICES),
        "removed": pa.table([sorted(changes.removed)], schema=REMOVED),
        "stats": stats_table(files),
        "vectors": _columns(vectors, VECTORS),
        "fresh": fresh_table(files),
        "summaries": summaries_table(summaries),
        "covers": summaries_table(changes.covers),
        "key_parts": key_parts_table(tuple(changes.key_parts)),
        "cleaned": pa.table([list(changes.cleaned)], schema=CLEANED),
        "saved": pa.table([list(changes.saved)], schema=SAVED),
        "tombstones": changes.tombstones,
        "maps": changes.maps,
        **changes.imported,
    }


def _columns(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    """Return a short list of rows as a table."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table(list(map(list, columns)), schema=schema)


def _commit(
    metadata: Metadata,
    snapshot: Snapshot,
    operation: Operation[P],
    plan: P,
    claim: Claim,
    changes: Changes,
    newest: int,
    lock: CommitLock,
) -> Generator[str, None, tuple[CommitRecord | None, str]]:
    """Append the record after all commits since ``snapshot``, or return the conflict.

    Args:
        newest: Seq of the newest record when the files had been written.
        lock: Is held.
    """
    seq, last_completion = snapshot.seq + 1, snapshot.last_completion
    while True:
        # The put-if-absent below detects records after `seen`.
        while seq != newest + 1 and (earlier := metadata.record(seq)) is not None:
            key_hash = snapshot.definition.key_hash
            why = conflicts.check(
                _footprint(plan, claim, changes), earlier, metadata.objects.key_map, key_hash
            )
            if why is not None:
                part = (
                    None
                    if earlier.alters or earlier.rekeys
                    else operation.narrow(snapshot, plan, changes, earlier)
                )
                if part is None:
                    return None, why
                plan, changes = part
            seq, last_completion = seq + 1, max(last_completion, earlier.completion)
        yield "checked"
        if not lock.is_held():
            return None, "another writer has broken the lock"
        record = _record(operation, plan, claim, snapshot, changes).at(seq)
        record = publish.with_completion(
            record, snapshot.definition, last_completion, metadata.storage.now_us()
        )
        read = commit_log.as_read(record)
        if commit_log.append(metadata.storage, record):
            return read, ""
        newest = -1
        if late_record(metadata.storage, metadata.record, seq) is None:
            return None, f"commit {seq} was first, but the storage does not show its record yet"


def _is_unreachable(metadata: Metadata, record: CommitRecord, archived: int) -> bool:
    """Return True if ``record`` was put under a seq whose original record had already been
    archived.

    This happens to a transaction that slept for very long. No reader sees its record: see
    :mod:`mdt.metadata.log.archive`.

    Args:
        archived: Seq of the newest archived record.
    """
    if archived < record.seq:
        return False
    return record.txn not in archive.read(metadata.storage, record.seq)["txn"].to_pylist()


def _footprint(plan: WritePlan, claim: Claim, changes: Changes) -> Footprint:
    """Return the read set and write set of a transaction that has written its files."""
    footprint = replace(plan.footprint, token=claim.token)
    if changes.absent is not None:
        footprint = replace(footprint, absent=changes.absent)
    only_logs = all(
        file.kind == LOG or file.file_id not in footprint.groups for file in changes.files
    )
    if plan.left is not None and only_logs and not changes.removed:
        touched = {
            segment: rows | changes.vectors.get(segment, rows)
            for segment, rows in plan.left.items()
        }
        footprint = replace(footprint, rows={**changes.vectors, **touched})
    return footprint


def finish(
    metadata: Metadata, record: CommitRecord, archived: int, lock: CommitLock
) -> tuple[str, ...]:
    """Publish ``record`` after all earlier records, drop its claim, and compact the metadata if
    due.

    The commit is final even if a step fails here. Storage errors become warnings, and the next
    writer repeats the work.

    Args:
        archived: Seq of the newest archived record.
        lock: Is held. It is released when the record is published.
    """
    storage = metadata.storage
    is_published = False
    try:
        marker_paths = storage.begin(partial(markers.marker_paths, storage, record.instant))
        if archived >= record.seq:
            # this process slept, and other writers have published and archived the record
            markers.remove(storage, record.instant, marker_paths())
            return ()
        newest = metadata.after(record)
        _publish(metadata, record, newest)
        is_published = True
        lock.close()
        warnings = pointers.follow(metadata, newest)
        if record.action == "clean":
            delete_released(metadata, record)
        markers.remove(storage, record.instant, marker_paths())
        if metadata.compaction_is_due(newest):
            metadata.compact()
    except MdtError as error:
        warning = f"committed, but post-commit work is left to the next writer: {error}"
        return (warning,) if is_published else (warning, _UNPUBLISHED_HINT)
    return warnings


def require_unharmed(metadata: Metadata, record: CommitRecord) -> None:
    """Raise Unsupported if another Hudi writer has rolled back ``record``, which is not on Hudi's
    timeline.

    Such a writer takes the commit for that of a crashed writer.
    """
    storage, why = metadata.storage, ""
    written = file_paths(record.table("files")).to_pylist()
    try:
        metadata.newest()
        sizes = storage.each(partial(storage.size, path) for path in written)
        for path, size in zip(written, sizes, strict=True):
            if size is None:
                why = f"{path} is missing"
    except Unsupported as error:
        why = error.message
    if why:
        raise Unsupported(
            f"commit {record.seq} at {record.instant} was not on Hudi's timeline when another Hudi"
            " writer took over. It removes the files of such commits, as if their writer had"
            f" crashed: {why}",
            hint="write the rows of this commit again; the next import removes it from the log",
        )


def _publish(metadata: Metadata, record: CommitRecord, newest: Snapshot) -> None:
    """Publish ``record`` after all earlier records."""
    is_finished = partial(_is_finished, metadata, newest)
    oldest = publish.oldest_unpublished(is_finished, metadata.record, record.seq)
    for seq in range(oldest, record.seq + 1):
        earlier = metadata.record(seq)
        if earlier is not None and earlier.instant in newest.imports.voided:
            continue
        if earlier is not None:
            publish_record(metadata, earlier, newest)
        elif seq >= metadata.newest(watched=False).retention.first:
            raise Internal(f"commit record {seq} is missing")


def publish_record(
    metadata: Metadata, record: CommitRecord, newest: Snapshot, *, is_new: bool = True
) -> None:
    """Publish ``record``, with everything that readers of Hudi and of other formats need of it.

    Args:
        newest: A snapshot with the record, or a later one.
        is_new: False if the record is on Hudi's timeline, so that Hudi's metadata table has it.
    """
    remove_overtaken_bases(metadata, record, newest)
    finish_upgrade(metadata, record, newest)
    if is_new:
        hudi_metadata.keep(metadata, record, newest)
        shared_metadata.keep(metadata, record, newest)
    publish.publish(metadata.storage, record, newest.definition)
    other_formats.keep(metadata, record, newest)


def _is_finished(metadata: Metadata, newest: Snapshot, record: CommitRecord) -> bool:
    """Return True if :func:`finish` has published ``record``.

    A record with an instant is finished if its completed instant exists, which the last listing has
    often shown. A record without an instant is finished if its claim is gone, because the claim is
    deleted last. So is every record of a table that other writers share: they archive instants, and
    roll commits back.
    """
    if record.seq < newest.retention.first:
        return True  # it was published before it was archived
    if newest.is_shared or not publish.has_instant(record):
        return metadata.storage.size(paths.pending(record.instant)) is None
    path = publish.completed_path(record, newest.definition)
    return metadata.watch.has_seen(path) or metadata.storage.size(path) is not None


def _index_warnings(snapshot: Snapshot) -> tuple[str, ...]:
    """Return a warning for each index that this process cannot maintain."""
    return tuple(
        f"the index {text} was not updated, so every query reads the new files until a process that"
        f" has the index builds it: {why}"
        for text, why in skipping_indexes.unusable(snapshot.definition)
    )


def _log(
    metadata: Metadata,
    table: str,
    record: CommitRecord,
    attempts: int,
    warnings: Sequence[str],
    since: int,
) -> None:
    """Log a commit and its warnings."""
    for warning in warnings:
        logs.COMMIT.warning("%s: %s", table, warning)
    if since:
        sizes = record.table("files")["size"]
        counts = {name: n for name, n in record.header["counts"].items() if n}
        facts = {"seq": record.seq, "instant": record.instant, **counts}
        facts |= {"files": len(sizes), "bytes": sum(sizes.to_pylist()), "attempts": attempts}
        logs.log_end(
            logs.COMMIT, metadata.storage, table, str(record.header["operation"]), facts, since
        )


def abandon(
    metadata: Metadata,
    snapshot: Snapshot,
    claim: Claim,
    operation: Operation[P],
    plan: P,
    lock: CommitLock,
) -> None:
    """Remove the files, the pending instant and the claim of an attempt that will not commit.

    If Hudi has planned a compaction, the plan may name log files of this attempt, and would fail
    without them. They are then left to recovery, as those of a crashed writer.
    """
    lock.end_heartbeat()
    storage = metadata.storage
    is_merge_on_read = snapshot.definition.is_mor
    if lock.is_configured and is_merge_on_read and metadata.watch.has_planned_compaction(snapshot):
        return
    remove_files(metadata, claim.instant, claim.token, plan.partitions)
    publish.retract(storage, claim.instant, operation.action, snapshot.definition)
    markers.remove(storage, claim.instant)
