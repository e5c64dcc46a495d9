"""Check and rebuild the commit log, its checkpoints, and the archive.

A checkpoint is rebuilt from an older one or from the log. A lost record cannot be rebuilt, but
states from a later checkpoint on do not need it. So a commit moves the beginning of the log there,
and earlier states end. The archive is rebuilt from checkpoints and records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.arrays import mask, numbers
from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.commit.recovery import sweep
from mdt.errors import Corrupt
from mdt.metadata.files import paths
from mdt.metadata.log import archive
from mdt.metadata.log.checkpoint_columns import HISTORY, HISTORY_ADDED
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.log.retention import Retention
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.apply import apply, first
from mdt.metadata.snapshot.checkpoint import checkpoint_of, differing_columns
from mdt.metadata.snapshot.checkpoints import hint_to
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.metadata.snapshot.transactions import history_row
from mdt.services.checking.problems import Kind, Problem
from mdt.services.checking.state import Repair, TableState, read_record
from mdt.services.history.tagging import DropTag
from mdt.services.reclaiming import archiving

UNKNOWN = "unknown"
"""Action and operation of a commit with lost record and history."""


def check(state: TableState) -> Iterator[Problem]:
    """Check records, checkpoints and history, and compare the snapshot with the log."""
    snapshot, retention = state.snapshot, state.snapshot.retention
    checkpoints = [None, *snapshot.tags.before(retention.horizon)]
    if retention.first:
        checkpoints.append(retention.first - 1)
    damage = [_checkpoint_error(state.metadata, seq) for seq in checkpoints]
    for result in (*state.log, *damage):
        if isinstance(result, Corrupt):
            yield Problem.from_error(result)
    if len(state.records) == len(state.log):
        yield from _check_replay(state)
    if retention.first:
        yield from _check_history(state)
    if not snapshot.is_shared:  # other writers may have undone an overwrite
        yield from _check_replaced(state)


def _check_replaced(state: TableState) -> Iterator[Problem]:
    """Find live files in file groups that Hudi's readers do not see."""
    snapshot = state.snapshot
    for record in state.records:
        for names in record.replaced.values():
            for group in snapshot.file_groups.with_files(names):
                name = snapshot.file_groups.name(group)
                text = f"file group {name} was replaced, but has live files, which Hudi hides"
                yield Problem(paths.commit(record.seq), text)


def _check_history(state: TableState) -> Iterator[Problem]:
    """Check that archive and log together contain every record from 0 on."""
    try:
        seqs = state.metadata.history(until=state.snapshot)["seq"].to_pylist()
    except Corrupt as error:
        yield Problem.from_error(error, kind=Kind.ARCHIVE)
        return
    if seqs != list(range(state.snapshot.seq + 1)):
        text = "the history does not contain every commit exactly once"
        yield Problem(paths.ARCHIVE_DIR, text, Kind.ARCHIVE)


def _check_replay(state: TableState) -> Iterator[Problem]:
    """Compare the snapshot with a replay of the whole log."""
    snapshot, records = state.snapshot, state.records
    oldest = snapshot.retention.first
    if oldest:
        try:
            replayed = state.metadata.checkpoints.open(oldest - 1).snapshot
        except Corrupt:
            return  # reported by check()
    else:
        replayed, records = first(records[0], path=paths.commit(0)), records[1:]
    for record in records:
        replayed = apply(replayed, record)
    stored, expected = checkpoint_of(snapshot), checkpoint_of(replayed)
    names = [name for name in expected.everything() if name not in ("key_parts", "history")]
    wrong = differing_columns(expected, stored, names)
    if not _same_history(stored.table("history"), expected.table("history")):
        wrong.append("history")
    path = paths.checkpoint_manifest(max(snapshot.checkpoint.seq, 0))
    for name in wrong:
        text = f"the compacted metadata and the log disagree about {name}"
        yield Problem(path, text, Kind.CHECKPOINT)


