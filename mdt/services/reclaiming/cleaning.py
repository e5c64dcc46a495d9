"""Cleaning: end old states, and delete the files to which only they refer.

First a commit moves the horizon, then files are deleted. Every process can find the files to
delete: those in a listing to which no readable state refers. So every step is repeatable, and a
crash costs only space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import numbers
from mdt.commit import claims
from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.commit.recovery import leftover_files, sweep
from mdt.commit.transaction import run
from mdt.config import Options, parse_options
from mdt.errors import Conflict, Corrupt, Invalid
from mdt.formats.keeping import shown
from mdt.hudi import timeline
from mdt.hudi.read.loading import load_properties, load_timeline
from mdt.limits import ARCHIVE_RECORDS_MIN, CLEAN_COMMITS_MIN, SEGMENTS_PER_COMMIT_MAX
from mdt.metadata import references
from mdt.metadata.files import paths
from mdt.metadata.files.file_group import BASE
from mdt.metadata.log import archive
from mdt.metadata.log import trusted_names as names
from mdt.metadata.log.leases import active_leases
from mdt.metadata.log.retention import Retention
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.schema.header_fields import present
from mdt.schema.versions import numbers_of
from mdt.services.adoption.hudi_files import replaced_files, saved_paths
from mdt.services.layout.budget import NOTHING, Outcome, Scope, run_or_plan
from mdt.services.reclaiming import archiving

_NO_STATE = (*names.NO_INSTANTS, "clean")
"""Actions that do not change the data."""
_HOUR_US = 3600 * 1_000_000


@dataclass(frozen=True, slots=True)
class CleanPlan(WritePlan):
    """The plan of a cleaning.

    Attributes:
        retention: The new limits.
        files: Paths of data files to which only older states refer.
        versions: First commits of the schema versions that are no longer needed.
        bytes: Size of ``files``.
        leases: Paths of expired leases.
    """

    retention: Retention = field(default_factory=Retention)
    files: Sequence[str] = ()
    versions: Sequence[int] = ()
    bytes: int = 0
    leases: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Clean(Operation[CleanPlan]):
    """The cleaning operation.

    Attributes:
        horizon: The new horizon, or None to follow the policy of ``options``.
        records_min: Minimum number of records to remove from the log. Fewer stay. By default enough
            to justify an archive object.
        heeds_leases: True if leases hold the horizon back.
    """

    metadata: Metadata
    options: Options
    horizon: int | None = None
    records_min: int | None = None
    heeds_leases: bool = True
    name: str = "clean"
    action: str = "clean"

    def prepare(self, snapshot: Snapshot, txn: str) -> CleanPlan:
        """Return the new limits and the data files to delete."""
        old = snapshot.retention
        target = self.horizon
        if target is None:
            target = horizon_of(self.metadata, snapshot, self.options)
            if snapshot.definition.other_formats:
                target = min(target, _horizon_of_formats(self.metadata, snapshot, self.options))
        needed, ended_leases = self._oldest_needed(snapshot)
        horizon = min(target, needed)
        if snapshot.definition.other_formats:
            horizon = shown(self.metadata, horizon, snapshot)
        horizon = max(old.horizon, horizon)
        first, instant = old.first, old.instant
        checkpoint = archiving.verified_before(self.metadata, snapshot, horizon, self._records())
        if checkpoint is not None:
            first, instant = checkpoint.seq + 1, checkpoint.last_instant
        retention = Retention(horizon, first, instant)
        released = _released(self.metadata, snapshot, retention)
        ended = _ended_versions(self.metadata, snapshot, retention) if retention != old else ()
        footprint = Footprint(txn, horizon=horizon)
        return CleanPlan(
            footprint,
            is_needed=retention != old,
            retention=retention,
            files=list(released),
            versions=ended,
            bytes=sum(released.values()),
            leases=ended_leases,
        )

    def _oldest_needed(self, snapshot: Snapshot) -> tuple[int, Sequence[str]]:
        """Return (oldest state that a running transaction or a lease may need, expired leases)."""
        running = [claim.begun_at for claim in claims.read_all(self.metadata.storage)[0]]
        leased, ended = self._leased()
        return min([snapshot.seq, *running, *leased]), ended

    def _leased(self) -> tuple[Sequence[int], Sequence[str]]:
        """Return (seqs of the leases that are heeded, paths of the expired leases)."""
        return active_leases(self.metadata.storage) if self.heeds_leases else ([], [])

    def _records(self) -> int:
        return ARCHIVE_RECORDS_MIN if self.records_min is None else self.records_min

    def write(self, snapshot: Snapshot, plan: CleanPlan, claim: Claim) -> Changes:
        """Write the checkpoints of tagged states that lose their records, and return the record's
        fields.

        Raises Conflict if a lease was taken since the plan was made, on a state that would end.
        """
        _ensure_tag_checkpoints(self.metadata, snapshot, plan.retention.horizon)
        ending = range(snapshot.retention.horizon, plan.retention.horizon)
        leased = [seq for seq in self._leased()[0] if seq in ending]
        if leased:
            raise Conflict(
                f"a reader has leased the state after commit {min(leased)} meanwhile",
                hint="clean again: the state is then kept",
            )
        self.metadata.storage.delete_many(plan.leases)
        clean_fields = {"policy": self.options.clean_policy} | _hudi_commit(
            snapshot, plan.retention.horizon
        )
        extra = {"retention": plan.retention.to_json(), "clean": clean_fields}
        ended = present(ended_versions=list(plan.versions))
        return Changes(cleaned=plan.files, extra={**extra, **ended})


def _released(metadata: Metadata, snapshot: Snapshot, retention: Retention) -> dict[str, int]:
    """Return path -> size of the data files that are no longer needed.

    On a table with other writers, these include the files of file groups that were replaced before
    the instants in the log, except those of savepoints. The log may never have had these files.
    """
    released = dict[str, int]()
    if retention.horizon > snapshot.retention.horizon:
        garbage = references.garbage_after(metadata, snapshot, retention.horizon)
        columns = garbage["path"].to_pylist(), garbage["size"].to_pylist()
        released = dict(zip(*columns, strict=True))
    if not snapshot.is_shared:
        return released
    table = load_properties(metadata.storage)
    active = load_timeline(metadata.storage, table)
    if retention.instant > snapshot.retention.instant:
        used = references.data_file_paths(metadata, replace(snapshot, retention=retention))
        replaced = {
            file.path: file.size
            for file in replaced_files(metadata.storage, table, active, retention.instant)
            if names.is_data_file(file.path)
        }
        unused = set(replaced).difference(used.to_pylist())
        released |= {path: replaced[path] for path in sorted(unused)}
    saved = saved_paths(metadata.storage, active)
    return {path: size for path, size in released.items() if path not in saved}


def _ended_versions(metadata: Metadata, snapshot: Snapshot, retention: Retention) -> Sequence[int]:
    """Return the first commits of the schema versions that are no longer needed.

    A version is needed by readable states, by records in the log, and by files of these states. A
    tagged state reads its files by its own definition, so its newest version suffices. The first
    version is kept because ``hoodie.properties`` has its schema.
    """
    versions = snapshot.definition.versions
    if not versions:
        return ()
    oldest = min(retention.first, retention.horizon)
    state = metadata.state(retention.horizon)
    first_segments = np.array([oldest, *snapshot.tags.states], np.int64) * SEGMENTS_PER_COMMIT_MAX
    needed = np.concatenate([first_segments, state.segment_ids[state.live]])
    is_needed = np.array([version.since > oldest for version in versions])
    is_needed[numbers_of(versions, needed)] = True
    is_needed[[0, -1]] = True
    return [
        version.since
        for version, is_kept in zip(versions, is_needed.tolist(), strict=True)
        if not is_kept
    ]


def _ensure_tag_checkpoints(metadata: Metadata, snapshot: Snapshot, horizon: int) -> None:
    """Ensure that each tagged state before ``horizon`` has an intact checkpoint.

    Checkpoints of states before the log cannot be rebuilt. An earlier cleaning verified them.
    """
    tagged = snapshot.tags.before(horizon)
    listed = metadata.checkpoints.listed() if tagged else []
    stands = frozenset(listed)
    for seq in tagged:
        if seq in stands:
            if seq < snapshot.retention.first:
                continue
            try:
                metadata.check_checkpoint(seq)
            except Corrupt:
                metadata.storage.delete(paths.checkpoint_manifest(seq))
            else:
                continue
        metadata.write_checkpoint(metadata.state(seq, listed))


def _hudi_commit(snapshot: Snapshot, seq: int) -> dict[str, str]:
    """Return instant and action of commit ``seq`` as in Hudi, or {} if Hudi does not have it."""
    history = snapshot.history
    row = history.slice(seq - snapshot.retention.first, 1).to_pylist()
    if not row or row[0]["seq"] != seq or row[0]["action"] in names.NO_INSTANTS:
        return {}
    action = row[0]["action"]
    if action == "create":
        action = snapshot.definition.commit_action
    return {"earliest": row[0]["instant"], "action": action}


def horizon_of(metadata: Metadata, snapshot: Snapshot, options: Options) -> int:
    """Return the oldest state that the policy of ``options`` keeps.

    Raises Missing if a necessary record is missing.
    """
    history = snapshot.history
    seqs = numbers(history["seq"])
    if options.clean_policy == "KEEP_LATEST_BY_HOURS":
        since = timeline.instant_text(
            metadata.storage.now_us() - options.clean_retain_hours * _HOUR_US
        )
        older = seqs[np.asarray(pc.less_equal(history["instant"], since))]
        return int(older[-1]) if len(older) else 0
    if options.clean_policy == "KEEP_LATEST_FILE_VERSIONS":
        return _horizon_by_versions(metadata, snapshot, options.clean_retain_versions)
    is_state = ~np.asarray(pc.is_in(history["action"], pa.array(_NO_STATE)))
    states = seqs[is_state]
    if len(states) < options.clean_retain_commits:
        return 0
    return int(states[-options.clean_retain_commits])


def _horizon_of_formats(metadata: Metadata, snapshot: Snapshot, options: Options) -> int:
    """Return the newest horizon that lets readers of other formats finish: every commit up to it,
    which may have ended files, is old enough.
    """
    history = snapshot.history
    since = metadata.storage.now_us() - options.formats_retain_hours * _HOUR_US
    is_young = np.asarray(pc.greater(history["instant"], timeline.instant_text(since)))
    young = numbers(history["seq"])[is_young]
    return int(young.min(initial=snapshot.seq + 1)) - 1


def _horizon_by_versions(metadata: Metadata, snapshot: Snapshot, count: int) -> int:
    """Return the oldest state with one of the ``count`` newest base files of each file group.

    A commit that replaces file groups makes a new version of their partition, which counts as a
    file group. Otherwise file groups that are replaced before they have ``count`` base files would
    stay for ever.
    """
    old = snapshot.retention.horizon
    names = [_base_files(metadata.at(old).listing())["file_id"]]
    seqs = [np.full(len(names[0]), old, np.int64)]
    for record in metadata.records(old + 1, snapshot.seq):
        replaced = pa.chunked_array([[f"/{path}" for path in record.replaced]], pa.string())
        for versions in (_base_files(record.table("files"))["file_id"], replaced):
            names.append(versions)
            seqs.append(np.full(len(versions), record.seq, np.int64))
    chunks = [chunk for versions in names for chunk in versions.chunks]
    group = np.asarray(
        pa.chunked_array(chunks, pa.string()).combine_chunks().dictionary_encode().indices
    )
    seq = np.concatenate(seqs)
    order = np.lexsort((-seq, group))
    rank = np.arange(len(order)) - np.searchsorted(group[order], group[order])
    oldest_kept = seq[order][rank == count - 1]
    return int(oldest_kept.max(initial=old))


def _base_files(table: pa.Table) -> pa.Table:
    return table.filter(pc.equal(table["kind"], BASE))


def with_policy(
    options: Options, commits: int | None, hours: int | None, versions: int | None
) -> Options:
    """Return ``options`` with the policy given by one of the counts, or unchanged without one.

    Raises Invalid for several counts, or a count out of range.
    """
    counts = {"commits": commits, "hours": hours, "versions": versions}
    requested = {name: count for name, count in counts.items() if count is not None}
    if len(requested) > 1:
        raise Invalid(
            "cleaning retains commits, hours or versions, but not several of them",
            hint="give one of them",
        )
    for name, count in requested.items():
        checked = parse_options({f"mdt.clean.retain.{name}": count})
        policy = {"commits": "KEEP_LATEST_COMMITS", "hours": "KEEP_LATEST_BY_HOURS"}.get(
            name, "KEEP_LATEST_FILE_VERSIONS"
        )
        changed = {f"clean_retain_{name}": getattr(checked, f"clean_retain_{name}")}
        return replace(options, clean_policy=policy, **changed)
    return options


@dataclass(frozen=True, slots=True)
class CleanReport:
    """The result of a cleaning.

    Attributes:
        horizon: Seq of the oldest readable state.
        files, bytes: Number and size of the deleted data files.
        records: Commit records that left the log.
        leftovers: Other garbage objects deleted.
        ended: (first, last) seq of the states that are no longer readable, or None.

    >>> t.clean(retain_commits=10).files
    0
    """

    horizon: int
    files: int
    records: int
    leftovers: int
    bytes: int = 0
    ended: tuple[int, int] | None = None

    def __str__(self) -> str:
        return (
            f"states from commit {self.horizon} on are readable; {self.files} data files of"
            f" {self.bytes:,} bytes, {self.leftovers} other objects and {self.records} commit"
            " records removed"
        )


def step(metadata: Metadata, snapshot: Snapshot, options: Options, scope: Scope) -> Outcome:
    """Clean if it is due and the budget allows it.

    With the commit policy cleaning is due when a quarter more states are readable than must be
    kept. Other policies are checked every CLEAN_COMMITS_MIN commits. The table is listed only when
    records leave the log. Remaining work of a cleaning is done in the next steps, so that no single
    write pays for all of it.
    """
    if not scope.bytes_max:
        return NOTHING
    if not scope.is_dry and _continue_archiving(metadata, snapshot.retention.first):
        return Outcome(is_done=True)
    retained = options.clean_retain_commits if options.clean_policy == "KEEP_LATEST_COMMITS" else 0
    looked_at = max(snapshot.retention.horizon + retained, metadata.cleaned_at)
    if snapshot.seq - looked_at < max(CLEAN_COMMITS_MIN, retained // 4):
        return NOTHING
    if not scope.is_dry:
        metadata.cleaned_at = snapshot.seq
    return Outcome(run_or_plan(metadata, Clean(metadata, options), options, scope))


def _continue_archiving(metadata: Metadata, first: int) -> bool:
    """Do part of the remaining work of earlier cleanings. Return True if there was any.

    ``first`` is the new start of the log. The process that ran the cleaning continues with its next
    write. Another process may end after this write, so it does all the work at once.
    """
    if first - 1 <= metadata.last_archived:
        return False
    last = archive.last_archived(metadata.storage)  # another process may have archived
    if first - 1 > last and metadata.swept_before < first:
        metadata.swept_before = first
        sweep(metadata)
        if metadata.cleaned_at:
            return True
    metadata.last_archived = first - 1  # set first: after a failure the next cleaning tries again
    if first - 1 <= last:
        return False
    archiving.archive(metadata)
    return True


def clean(metadata: Metadata, options: Options) -> CleanReport:
    """Clean a table by the policy of ``options``, then delete garbage found by a listing.

    Raises Conflict or Unavailable as any transaction does.
    """
    before = metadata.newest().retention.horizon
    plan = run(metadata, Clean(metadata, options), attempts=options.commit_attempts).plan
    # Hudi treats files older than its timeline as committed, so delete garbage before instants.
    swept = sweep(metadata)
    records = archiving.archive(metadata)
    return _report(plan, before, metadata.newest().retention.horizon, records, swept)


def plan(metadata: Metadata, options: Options) -> CleanReport:
    """Return the expected result of :func:`clean`. Changes nothing."""
    snapshot = metadata.newest()
    planned = Clean(metadata, options).prepare(snapshot, "")
    garbage = set(leftover_files(metadata, planned.retention)).difference(planned.files)
    records = archiving.records_before(metadata, planned.retention.first)
    return _report(
        planned, snapshot.retention.horizon, planned.retention.horizon, len(records), len(garbage)
    )


def _report(
    plan: CleanPlan, before: int, horizon: int, records: int, leftovers: int
) -> CleanReport:
    ended = (before, horizon - 1) if horizon > before else None
    return CleanReport(horizon, len(plan.files), records, leftovers, plan.bytes, ended)
