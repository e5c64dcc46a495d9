"""Check and remove remains of uncommitted transactions: garbage files and unreadable claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mdt.commit import leftovers
from mdt.commit.recovery import sweep, valid_claims
from mdt.errors import Corrupt
from mdt.hudi import timeline
from mdt.metadata.log import trusted_names as names
from mdt.services.checking.problems import Kind, Problem
from mdt.services.checking.state import Repair, TableState


def check(state: TableState) -> Iterator[Problem]:
    """Find garbage files, garbage pending instants, and unreadable claims.

    Garbage belongs to no commit and to no running transaction. Unreadable claims do not block
    writers.
    """
    if len(state.records) == len(state.log):
        yield from _check_files(state)
    errors = valid_claims(state.metadata)[1]
    if errors:
        # A running writer withdraws a claim at once if its instant is already in use.
        persistent = {error.path for error in valid_claims(state.metadata)[1]}
        for error in errors:
            if error.path in persistent:
                yield Problem.from_error(error, kind=Kind.CLAIM)


def _check_files(state: TableState) -> Iterator[Problem]:
    try:
        garbage = leftovers.find(state.metadata)
    except Corrupt:
        return  # already reported, and the owners of files are unknown
    for path in garbage.files:
        if state.snapshot.is_shared and names.writer_of(path).token in garbage.unknown:
            continue  # an older file of another writer
        if path not in garbage.waiting:
            remedy = "t.abort() removes it"
            if garbage.foreign and names.writer_of(path).token in garbage.unknown:
                remedy = "it may be another writer's, so nothing removes it"
            yield Problem(path, f"belongs to no commit; {remedy}", Kind.LEFT_OVER)
    for path in garbage.instants:
        text = "belongs to a transaction that was rolled back; t.abort() removes it"
        yield Problem(path, text, Kind.LEFT_OVER)


def remove_files(repair: Repair, problems: Sequence[Problem]) -> None:
    """Delete files that no transaction can commit any more."""
    removed = sweep(repair.metadata)
    if removed:
        text = f"{removed} files that belong to no commit removed"
        repair.note(repair.storage.url, text, Kind.LEFT_OVER)


def remove_claims(repair: Repair, problems: Sequence[Problem]) -> None:
    """Delete unreadable claims after the rollback timeout. Their files become garbage."""
    seconds = repair.state().options.rollback_after_seconds or 1
    oldest = repair.storage.now_us() - int(seconds * 1_000_000)
    for error in valid_claims(repair.metadata)[1]:
        name = error.path.rpartition("/")[2]
        if not names.is_instant(name) or timeline.instant_us(name) <= oldest:
            repair.storage.delete(error.path)
            repair.note(error.path, "removed an unreadable claim")