def _same_history(stored: pa.Table, expected: pa.Table) -> bool:
    """Return True if two histories are equal, ignoring columns that older writers did not have."""
    older, is_new = HISTORY.names[:-HISTORY_ADDED], pc.is_valid(stored["files"])
    return (
        len(stored) == len(expected)
        and stored.select(older).equals(expected.select(older))
        and stored.filter(is_new).equals(expected.filter(is_new))
    )


def _checkpoint_error(metadata: Metadata, seq: int | None) -> Corrupt | None:
    """Read a whole checkpoint and return its error, or None.

    ``seq`` None reads the checkpoint that the hint names, if there is a hint.
    """
    try:
        metadata.check_checkpoint(seq)
        if seq is not None:
            metadata.checkpoints.open(seq)
    except Corrupt as error:
        return error
    return None


def rebuild(repair: Repair, problems: Sequence[Problem]) -> None:
    """Rebuild checkpoints, the beginning of the log, and the archive."""
    rebuild_checkpoints(repair, {paths.checkpoint_of(problem.path) for problem in problems})
    repair.begin_again()
    shorten_log(repair)
    repair.begin_again()
    rebuild_archive(repair)


def rebuild_checkpoints(repair: Repair, doubtful: Collection[int | None] = ()) -> None:
    """Rewrite damaged and ``doubtful`` checkpoints, and point the hint to the newest one.

    A damaged checkpoint that cannot be rebuilt is deleted if a newer one is intact.
    """
    metadata, has_newer = repair.metadata, False
    for seq in metadata.checkpoints.listed():
        error = _checkpoint_error(metadata, seq)
        if error is not None:
            repair.damaged.append(Problem.from_error(error))
        elif seq not in doubtful:
            has_newer = True
            continue
        path = paths.checkpoint_manifest(seq)
        try:
            metadata.write_checkpoint(metadata.rebuild_checkpoint(seq), replacing=True)
            has_newer = True
            repair.note(path, "rebuilt from the log")
        except Corrupt:
            if has_newer and error is not None:
                repair.storage.delete(path)
                repair.note(path, "removed: it cannot be rebuilt from a checkpoint or the log")
    point_hint(repair)


def point_hint(repair: Repair) -> None:
    """Point the hint to the newest readable checkpoint, unless it already names a readable one.

    The hint is deleted if there is no checkpoint.
    """
    checkpoints = repair.metadata.checkpoints
    newest = checkpoints.before(None)
    with suppress(Corrupt):
        hinted = checkpoints.hinted()
        if hinted is not None:
            checkpoints.open(hinted)
        if hinted is not None or newest is None:
            return
    if newest is None:
        repair.storage.delete(paths.HINT)
        repair.note(paths.HINT, "removed: there is no checkpoint")
    else:
        repair.storage.replace(paths.HINT, hint_to(newest.snapshot.seq))
        repair.note(paths.HINT, f"names checkpoint {newest.snapshot.seq} again")


@dataclass(frozen=True, slots=True)
class LogStart(Operation[WritePlan]):
    """The operation that moves the beginning of the log. ``retention`` has the new limits."""

    policy: str
    retention: Retention
    name: str = "repair"
    action: str = "clean"

    def prepare(self, snapshot: Snapshot, txn: str) -> WritePlan:
        """Plan nothing if the log already begins there or later."""
        is_needed = snapshot.retention.first < self.retention.first
        return WritePlan(Footprint(txn, horizon=self.retention.horizon), is_needed=is_needed)

    def write(self, snapshot: Snapshot, plan: WritePlan, claim: Claim) -> Changes:
        """Return the record's fields. Writes no files."""
        clean = {"policy": self.policy}
        return Changes(extra={"retention": self.retention.to_json(), "clean": clean})


