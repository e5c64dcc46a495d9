"""What transactions leave behind that did not commit: files that belong to nobody, and claims that
make no sense.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mdt.commit import leftovers
from mdt.commit.recovery import sensible, sweep
from mdt.errors import Corrupt
from mdt.hudi import timeline
from mdt.metadata.log import trusted_names as names
from mdt.services.checking.problems import Kind, Problem
from mdt.services.checking.state import Repair, TableState


def check(state: TableState) -> Iterator[Problem]:
    """Find files and pending instants that belong to no commit and to no running transaction, and
    claims that make no sense; these block nobody.
    """
    if len(state.records) == len(state.log):
        yield from _check_files(state)
    errors = sensible(state.metadata)[1]
    if errors:
        # A running writer takes a claim back at once if its instant turns out to be used.
        again = {error.path for error in sensible(state.metadata)[1]}
        for error in errors:
            if error.path in again:
                yield Problem.from_error(error, kind=Kind.CLAIM)


def _check_files(state: TableState) -> Iterator[Problem]:
    try:
        left = leftovers.find(state.metadata)
    except Corrupt:
        return  # it is among the problems, and hides what belongs to whom
    for path in left.files:
        if path not in left.waiting:
            remedy = "t.abort() removes it"
            if left.foreign and leftovers.token_of(path) in left.unknown:
                remedy = "it may be another writer's, so nothing removes it"
            yield Problem(path, -1, f"belongs to no commit; {remedy}", Kind.LEFT_OVER)
    for path in left.instants:
        text = "belongs to a transaction that was rolled back; t.abort() removes it"
        yield Problem(path, -1, text, Kind.LEFT_OVER)


def remove_files(repair: Repair, problems: Sequence[Problem]) -> None:
    """Remove what nobody can commit any more."""
    removed = sweep(repair.metadata)
    if removed:
        text = f"{removed} files that belong to no commit removed"
        repair.note(repair.storage.url, text, Kind.LEFT_OVER)


def remove_claims(repair: Repair, problems: Sequence[Problem]) -> None:
    """Remove claims that make no sense once they are as old as those that are rolled back.  Their
    files are left over then.
    """
    seconds = repair.state().options.rollback_after_seconds or 1
    oldest = repair.storage.now_us() - int(seconds * 1_000_000)
    for error in sensible(repair.metadata)[1]:
        name = error.path.rpartition("/")[2]
        if not names.is_instant(name) or timeline.instant_us(name) <= oldest:
            repair.storage.delete(error.path)
            repair.note(error.path, "a claim that makes no sense removed")
