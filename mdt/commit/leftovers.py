"""Garbage: files of transactions that were declared dead or have lost their claim.

A paused writer may be taken for dead and rolled back. When it resumes, it cannot commit, but it
continues to write files. If it is then killed, these files remain without a claim. A listing of the
whole table finds them.

Rule: a file is garbage only if no readable snapshot refers to it and no transaction can still
commit it. The order of reads proves this: first the listing, then the claims, then the log. The
writer of a listed file had a claim before the listing. If it has none now, it has committed, which
the log shows, or it has given up, or it was declared dead. An unknown token is declared dead before
its files are deleted: see :class:`mdt.commit.recovery.Rollback`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from indexes.arrays import mask, numbers
from mdt.commit import claims
from mdt.commit.own_files import has_only_instants
from mdt.hudi import timeline
from mdt.hudi.layout import Layout, layout_of
from mdt.hudi.timeline import Instant
from mdt.metadata import references
from mdt.metadata.files import paths
from mdt.metadata.history.tolerate_missing import retry_missing
from mdt.metadata.log import trusted_names as names
from mdt.metadata.log.retention import Retention
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.stores.contract import Listing


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Garbage found by a listing.

    Attributes:
        files: Paths of data files and summary objects.
        instants: Paths of pending instants, markers and heartbeats.
        unknown: Tokens of ``files`` whose transactions neither committed nor were declared dead.
        foreign: True if another Hudi writer has used the table. Files with unknown tokens may be
            its own.
        waiting: The ``files`` that expired snapshots referred to. The next listing removes them.
    """

    files: tuple[str, ...]
    instants: tuple[str, ...]
    unknown: frozenset[int]
    foreign: bool
    waiting: frozenset[str] = frozenset()


def find(
    metadata: Metadata, retention: Retention | None = None, ended: AbstractSet[str] = frozenset()
) -> Leftovers:
    """Find the garbage of the table. O(table).

    Args:
        retention: Assumed retention, to preview a cleaning. None takes that of the table.
        ended: Instants of claims that are assumed to have ended.

    Raises Missing if a record of the log is gone, because its references are then unknown.
    """
    return retry_missing(lambda: _find(metadata, retention, ended))


def _find(metadata: Metadata, retention: Retention | None, ended: AbstractSet[str]) -> Leftovers:
    storage = metadata.storage
    listing = storage.list("")
    running, invalid = claims.read_all(storage)
    running = [claim for claim in running if claim.instant not in ended]
    snapshot = metadata.newest()
    if retention is not None:
        snapshot = replace(snapshot, retention=retention)
    claimed = {claim.instant for claim in running}
    claimed.update(error.path.rpartition("/")[2] for error in invalid)
    used = set(references.all_paths(metadata, snapshot).to_pylist()) | _files_of_pending_cleanings(
        metadata, snapshot, running
    )
    files = _unclaimed_tokens(listing, used, claimed, {claim.token for claim in running})
    unknown = _unended_tokens(files, snapshot) - snapshot.log.tokens - snapshot.log.dead_tokens
    dead = snapshot.log.dead_instants - snapshot.instants
    layout = layout_of(snapshot.definition)
    if snapshot.is_shared:
        # Other writers give their log files the token of the log file before.
        for path, token in tuple(files.items()):
            if token not in unknown and not has_only_instants(storage, path, dead, layout):
                del files[path]
    recorded = snapshot.instants | snapshot.log.dead_instants | claimed
    instants = _instants(listing, layout)
    pending = [
        path
        for path, instant in instants.items()
        if instant.time in dead
        and instant.time not in claimed
        and instant.state != timeline.COMPLETED
    ]
    archived = snapshot.retention.instant
    if snapshot.is_shared:
        archived = ""  # other writers may have left markers and heartbeats that are as old
    pending += _outdated_markers(listing, recorded - claimed, archived)
    foreign = snapshot.is_shared or any(
        instant.time not in recorded
        for instant in instants.values()
        if instant.time > snapshot.retention.instant
    )
    return Leftovers(
        tuple(files), tuple(pending), frozenset(unknown), foreign, _waiting(files, snapshot)
    )


def _waiting(files: Mapping[str, int], snapshot: Snapshot) -> frozenset[str]:
    """Return the files whose transactions had committed before the horizon."""
    if not snapshot.retention.horizon:
        return frozenset()
    history = snapshot.history
    committed = history.filter(mask(numbers(history["seq"]) <= snapshot.retention.horizon))
    tokens = frozenset(committed["token"].to_pylist())
    waiting = set()
    for path, token in files.items():
        instant = names.writer_of(path).instant
        if token in tokens or (instant is not None and instant <= snapshot.retention.instant):
            waiting.add(path)
    return frozenset(waiting)


def _files_of_pending_cleanings(
    metadata: Metadata, snapshot: Snapshot, running: Sequence[claims.PendingClaim]
) -> set[str]:
    """Return the files released by cleanings that still have claims. Their writers, or later
    writers, delete them.
    """
    cleaned: set[str] = set()
    for claim in running:
        seq = snapshot.transactions.get(claim.txn)
        if claim.action != "clean" or seq is None:
            continue
        record = metadata.record(seq)
        if record is not None:
            cleaned.update(record.table("cleaned")["path"].to_pylist())
    return cleaned


def _unended_tokens(files: Mapping[str, int], snapshot: Snapshot) -> set[int]:
    """Return the tokens of the files whose names do not prove that their transactions have ended.

    A transaction has ended if its instant is not after the newest archived instant.
    """
    tokens = set()
    for path, token in files.items():
        instant = names.writer_of(path).instant
        if instant is None or instant > snapshot.retention.instant:
            tokens.add(token)
    return tokens


def _instants(listing: Listing, layout: Layout) -> dict[str, Instant]:
    """Return path -> instant of Hudi's timeline."""
    instants = {}
    for info in listing:
        instant = layout.instant_at(info.path)
        if instant is not None:
            instants[info.path] = instant
    return instants


def _outdated_markers(listing: Listing, ended: AbstractSet[str], archived: str) -> list[str]:
    """Return the paths of markers and heartbeats whose instants are in ``ended`` or not after
    ``archived``.
    """
    outdated, folders = [], (f"{paths.MARKERS_DIR}/", f"{paths.HEARTBEATS_DIR}/")
    for path in (info.path for info in listing if info.path.startswith(folders)):
        _, _, instant, *_ = path.split("/")
        if instant in ended or (timeline.is_time(instant) and instant <= archived):
            outdated.append(path)
    return outdated


def _unclaimed_tokens(
    listing: Listing, used: set[str], claimed: set[str], tokens: set[int]
) -> dict[str, int]:
    """Return path -> token of the mdt files that are neither in ``used`` nor covered by a claim."""
    tokens_by_path = {}
    for info in listing:
        path = info.path
        if path in used:
            continue
        instant, token = names.writer_of(path)
        if token is not None and token not in tokens and instant not in claimed:
            tokens_by_path[path] = token
    return tokens_by_path