def shorten_log(repair: Repair) -> None:
    """Move the beginning of the log behind its damage.

    The log then begins after the oldest intact checkpoint that leads to the newest state without
    the lost records.
    """
    state = repair.state()
    old, start = state.snapshot.retention, _new_start(state)
    horizon = old.horizon if start is None else max(old.horizon, start)
    _restore_tags(repair, state.snapshot, horizon)
    if start is None:
        return
    instant = repair.metadata.checkpoints.open(start).snapshot.last_instant
    retention = Retention(horizon, start + 1, instant)
    repair.commit(LogStart(state.options.clean_policy, retention))
    if horizon > old.horizon:
        text = f"the states after commits {old.horizon} to {horizon - 1} are no longer readable"
        repair.lose(paths.LOG_DIR, text)
    repair.note(paths.commit(start + 1), f"the log now begins here, after checkpoint {start}")
    rebuild_archive(repair)
    sweep(repair.metadata)
    archiving.archive(repair.metadata)


def _new_start(state: TableState) -> int | None:
    """Return the checkpoint after which the log must begin, or None if the log is intact."""
    metadata, oldest = state.metadata, state.snapshot.retention.first
    bad = [oldest + n for n, record in enumerate(state.log) if isinstance(record, Corrupt)]
    if not bad and (not oldest or _checkpoint_error(metadata, oldest - 1) is None):
        return None
    for seq in reversed(metadata.checkpoints.listed()):
        if seq >= max(bad, default=oldest - 1) and _checkpoint_error(metadata, seq) is None:
            return seq
    return metadata.compact().seq  # from the readable part of the newest state


def _restore_tags(repair: Repair, snapshot: Snapshot, horizon: int) -> None:
    """Write a checkpoint of each tagged state before ``horizon``. Drop the tag if that fails."""
    metadata = repair.metadata
    for name, seq in snapshot.tags.seqs.items():
        if seq < horizon and _checkpoint_error(metadata, seq) is not None:
            try:
                metadata.write_checkpoint(metadata.rebuild_checkpoint(seq), replacing=True)
            except Corrupt:
                repair.commit(DropTag(name))
                text = f"the tag {name!r} was dropped: its state cannot be rebuilt"
                repair.lose(paths.commit(seq), text)


def rebuild_archive(repair: Repair) -> None:
    """Rewrite the archive if it is unreadable or lacks records from before the log."""
    snapshot, storage = repair.state().snapshot, repair.storage
    last = max(snapshot.retention.first - 1, archive.last_archived(storage))
    with suppress(Corrupt):
        if len(archive.read(storage)) == last + 1:
            return
    history = _recoverable_history(repair.metadata, snapshot, last)
    missing = np.setdiff1d(np.arange(last + 1), numbers(history["seq"])).tolist()
    unknown: dict[str, Any] = {"instant": "", "action": UNKNOWN, "operation": UNKNOWN, "txn": ""}
    unknown |= {"rolled_back": [], "dead_instants": [], "dead_tokens": []}
    rows = pa.Table.from_pylist([{"seq": seq, **unknown} for seq in missing], schema=HISTORY)
    archive.rewrite(storage, pa.concat_tables([history, rows]).sort_by("seq"))
    path = paths.archive(0, last)
    repair.note(path, "rebuilt from checkpoints and records")
    if missing:
        text = f"the history of {len(missing)} commits up to {missing[-1]} is lost"
        repair.lose(path, f"{text}; no rows are affected")


def _recoverable_history(metadata: Metadata, snapshot: Snapshot, last: int) -> pa.Table:
    """Return the history up to record ``last`` from archive, checkpoints and records."""
    storage, checkpoints = metadata.storage, metadata.checkpoints
    tables = [snapshot.log.table]
    for span in archive.spans(storage):
        with suppress(Corrupt):
            tables.append(archive.read_span(storage, span))
    for seq in checkpoints.listed():
        with suppress(Corrupt):
            tables.append(checkpoints.open(seq).snapshot.log.table)
    for info in storage.list_dir(paths.LOG_DIR):
        number = paths.seq_of(info.path)
        if number is not None and number <= last:
            record = read_record(storage, number)
            if isinstance(record, CommitRecord):
                tables.append(pa.Table.from_pylist([history_row(record)], schema=HISTORY))
    history = pa.concat_tables(tables)
    seqs, positions = np.unique(numbers(history["seq"]), return_index=True)
    return history.take(pa.array(positions)).filter(mask(seqs <= last))
