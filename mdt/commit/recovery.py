"""Crash recovery: finish or remove the work of crashed transactions.

A claim in ``.hoodie/.mdt/pending/`` belongs to a transaction that has not finished. If the
transaction is in the log, it has committed, and its instant is published. Otherwise it is rolled
back. First a commit record declares it dead, so that its writer can no longer commit if it is still
alive. Then its files are deleted. Both can be repeated after a crash at any point.

Only verified parts of a claim are trusted: see :mod:`mdt.commit.claims` and
:func:`mdt.commit.own_files.remove_files`. Invalid claims are ignored and block nobody.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

from mdt import logs
from mdt.commit import claims, leftovers, markers, publish
from mdt.commit.claims import Claims, PendingClaim
from mdt.commit.conflicts import Footprint
from mdt.commit.delete_files import delete_released
from mdt.commit.hudi_locks import locked
from mdt.commit.metadata_partitions import remove_metadata_table
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.commit.own_files import (
    is_of_another,
    remove_files,
    remove_overtaken_bases,
)
from mdt.commit.transaction import publish_record, require_unharmed, run
from mdt.commit.upgrading import upgrade_again
from mdt.errors import Corrupt, Unsupported
from mdt.formats import keeping as other_formats
from mdt.hudi.layout import layout_of
from mdt.hudi.read.loading import load_commit, load_properties, load_timeline
from mdt.metadata import references
from mdt.metadata.files import paths
from mdt.metadata.log import trusted_names as names
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.log.retention import Retention
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.stores.storage import Storage

_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Recovery:
    """The result of a recovery.

    Attributes:
        published: Instants that were published.
        rolled_back: Instants that were rolled back.
        files_removed: Number of deleted files.
        set_aside: Paths of invalid claims.
    """

    published: tuple[str, ...] = ()
    rolled_back: tuple[str, ...] = ()
    files_removed: int = 0
    set_aside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rollback(Operation[WritePlan]):
    """The operation that declares transactions dead.

    Attributes:
        doomed: Claims of the transactions.
        tokens: Tokens of transactions that left files without a claim.
    """

    doomed: Sequence[PendingClaim]
    tokens: frozenset[int] = frozenset()
    name: str = "rollback"
    action: str = "rollback"

    def prepare(self, snapshot: Snapshot, txn: str) -> WritePlan:
        """Return the plan for the transactions that have not ended. It is not needed if all
        have.
        """
        ended = snapshot.rolled_back | set(snapshot.transactions)
        doomed = [claim for claim in self.doomed if claim.txn not in ended]
        dead = {claim.txn for claim in doomed}
        tokens = self.tokens.union(claim.token for claim in doomed) - snapshot.log.tokens
        is_needed = bool(dead) or not tokens <= snapshot.log.dead_tokens
        footprint = Footprint(txn, rolls_back=frozenset(dead), dead_tokens=frozenset(tokens))
        return WritePlan(footprint, is_needed=is_needed)

    def write(self, snapshot: Snapshot, plan: WritePlan, claim: Claim) -> Changes:
        """Return the header of the record. Writes no files."""
        footprint = plan.footprint
        instants = sorted(p.instant for p in self.doomed if p.txn in footprint.rolls_back)
        return Changes(
            extra={"dead": {"instants": instants, "tokens": sorted(footprint.dead_tokens)}}
        )


def pending(metadata: Metadata) -> list[PendingClaim]:
    """Return the valid claims of running and crashed transactions, oldest first."""
    return valid_claims(metadata)[0]


def valid_claims(
    metadata: Metadata, cached: Claims | None = None, until_us: float = math.inf
) -> Claims:
    """Return the claims that are consistent with the log, oldest first, and the errors of the rest.

    Args:
        cached: Claims that were just read, as in :func:`recover`.
        until_us: Claims that began before this time must be consistent with Hudi's timeline, too.
    """
    pending_claims, invalid = claims.read_all(metadata.storage) if cached is None else cached
    if not pending_claims:
        return [], invalid
    snapshot = metadata.newest()
    valid = []
    for claim in pending_claims:
        is_old = claim.txn not in snapshot.transactions and claim.started_us < until_us
        if _is_stolen(snapshot, claim) or (
            is_old and is_of_another(metadata.storage, claim, snapshot.definition)
        ):
            invalid.append(claims.stolen_claim(claim))
        else:
            valid.append(claim)
    return valid, invalid


def _is_stolen(snapshot: Snapshot, claim: PendingClaim) -> bool:
    """Return True if a claim has the instant or the token of another, committed transaction.

    While a transaction runs, no record after its snapshot is archived.
    """
    if claim.begun_at + 1 < snapshot.retention.first or claim.instant <= snapshot.retention.instant:
        return True
    if claim.txn in snapshot.transactions:
        return claim.instant not in snapshot.instants
    return claim.instant in snapshot.instants or claim.token in snapshot.log.tokens


def recover(metadata: Metadata, *, after_seconds: float, cached: Claims | None = None) -> Recovery:
    """Publish committed transactions and roll back claims older than ``after_seconds``.

    Args:
        after_seconds: 0 rolls back every claim now, and removes garbage without a claim too.
        cached: Result of :func:`mdt.commit.claims.read_all` if the caller has just read the claims.

    Raises Conflict or Unavailable like any transaction.
    """
    since = logs.start_time(logs.RECOVERY, metadata.storage)
    published = _publish_creation(metadata)
    limit_us = math.inf
    if after_seconds:
        limit_us = metadata.storage.now_us() - after_seconds * _MICROSECONDS
    valid, invalid = valid_claims(metadata, cached, limit_us)
    dead: list[PendingClaim] = []
    if valid:
        published += _publish_committed(metadata, metadata.newest(), valid)
        dead = _roll_back(metadata, valid, limit_us)
    upgrade_again(metadata)
    removed = sum(remove(metadata, claim) for claim in dead)
    if not after_seconds:
        removed += sweep(metadata)
    rolled_back = tuple(claim.instant for claim in dead)
    recovery = Recovery(published, rolled_back, removed, tuple(error.path for error in invalid))
    _log(metadata, recovery, invalid, since)
    return recovery


def _log(metadata: Metadata, recovery: Recovery, invalid: Sequence[Corrupt], since: int) -> None:
    """Log the recovery if it did anything, and each invalid claim once."""
    if not (invalid or recovery.published or recovery.rolled_back or recovery.files_removed):
        return
    table = metadata.newest(watched=False).definition.name
    for error in invalid:
        logs.warn_once(
            logs.RECOVERY,
            metadata.warned,
            error.path,
            "%s: ignored an invalid claim: %s",
            table,
            error,
        )
    if recovery.published or recovery.rolled_back or recovery.files_removed:
        facts = {
            "published": ",".join(recovery.published) or "-",
            "rolled_back": ",".join(recovery.rolled_back) or "-",
            "files_removed": recovery.files_removed,
        }
        logs.log_end(logs.RECOVERY, metadata.storage, table, "recover", facts, since)


def _roll_back(
    metadata: Metadata, pending_claims: Sequence[PendingClaim], limit_us: float
) -> list[PendingClaim]:
    """Declare transactions that began before ``limit_us`` dead. Return their claims."""
    transactions = metadata.newest().transactions
    doomed = [p for p in pending_claims if p.txn not in transactions and p.started_us < limit_us]
    if doomed:
        run(metadata, Rollback(doomed))
    dead = metadata.newest().rolled_back if doomed else frozenset()
    return [p for p in doomed if p.txn in dead]


def preview(metadata: Metadata) -> Recovery:
    """Return a preview of :func:`recover` for all claims. Changes nothing."""
    valid, invalid = valid_claims(metadata)
    transactions = metadata.newest().transactions
    published = tuple(claim.instant for claim in valid if claim.txn in transactions)
    dead = tuple(claim.instant for claim in valid if claim.txn not in transactions)
    files = leftover_files(metadata, ended=frozenset(dead))
    return Recovery(published, dead, len(files), tuple(error.path for error in invalid))


def leftover_files(
    metadata: Metadata, retention: Retention | None = None, ended: frozenset[str] = frozenset()
) -> list[str]:
    """Return the paths that :func:`sweep` would remove. Arguments as in
    :func:`mdt.commit.leftovers.find`.
    """
    garbage = leftovers.find(metadata, retention, ended)
    spared = garbage.unknown if garbage.foreign else frozenset()
    return [path for path in garbage.files if names.writer_of(path).token not in spared]


def sweep(metadata: Metadata) -> int:
    """Remove the garbage of ended transactions without a claim. Return the number of files.
    O(table).

    If another Hudi writer has used the table, files with unknown tokens may be its own and are
    kept.
    """
    metadata.newest()  # raises if another Hudi writer has taken over the table
    garbage = leftovers.find(metadata)
    if garbage.unknown and not garbage.foreign:
        run(metadata, Rollback((), garbage.unknown))
    # Transactions that have committed since are not dead.
    open_ = garbage.unknown - metadata.newest().log.dead_tokens
    doomed = [path for path in garbage.files if names.writer_of(path).token not in open_]
    metadata.storage.delete_many([*doomed, *garbage.instants])
    markers.drop_folders(metadata.storage, garbage.instants)
    # Empty directories of archived transactions would slow down every listing.
    metadata.storage.drop_directories(paths.ATTACHMENTS_DIR, metadata.newest().retention.instant)
    return len(doomed)


def _publish_creation(metadata: Metadata) -> tuple[str, ...]:
    """Publish the creation of an empty table if its creator crashed. A creation has no claim."""
    if metadata.watch.properties is not None or metadata.storage.size(paths.PROPERTIES) is not None:
        return ()
    record = metadata.record(0)
    if record is None:
        return ()
    newest = metadata.newest()
    other_formats.keep(metadata, record, newest)
    publish.publish(metadata.storage, record, newest.definition)
    return (record.instant,)


def _publish_committed(
    metadata: Metadata, snapshot: Snapshot, pending_claims: Sequence[PendingClaim]
) -> tuple[str, ...]:
    """Publish all commits from the oldest one with a claim, in commit order. Drop the claims.

    A record with a claim is published again even if its instant exists, because other files may be
    missing.
    """
    committed = sorted(
        (snapshot.transactions[p.txn], p) for p in pending_claims if p.txn in snapshot.transactions
    )
    if not committed:
        return ()
    claimed = {claim.txn for _, claim in committed}
    with locked(metadata, snapshot.definition):
        instants = _publish_claimed(metadata, snapshot, committed[0][0], claimed)
    for _, claim in committed:
        markers.remove(metadata.storage, claim.instant)
    return instants


def _publish_claimed(
    metadata: Metadata, snapshot: Snapshot, first: int, claimed: AbstractSet[str]
) -> tuple[str, ...]:
    """Publish the commits from ``first`` on that are not published, or whose transactions are
    ``claimed``. Return the instants that are new on the timeline.
    """
    instants = []
    for record in metadata.records(first, snapshot.seq):
        if record.instant in snapshot.imports.voided:
            continue
        if snapshot.is_shared and record.txn not in claimed:
            continue  # other writers archive instants
        is_new = not publish.is_published(metadata.storage, record, snapshot.definition)
        if is_new:
            require_unharmed(metadata, record)
        if is_new or record.txn in claimed:
            publish_record(metadata, record, snapshot, is_new=is_new)
        if record.action == "clean" and record.txn in claimed:
            delete_released(metadata, record)
        if is_new:
            instants.append(record.instant)
    return tuple(instants)


def settle_beside_others(metadata: Metadata) -> frozenset[str]:
    """Publish the commits of crashed writers that another Hudi writer has not rolled back. Return
    the instants of the others.

    A writer of Hudi takes a commit that is not on its timeline for that of a dead writer, and
    removes the pending instants and files. Such a commit must not be published any more.
    """
    storage, snapshot = metadata.storage, metadata.newest(watched=False)
    committed = []
    for claim in claims.read_all(storage)[0]:
        if claim.txn in snapshot.transactions:
            committed.append(snapshot.transactions[claim.txn])
    if not committed:
        return frozenset()
    with locked(metadata, snapshot.definition):
        return _settle(metadata, snapshot, committed)


def _settle(metadata: Metadata, snapshot: Snapshot, committed: Sequence[int]) -> frozenset[str]:
    """Publish commits that Hudi has not rolled back. Return the instants of the others."""
    storage, voided = metadata.storage, set[str]()
    for seq in sorted(committed):
        record = metadata.record(seq)
        if record is None or publish.is_published(storage, record, snapshot.definition):
            continue
        if _is_rolled_back(storage, record, snapshot):
            voided.add(record.instant)
        elif _is_overtaken(storage, record, snapshot):
            _roll_back_overtaken(metadata, record, snapshot)
            voided.add(record.instant)
        else:
            remove_metadata_table(metadata)
            remove_overtaken_bases(metadata, record, snapshot)
            publish.publish(storage, record, snapshot.definition)
    return frozenset(voided)


def _is_rolled_back(storage: Storage, record: CommitRecord, snapshot: Snapshot) -> bool:
    """Return True if another writer has removed the pending instants or a file of a commit."""
    announced = layout_of(snapshot.definition).announced(record.instant, record.action)
    if announced and all(storage.size(path) is None for path, _ in announced):
        return True
    written = references.file_paths(record.table("files")).to_pylist()
    return any(storage.size(path) is None for path in written)


def _is_overtaken(storage: Storage, record: CommitRecord, snapshot: Snapshot) -> bool:
    """Return True if another writer has written to a file group of a commit that is not on the
    timeline yet. It did not know the rows of this commit.
    """
    timeline, groups = load_timeline(storage, load_properties(storage)), record.changed_groups
    for file in timeline.completed.values():
        is_imported = f"{file.time}.{file.action}" in snapshot.imports.instants
        if is_imported or snapshot.is_ours(file.time, file.action):
            continue
        content = load_commit(storage, file)
        touched = {written.file_id for written in content.files}.union(*content.replaced.values())
        if touched & groups:
            return True
    return False


def _roll_back_overtaken(metadata: Metadata, record: CommitRecord, snapshot: Snapshot) -> None:
    """Remove the data files and the pending instants of a commit that another writer has overtaken.

    Raises Unsupported while a compaction may name its log files.
    """
    if metadata.watch.has_planned_compaction(snapshot):
        raise Unsupported(
            f"commit {record.seq} at {record.instant} cannot be rolled back while another Hudi"
            " writer has planned a compaction",
            hint="try again when the compaction has ended; reads work until then",
        )
    logs.RECOVERY.warning(
        "%s: rolled back commit %d at %s: it was not on Hudi's timeline when another writer wrote"
        " to the same file groups",
        snapshot.definition.name,
        record.seq,
        record.instant,
    )
    remove_metadata_table(metadata)  # which may list its files
    written = references.file_paths(record.table("files")).to_pylist()
    is_own = partial(names.is_written_by, instant=record.instant, token=record.token)
    metadata.storage.delete_many(filter(is_own, written))
    publish.retract(metadata.storage, record.instant, record.action, snapshot.definition)


def remove(metadata: Metadata, claim: PendingClaim) -> int:
    """Remove the files of a dead transaction, its claim last. Return the number of files."""
    storage, snapshot = metadata.storage, metadata.newest(watched=False)
    if claim.txn in snapshot.transactions:
        raise Corrupt(
            "a transaction is both committed and rolled back", path=paths.pending(claim.instant)
        )
    referenced: set[str] = set()
    if snapshot.retention.first or snapshot.is_shared:
        # archived records may refer to log files with this token, and imports to files of others
        referenced = set(references.data_file_paths(metadata, snapshot).to_pylist())
    removed = remove_files(metadata, claim.instant, claim.token, claim.partitions, referenced)
    if claim.instant not in snapshot.instants:
        publish.retract(storage, claim.instant, claim.action, snapshot.definition)
    markers.remove(storage, claim.instant)
    return removed
