"""Finish or remove what crashed transactions left behind.

A claim in ``.hoodie/.mdt/pending/`` whose transaction is in the log has committed: its instant is published.  One that is
not in the log is rolled back: first a commit record declares it dead, so that its writer, should it still live, can no
longer commit; then its files go.  Both may be repeated after a crash at any point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mdt import paths, publish
from mdt.commit_log import CommitRecord
from mdt.conflicts import Footprint
from mdt.errors import Corrupt, Missing
from mdt.metadata import Metadata
from mdt.publish import Pending
from mdt.snapshot import Snapshot
from mdt.transaction import Changes, Claim, NoFiles, remove_files, run

_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was found and done: instants published, instants rolled back, files removed."""

    published: tuple[str, ...] = ()
    rolled_back: tuple[str, ...] = ()
    files_removed: int = 0


@dataclass(frozen=True, slots=True)
class _Rollback:
    """The operation that declares transactions dead."""

    doomed: Sequence[Pending]
    name: str = "rollback"
    action: str = "rollback"

    def prepare(self, snapshot: Snapshot, txn: str) -> NoFiles | None:
        dead = {p.txn for p in self.doomed} - snapshot.rolled_back - set(snapshot.transactions)
        return NoFiles(Footprint(txn, rolls_back=frozenset(dead))) if dead else None

    def write(self, snapshot: Snapshot, prepared: NoFiles, claim: Claim) -> Changes:
        return Changes()

    def narrow(self, snapshot: Snapshot, prepared: NoFiles, changes: Changes, theirs: CommitRecord) -> None:
        return None


def pending(metadata: Metadata) -> list[Pending]:
    """Return the claims of all transactions that are running or crashed, oldest first."""
    found = []
    for info in metadata.storage.list_dir(paths.pending_dir()):
        data = metadata.storage.read_if_exists(info.path)
        if data is not None:
            found.append(publish.decode_pending(data, path=info.path))
    return sorted(found, key=lambda p: p.instant)


def recover(metadata: Metadata, *, after_seconds: float) -> Recovery:
    """Publish what committed, roll back claims older than ``after_seconds``; 0 rolls back every claim now.

    Raises Conflict or Unavailable as any transaction does.
    """
    storage = metadata.storage
    created = _publish_creation(metadata)
    claims = pending(metadata)
    if not claims:
        return Recovery(created)
    snapshot = metadata.newest()
    published = created + _publish_committed(metadata, snapshot, claims)
    limit = storage.now_us() - int(after_seconds * _MICROSECONDS)
    doomed = [p for p in claims if p.txn not in snapshot.transactions and (not after_seconds or p.started_us < limit)]
    if not doomed:
        return Recovery(published)
    run(metadata, _Rollback(doomed))
    dead = [p for p in doomed if p.txn in metadata.newest().rolled_back]
    return Recovery(published, tuple(p.instant for p in dead), sum(_remove(metadata, p) for p in dead))


def _publish_creation(metadata: Metadata) -> tuple[str, ...]:
    """Make what Hudi needs of an empty table if its maker died; there is no claim of it."""
    record = metadata.record(0) if metadata.storage.size(paths.properties()) is None else None
    if record is None:
        return ()
    publish.publish(metadata.storage, record, metadata.newest().definition)
    return (record.instant,)


def _publish_committed(metadata: Metadata, snapshot: Snapshot, claims: Sequence[Pending]) -> tuple[str, ...]:
    """Publish in commit order everything from the oldest commit with a claim on; drop the claims.

    What has a claim is published again even if its instant is there: the rest of it may be missing.
    """
    committed = sorted((snapshot.transactions[p.txn], p) for p in claims if p.txn in snapshot.transactions)
    if not committed:
        return ()
    instants = []
    claimed = {claim.txn for _, claim in committed}
    for seq in range(committed[0][0], snapshot.seq + 1):
        record = metadata.record(seq)
        if record is None:
            raise Missing("a commit record is gone", path=paths.commit(seq))
        is_new = not publish.is_published(metadata.storage, record, snapshot.definition)
        if is_new or record.txn in claimed:
            publish.publish(metadata.storage, record, snapshot.definition)
        if is_new:
            instants.append(record.instant)
    for _, claim in committed:
        metadata.storage.delete(paths.pending(claim.instant))
    return tuple(instants)


def _remove(metadata: Metadata, claim: Pending) -> int:
    """Remove the files of a transaction that was declared dead, its claim last."""
    storage = metadata.storage
    if claim.txn in metadata.newest().transactions:
        raise Corrupt("a transaction is both committed and rolled back", path=paths.pending(claim.instant))
    removed = remove_files(metadata, claim.instant, claim.token, claim.partitions)
    publish.retract(storage, claim.instant, claim.action)
    storage.delete(paths.pending(claim.instant))
    return removed
