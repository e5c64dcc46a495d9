"""Repair of a table: rebuild damaged parts from intact ones, and report the rest.

Each kind of problem has remedies (:data:`REMEDIES`). A remedy writes back the original bytes, or
rebuilds a part and commits it. Remedies are independent of each other and repeatable, and they
change references only in transactions. So writers may continue, and an interrupted repair can be
run again.

Rows are never dropped: a damaged data file stays and is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from mdt.commit import hudi_metadata, shared_metadata
from mdt.commit.hudi_locks import require_no_pending_writes
from mdt.commit.recovery import recover
from mdt.errors import Corrupt, Unsupported
from mdt.metadata.files import paths
from mdt.metadata.metadata import Metadata
from mdt.progress import Progress
from mdt.services.adoption import metadata_removal
from mdt.services.adoption.adopting import catch_up
from mdt.services.checking import (
    attachments,
    data_files,
    hudi_listing,
    keys,
    log,
    other_formats,
    summaries,
    timeline,
    unfinished,
)
from mdt.services.checking.check import check
from mdt.services.checking.problems import Kind, Problem, RepairReport
from mdt.services.checking.state import Repair, TableState

ROUNDS_MAX = 6
"""Checks per repair, because damage may hide other damage in the same file."""

REMEDIES: Sequence[tuple[Sequence[Kind], Callable[[Repair, Sequence[Problem]], None]]] = (
    ((Kind.CHECKPOINT, Kind.RECORD, Kind.ARCHIVE, Kind.TABLE), log.rebuild),
    ((Kind.TIMELINE,), timeline.rebuild),
    ((Kind.LISTING,), hudi_listing.rebuild),
    ((Kind.FORMAT,), other_formats.rebuild),
    ((Kind.ROWS, Kind.DERIVED), data_files.rebuild),
    ((Kind.ATTACHMENT,), attachments.rebuild),
    ((Kind.ATTACHMENT, Kind.SUMMARY), summaries.rebuild),
    ((Kind.ATTACHMENT, Kind.KEY_INDEX), keys.rebuild),
    ((Kind.CLAIM,), unfinished.remove_claims),
    ((Kind.LEFT_OVER,), unfinished.remove_files),
)
"""Kinds of problems and their remedies, in order."""


def repair(metadata: Metadata, progress: Progress | None = None) -> RepairReport:
    """Repair the table of ``metadata``, which need not be readable.

    Raises Invalid if there is no table, Unsupported if another writer has taken it over, and
    Conflict and Unavailable as transactions do.
    """
    metadata.storage.require_conditional_put()
    job = Repair(metadata)
    error = _open(job, metadata)
    if error is not None:
        return RepairReport(tuple(job.damaged), tuple(job.rebuilt), (_cannot_open(error),))
    newest = job.begin_again().newest()
    is_in_step = hudi_metadata.is_in_step(job.metadata)
    job.metadata.watch.refuse_to_write(has_metadata_table=is_in_step)
    if shared_metadata.lost_partitions(job.metadata, newest):
        require_no_pending_writes(job.metadata)
        metadata_removal.remove(job.metadata, newest)
    with suppress(Corrupt):  # needs the log, which may be damaged
        other_formats.remove_foreign_versions(job)
        recover(job.metadata, after_seconds=job.state().options.rollback_after_seconds or 1)
    log.rebuild_checkpoints(job)
    problems = _check(job.begin_again(), progress)
    job.damaged += problems
    for _ in range(ROUNDS_MAX):
        results = len(job.rebuilt) + len(job.lost)
        for kinds, remedy in REMEDIES:
            matching = [problem for problem in problems if problem.kind in kinds]
            if matching:
                with suppress(Corrupt):  # the problem is reported as lost
                    remedy(job, matching)
        if len(job.rebuilt) + len(job.lost) == results:
            break
        problems = _check(job.begin_again(), progress)
    job.lost += [_with_lost_rows(job.state(), problem) for problem in problems]
    damaged = tuple(dict.fromkeys(job.damaged))
    return RepairReport(damaged, tuple(job.rebuilt), tuple(job.lost))


def plan(metadata: Metadata, progress: Progress | None = None) -> RepairReport:
    """Return the problems that :func:`repair` would work on. Changes nothing."""
    return RepairReport(_check(metadata, progress), (), ())


def _check(metadata: Metadata, progress: Progress | None) -> tuple[Problem, ...]:
    try:
        return check(metadata, metadata.newest(), progress=progress).problems
    except Corrupt as error:
        return (Problem.from_error(error),)


def _open(job: Repair, cached: Metadata) -> Corrupt | None:
    """Repair the objects needed to open the table. Return the error if it still cannot be opened.

    ``cached`` is metadata that may have read records before they were damaged.
    """
    with suppress(Corrupt):
        # First, because a table without its version property is refused as another writer's.
        timeline.rebuild_properties(job)
    error = _open_error(job)
    for remedy in (log.point_hint, timeline.rebuild_properties, _checkpoint_from_memory):
        if error is not None:
            job.damaged.append(Problem.from_error(error))
            if remedy is _checkpoint_from_memory:
                job.metadata = cached
            with suppress(Corrupt):
                remedy(job)
            error = _open_error(job)
    return error


def _open_error(job: Repair) -> Corrupt | None:
    """Return the error if the table cannot be opened, else None. Imports commits of writers that
    share it.
    """
    try:
        job.begin_again().newest()
    except Corrupt as error:
        return error
    except Unsupported as error:
        newest = job.metadata.newest(watched=False)
        if not (error.is_of_others and newest.is_shared):
            raise
        catch_up(job.metadata, job.metadata.options(newest.definition))
    return None


def _checkpoint_from_memory(job: Repair) -> None:
    """Write a checkpoint from records that this process read before one was damaged."""
    seq = paths.seq_of(job.damaged[-1].path)
    if seq is not None and job.state().snapshot.seq >= seq:
        path = paths.checkpoint_manifest(job.metadata.compact().seq)
        job.note(path, "rebuilt from records that this process had read before")


def _cannot_open(error: Corrupt) -> Problem:
    text = (
        f"the table cannot be opened: {error.message}. Restore a copy of the object. Without a"
        " copy, read the published rows with a Hudi reader, and load them into a new table:"
        " mdt.create(new_path, schema, key=...).bulk_insert(rows)"
    )
    return Problem(error.path, text, Kind.RECORD, error.offset)


def _with_lost_rows(state: TableState, problem: Problem) -> Problem:
    """Add the number of lost rows to a remaining problem of a data file."""
    files = state.files_of([problem])
    if problem.kind != Kind.ROWS or not len(files):
        return problem
    rows = int(state.snapshot.live_rows[files].sum())
    text = f"{rows:,} live rows are lost with it, unless a copy of the file is restored"
    return replace(problem, text=f"{problem.text}; {text}")
