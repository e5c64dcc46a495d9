"""Consistency check of a table: recompute derived data and compare it with storage.

Everything is derived from data files and the log, so everything else can be rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pyarrow as pa

from mdt.errors import Corrupt
from mdt.metadata.history.tolerate_missing import retry_missing
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.progress import Progress, report_each
from mdt.services.checking import (
    data_files,
    hudi_listing,
    imported,
    keys,
    log,
    other_formats,
    shared,
    summaries,
    timeline,
    unfinished,
)
from mdt.services.checking.problems import CheckReport, Kind, Problem
from mdt.services.checking.state import TableState

_ATTEMPTS_MAX = 3


def walk(state: TableState, progress: Progress | None = None) -> Iterator[Problem]:
    """Check every part of a table and yield the problems. O(table)."""
    if state.storage.is_imported:
        yield from imported.check(state, progress)
        return
    try:
        state.snapshot.check()
    except AssertionError as error:
        text = f"the snapshot breaks an invariant: {error}"
        yield Problem(state.storage.url, text)
    yield from log.check(state)
    yield from timeline.check(state)
    yield from unfinished.check(state)
    yield from shared.check(state)
    yield from hudi_listing.check(state)
    with suppress(Corrupt):  # unreadable objects are reported by other parts
        yield from other_formats.check(state)
    live_keys = list[keys.LiveKeys]()
    records = {record.seq: record for record in state.records}
    with ThreadPoolExecutor(pa.cpu_count()) as pool:
        numbers = state.snapshot.live_numbers.tolist()
        files = pool.map(partial(data_files.check, state, records), numbers)
        for problems, file_keys in report_each(files, len(numbers), progress):
            yield from problems
            if file_keys is not None:
                live_keys.append(file_keys)
    yield from summaries.check(state)
    yield from keys.check(state, live_keys)
    for check_part in (data_files.check_past, keys.check_placement):
        with suppress(Corrupt):  # unreadable objects were reported before
            yield from check_part(state)


def check(
    metadata: Metadata, snapshot: Snapshot, *, progress: Progress | None = None
) -> CheckReport:
    """Check every live file, the log, the metadata, and Hudi's timeline. Changes nothing.

    Objects that a concurrent cleaning deletes are not damage: the check restarts on the newest
    state. The last attempt reports only problems that the previous one also had. Remote stores may
    return wrong data once, so there every problem must occur twice.
    """
    is_far, before = metadata.storage.is_remote, tuple[Problem, ...]()
    for attempt in range(_ATTEMPTS_MAX):
        snapshot, report = _attempt(metadata, snapshot, progress)
        if report.ok:
            return report
        newest = snapshot
        with suppress(Corrupt):  # already reported
            newest = metadata.newest()
        is_stale = newest.retention != snapshot.retention
        repeated = tuple(problem for problem in report.problems if problem in before)
        if not (is_stale or (is_far and not attempt)):
            break
        before, snapshot = report.problems, newest
    if attempt and (is_far or is_stale):
        return replace(report, problems=repeated)
    return report


def _attempt(
    metadata: Metadata, snapshot: Snapshot, progress: Progress | None
) -> tuple[Snapshot, CheckReport]:
    """Return the checked snapshot and its report.

    The newest snapshot is checked instead if metadata of the given one was deleted meanwhile.
    """
    pending = [snapshot]

    def work() -> tuple[Snapshot, CheckReport]:
        checked = pending.pop() if pending else metadata.newest()
        return checked, _report(checked, walk(TableState(metadata, checked), progress))

    return retry_missing(work)


def _report(snapshot: Snapshot, walked: Iterator[Problem]) -> CheckReport:
    problems, warnings = dict[Problem, None](), list[Problem]()
    for problem in walked:
        if problem.kind == Kind.PLACEMENT:
            warnings.append(problem)
        else:
            problems[problem] = None  # several parts may share a damaged object
    rows = int(snapshot.live_rows.sum())
    size = int(snapshot.files.numpy("size")[snapshot.live].sum())
    return CheckReport(
        tuple(problems), len(snapshot), rows, size, snapshot.seq + 1, tuple(warnings)
    )
