"""What a table's state is made from, and its past: checkpoints, the hint, records of the log, the
archive.

A checkpoint is made again from an older one or from the log.  A record that is gone cannot be: but
every state from a later checkpoint on can be made without it, so the log is committed to begin
there, and the states before end.  History is put together from what archive, checkpoints and
records still say; a commit of which none of them says anything keeps its place in the archive.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from indexes.buffers import mask, numbers
from mdt.commit.conflicts import Footprint
from mdt.commit.operation import Changes, Claim, Operation, WritePlan
from mdt.commit.recovery import sweep
from mdt.commit.transaction import run
from mdt.config import Options
from mdt.errors import Corrupt
from mdt.metadata.files import paths
from mdt.metadata.log import archive, commit_log
from mdt.metadata.log.checkpoint_columns import HISTORY
from mdt.metadata.log.retention import Retention
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.checkpoints import hint_to
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.metadata.snapshot.transactions import history_row
from mdt.services.history.tagging import DropTag
from mdt.services.problem import Kind, Problem
from mdt.services.reclaiming import archiving

UNKNOWN = "unknown"
"""Action and operation of a commit of which nothing is known any more."""


Mended = tuple[list[Problem], list[Problem]]
"""What was found, or is lost, and what was done about it."""


def mend_hint(metadata: Metadata) -> list[Problem]:
    """Let the hint name the newest checkpoint that can be opened; without one there is no hint.
    Return what was done.
    """
    checkpoints, storage = metadata.checkpoints, metadata.storage
    newest = next((seq for seq in checkpoints.listed() if _opens(metadata, seq)), None)
    try:
        hinted = checkpoints.hinted()
        if hinted == newest or (hinted is not None and _opens(metadata, hinted)):
            return []
    except Corrupt:
        hinted = None
    if newest is not None:
        storage.replace(paths.hint(), hint_to(newest))
        return [Problem(paths.hint(), -1, f"names checkpoint {newest} again", Kind.CHECKPOINT)]
    storage.delete(paths.hint())
    return [Problem(paths.hint(), -1, "removed: there is no checkpoint", Kind.CHECKPOINT)]


def _opens(metadata: Metadata, seq: int) -> bool:
    try:
        metadata.checkpoints.open(seq)
    except Corrupt:
        return False
    return True


def _damage(metadata: Metadata, seq: int) -> Corrupt | None:
    """Return what is wrong with a checkpoint, read as a whole; None if nothing is."""
    try:
        metadata.check_checkpoint(seq)
        metadata.checkpoints.open(seq)
    except Corrupt as error:
        return error
    return None


def mend_checkpoints(metadata: Metadata, wrong: Collection[int]) -> Mended:
    """Make checkpoints again that are damaged, or among ``wrong``, from older ones or the log,
    where these lead there.

    One to which nothing leads goes if there is a newer one that is whole.  Return what was found,
    and what was done.
    """
    found, done = list[Problem](), list[Problem]()
    has_newer = False
    for seq in metadata.checkpoints.listed():
        error = _damage(metadata, seq)
        if error is None and seq not in wrong:
            has_newer = True
            continue
        path = paths.checkpoint_manifest(seq)
        if error is not None:
            found.append(Problem(error.path, error.offset, str(error), Kind.CHECKPOINT))
        try:
            metadata.write_checkpoint(metadata.made_again(seq), replacing=True)
            done.append(Problem(path, -1, "made again from the log", Kind.CHECKPOINT))
            has_newer = True
        except Corrupt:
            if has_newer and error is not None:  # else what is left of it may be all that there is
                metadata.storage.delete(path)
                done.append(
                    Problem(path, -1, "removed: nothing leads there any more", Kind.CHECKPOINT)
                )
    return found, done + mend_hint(metadata)


@dataclass(frozen=True, slots=True)
class Beginning(Operation[WritePlan]):
    """The operation that lets the log begin after a checkpoint, and the states begin there that
    could not be made otherwise.
    """

    options: Options
    retention: Retention
    name: str = "repair"
    action: str = "clean"

    def prepare(self, snapshot: Snapshot, txn: str) -> WritePlan:
        """Return whether the log does not begin there yet."""
        is_needed = snapshot.retention.first < self.retention.first
        return WritePlan(Footprint(txn, horizon=self.retention.horizon), is_needed=is_needed)

    def write(self, snapshot: Snapshot, plan: WritePlan, claim: Claim) -> Changes:
        """Write nothing; the record says it."""
        told = {"policy": self.options.clean_policy}
        return Changes(extra={"retention": self.retention.to_json(), "clean": told})


def mend_log(metadata: Metadata, options: Options) -> Mended:
    """Let the log begin after damage: after the oldest checkpoint that leads to the newest state
    without what is lost.

    Return what is lost by that, and what was done; nothing where every state can be made that is
    said to be readable.
    """
    old = metadata.newest(watched=False).retention
    start = _new_start(metadata)
    horizon = old.horizon if start is None else max(old.horizon, start)
    lost = _mend_tags(metadata, options, horizon)
    if start is None:
        return lost, []
    instant = metadata.checkpoints.open(start).snapshot.last_instant
    run(
        metadata,
        Beginning(options, Retention(horizon, start + 1, instant)),
        attempts=options.commit_attempts,
    )
    if horizon > old.horizon:
        text = f"the states after commits {old.horizon} to {horizon - 1} cannot be read any more"
        lost.append(Problem(paths.log_dir(), -1, text, Kind.RECORD))
    gone, done = mend_archive(metadata)
    sweep(metadata)
    archiving.archive(metadata)
    begun = Problem(
        paths.commit(start + 1), -1, f"the log begins here, after checkpoint {start}", Kind.RECORD
    )
    return [*lost, *gone], [begun, *done]


def _new_start(metadata: Metadata) -> int | None:
    """Return the checkpoint after which the log must begin now, None if it can begin where it
    does.
    """
    snapshot = metadata.newest(watched=False)
    bad, first = _unreadable(metadata, snapshot), snapshot.retention.first
    if not bad and (not first or _damage(metadata, first - 1) is None):
        return None
    since = max(bad, default=first - 1)
    whole = [
        seq
        for seq in metadata.checkpoints.listed()
        if seq >= since and _damage(metadata, seq) is None
    ]
    # Without a whole one, write a checkpoint from the readable part of the newest state.
    return min(whole) if whole else metadata.compact().seq


def _mend_tags(metadata: Metadata, options: Options, horizon: int) -> list[Problem]:
    """Let each tagged state before ``horizon`` have a checkpoint of its own, or else drop its tag;
    return what is lost.
    """
    snapshot = metadata.newest(watched=False)
    lost = []
    for name, seq in snapshot.tags.seqs.items():
        if seq >= horizon or _damage(metadata, seq) is None:
            continue
        try:
            metadata.write_checkpoint(metadata.made_again(seq), replacing=True)
        except Corrupt:
            run(metadata, DropTag(name), attempts=options.commit_attempts)
            text = f"the tag {name!r} is gone: its state cannot be made any more"
            lost.append(Problem(paths.commit(seq), -1, text, Kind.RECORD))
    return lost


def _unreadable(metadata: Metadata, snapshot: Snapshot) -> list[int]:
    """Return which records of the log cannot be read."""
    bad = []
    for seq in range(snapshot.retention.first, snapshot.seq + 1):
        try:
            if commit_log.read(metadata.storage, seq) is None:
                bad.append(seq)
        except Corrupt:
            bad.append(seq)
    return bad


def mend_archive(metadata: Metadata) -> Mended:
    """Write the archive anew if it lacks records before the log's first, or cannot be read; return
    what is lost, and what was done.
    """
    snapshot, storage = metadata.newest(watched=False), metadata.storage
    listed = archive.spans(storage)
    last = max([snapshot.retention.first - 1, *(end for _, end in listed)])
    with suppress(Corrupt):
        if len(archive.read(storage)) == last + 1:
            return [], []
    known = _known_history(metadata, snapshot, last)
    missing = np.setdiff1d(np.arange(last + 1), numbers(known["seq"]))
    nothing: dict[str, Any] = {"instant": "", "action": UNKNOWN, "operation": UNKNOWN, "txn": ""}
    nothing |= {"rolled_back": [], "dead_instants": [], "dead_tokens": []}
    rows = pa.Table.from_pylist(
        [{"seq": seq, **nothing} for seq in missing.tolist()], schema=HISTORY
    )
    archive.rewrite(storage, pa.concat_tables([known, rows]).sort_by("seq"))
    path = paths.archive(0, last)
    lost = (
        f"nothing is known any more of {len(missing)} commits up to {missing.max(initial=0)}; no"
        " row depends on it"
    )
    return (
        [Problem(path, -1, lost, Kind.ARCHIVE)] if len(missing) else [],
        [Problem(path, -1, "put together from checkpoints and records", Kind.ARCHIVE)],
    )


def _known_history(metadata: Metadata, snapshot: Snapshot, last: int) -> pa.Table:
    """Return what objects of the archive, checkpoints and records still say of the records up to
    ``last``, each once.
    """
    storage = metadata.storage
    tables = [snapshot.log.table]
    for span in archive.spans(storage):
        with suppress(Corrupt):
            tables.append(archive.read_span(storage, span))
    for seq in metadata.checkpoints.listed():
        with suppress(Corrupt):
            tables.append(metadata.checkpoints.open(seq).snapshot.log.table)
    for info in storage.list_dir(paths.log_dir()):
        with suppress(Corrupt):
            found_seq = paths.seq_of(info.path)
            record = (
                None
                if found_seq is None or found_seq > last
                else commit_log.read(storage, found_seq)
            )
            if record is not None:
                tables.append(pa.Table.from_pylist([history_row(record)], schema=HISTORY))
    found = pa.concat_tables(tables)
    seqs, at = np.unique(numbers(found["seq"]), return_index=True)
    return found.take(pa.array(at)).filter(mask(seqs <= last))
