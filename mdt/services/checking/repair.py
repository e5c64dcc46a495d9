"""Repair a table: problems that a check finds are mended from what is whole, and what cannot be
mended is named.

Each kind of problem has its remedies (:data:`REMEDIES`).  A remedy puts the same bytes back, or
makes something anew and commits it.  No remedy needs another one to have run, and each may be
repeated; changes of what the table refers to are transactions.  So writers may go on, and a repair
that dies is run again.

Rows are never given up: a damaged data file stays, and is named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from mdt.commit.recovery import recover
from mdt.errors import Corrupt
from mdt.metadata.files import paths
from mdt.metadata.metadata import Metadata
from mdt.progress import Progress
from mdt.services.checking import (
    attachments,
    data_files,
    keys,
    log,
    summaries,
    timeline,
    unfinished,
)
from mdt.services.checking.check import check
from mdt.services.checking.problems import Kind, Problem, RepairReport
from mdt.services.checking.state import Repair, TableState

ROUNDS_MAX = 6
"""Checks of one repair: damage may hide other damage of the same file."""

REMEDIES: Sequence[tuple[Sequence[Kind], Callable[[Repair, Sequence[Problem]], None]]] = (
    ((Kind.CHECKPOINT, Kind.RECORD, Kind.ARCHIVE, Kind.TABLE), log.rebuild),
    ((Kind.TIMELINE,), timeline.rebuild),
    ((Kind.ROWS, Kind.DERIVED), data_files.rebuild),
    ((Kind.ATTACHMENT,), attachments.rebuild),
    ((Kind.ATTACHMENT, Kind.SUMMARY), summaries.rebuild),
    ((Kind.ATTACHMENT, Kind.KEY_INDEX), keys.rebuild),
    ((Kind.CLAIM,), unfinished.remove_claims),
    ((Kind.LEFT_OVER,), unfinished.remove_files),
)
"""Kinds of problems and what repairs them, in this order."""


def repair(metadata: Metadata, progress: Progress | None = None) -> RepairReport:
    """Repair the table of ``metadata``, which nobody may have read yet.

    Raises Invalid if there is no table, Unsupported if another writer has taken it over, Conflict
    and Unavailable as transactions do.
    """
    metadata.storage.require_conditional_put()
    job = Repair(metadata)
    error = _open(job, metadata)
    if error is not None:
        return RepairReport(tuple(job.damaged), tuple(job.rebuilt), (_unopened(error),))
    job.begin_again().newest()
    job.metadata.watch.refuse_to_write()
    with suppress(Corrupt):  # it needs the log, which may be what is damaged
        recover(job.metadata, after_seconds=job.state().options.rollback_after_seconds or 1)
    log.rebuild_checkpoints(job)
    problems = _check(job.begin_again(), progress)
    job.damaged += problems
    for _ in range(ROUNDS_MAX):
        results = len(job.rebuilt) + len(job.lost)
        for kinds, remedy in REMEDIES:
            mine = [problem for problem in problems if problem.kind in kinds]
            if mine:
                with suppress(Corrupt):  # what it needs is among what is lost
                    remedy(job, mine)
        if len(job.rebuilt) + len(job.lost) == results:
            break
        problems = _check(job.begin_again(), progress)
    job.lost += [_with_rows(job.state(), problem) for problem in problems]
    damaged = tuple(dict.fromkeys(job.damaged))
    return RepairReport(damaged, tuple(job.rebuilt), tuple(job.lost))


def plan(metadata: Metadata, progress: Progress | None = None) -> RepairReport:
    """Return the problems that :func:`repair` would work on, and change nothing."""
    return RepairReport(_check(metadata, progress), (), ())


def _check(metadata: Metadata, progress: Progress | None) -> tuple[Problem, ...]:
    try:
        return check(metadata, metadata.newest(), progress=progress).problems
    except Corrupt as error:
        return (Problem.from_error(error),)


def _open(job: Repair, known: Metadata) -> Corrupt | None:
    """Repair what keeps the table from being opened; return why it still cannot be.  ``known``:
    metadata that may have read records before they were damaged.
    """
    with suppress(Corrupt):
        # First of all, because a table without its version is refused as another writer's.
        timeline.rebuild_properties(job)
    error = _error(job)
    for remedy in (log.point_hint, timeline.rebuild_properties, _from_memory):
        if error is not None:
            job.damaged.append(Problem.from_error(error))
            if remedy is _from_memory:
                job.metadata = known
            with suppress(Corrupt):
                remedy(job)
            error = _error(job)
    return error


def _error(job: Repair) -> Corrupt | None:
    """Return why the table cannot be opened, None if it can."""
    try:
        job.begin_again().newest()
    except Corrupt as error:
        return error
    return None


def _from_memory(job: Repair) -> None:
    """Write a checkpoint of what this process had read before a record was damaged."""
    seq = paths.seq_of(job.damaged[-1].path)
    if seq is not None and job.state().snapshot.seq >= seq:
        path = paths.checkpoint_manifest(job.metadata.compact().seq)
        job.note(path, "made of what this process had read")


def _unopened(error: Corrupt) -> Problem:
    text = (
        f"the table cannot be opened: {error.message}. Put back a copy of the object; without one,"
        " Hudi's readers still see the rows that were published: read them with one, and load them"
        " into a new table, mdt.create(new_path, schema, key=...).bulk_insert(rows)"
    )
    return Problem(error.path, error.offset, text, Kind.RECORD)


def _with_rows(state: TableState, problem: Problem) -> Problem:
    """Return a problem that is left, of a data file with the number of rows that are lost."""
    files = state.files_of([problem])
    if problem.kind != Kind.ROWS or not len(files):
        return problem
    rows = int((state.snapshot.rows - state.snapshot.dead_rows)[files].sum())
    text = f"{rows:,} live rows are lost with it, unless a copy of the file is put back"
    return replace(problem, text=f"{problem.text}; {text}")
