"""How many files and bytes a write makes: counted from its record, or estimated from its plan; and
the warning where file groups are written anew.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mdt.hudi.commit_metadata import NO_PREVIOUS
from mdt.limits import REWRITTEN_BYTES_MIN
from mdt.metadata.files.file_group import BASE
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from mdt.commit.operation import WritePlan
    from mdt.write.assign import Assignment

_KEPT_BYTES = 12
"""Of a row in key maps and page maps, about."""
_DELETE_BYTES = 64
"""Of a key in a delete block, about."""
_FILE_BYTES = 4_000
"""Of a data file without its rows, about: footer, Hudi's schema and Bloom filter."""
_MEGABYTE = 1_000_000
_RETURNING = (
    "keys come back that were deleted, and Hudi's readers would compare rows of a log file with the"
    " deleted ones"
)


@dataclass(frozen=True, slots=True)
class Written:
    """``files``: data files.  ``rewritten``: those of them that are base files in the place of a
    file group.  ``bytes``: of data files and what is kept of their keys and pages.
    """

    files: int = 0
    rewritten: int = 0
    bytes: int = 0


def written_by(record: CommitRecord) -> Written:
    """Return what a commit has written."""
    files, slices = record.table("files"), record.table("slices")
    kinds, previous = files["kind"].to_pylist(), slices["previous_instant"].to_pylist()
    rewritten = sum(
        kind == BASE and instant != NO_PREVIOUS
        for kind, instant in zip(kinds, previous, strict=True)
    )
    columns = [files[name] for name in ("size", "key_map_length", "page_map_length")]
    columns += [record.table(name)["length"] for name in ("key_parts", "summaries", "covers")]
    return Written(
        len(files), rewritten, sum(n or 0 for column in columns for n in column.to_pylist())
    )


def estimated(snapshot: Snapshot, plan: WritePlan) -> Written:
    """Return about what a plan will write: the bytes of file groups that are written anew, and of
    as many rows as change.
    """
    work, moved = [_assignment(one) for one in getattr(plan, "work", ())], plan.moved()
    rewritten = [one.group for one in work if one.group >= 0 and not one.is_log]
    size, rows = snapshot.file_groups.weight(None)
    row_bytes = getattr(plan, "row_bytes", 0.0)
    if rows:
        row_bytes = size / rows
    new = plan.counts.get("inserted", 0) + plan.counts.get("updated", 0)
    groups = snapshot.file_groups
    old = sum(int(snapshot.rows[groups.members(group)].sum()) for group in (*rewritten, *moved))
    # Where file groups end as a whole, no delete is written.
    deleted = 0 if plan.footprint.overwrites else plan.counts.get("deleted", 0)
    files = len(work) + len(moved)
    guess = (
        new * row_bytes
        + (new + old + plan.mapped()) * _KEPT_BYTES
        + deleted * _DELETE_BYTES
        + files * _FILE_BYTES
    )
    size = int(guess) + _bytes_of(snapshot, rewritten) + _live_bytes_of(snapshot, moved)
    return Written(files, len(rewritten) + len(moved), size)


def _assignment(one: Any) -> Assignment:
    found: Assignment = getattr(one, "assignment", one)
    return found


def _bytes_of(snapshot: Snapshot, groups: Collection[int]) -> int:
    return sum(snapshot.file_groups.group(group).bytes for group in groups)


def _live_bytes_of(snapshot: Snapshot, groups: Collection[int]) -> int:
    """Return the bytes of file groups without those of deleted rows, about."""
    found = 0.0
    for group in groups:
        members = snapshot.file_groups.members(group)
        rows, dead = int(snapshot.rows[members].sum()), int(snapshot.dead_rows[members].sum())
        found += snapshot.file_groups.group(group).bytes * (rows - dead) / max(rows, 1)
    return int(found)


def rewriting_warnings(
    snapshot: Snapshot,
    work: Sequence[Assignment],
    *,
    falls: Collection[int] = (),
    returns: Collection[int] = (),
) -> tuple[str, ...]:
    """Return a warning for file groups of a merge-on-read table that are written anew though few of
    their rows change.

    ``falls``: numbers of groups in which rows get a smaller ordering value, ``returns``: of groups
    to which deleted keys return.
    """
    ordering = snapshot.definition.ordering
    if ordering is None or not snapshot.definition.is_mor:
        return ()
    found: list[str] = []
    anew = {one.group for one in work if not one.is_log}
    back = anew.intersection(returns).difference(falls)
    for groups, reason in ((anew.intersection(falls), falling(ordering)), (back, _RETURNING)):
        found += rewriting_warning(len(groups), _bytes_of(snapshot, groups), reason)
    return tuple(found)


def falling(ordering: str) -> str:
    """Return why file groups are written anew where the ordering field gets a smaller value."""
    return (
        f"rows get a smaller value of the ordering field {ordering!r}, and Hudi's readers would"
        " prefer their older rows to those of a log file"
    )


def rewriting_warning(files: int, size: int, reason: str) -> tuple[str, ...]:
    """Return the warning for base files of ``size`` bytes together that are written anew; small
    ones are not worth one.
    """
    if not files or size < REWRITTEN_BYTES_MIN:
        return ()
    return (
        (
            f"base files were written anew ({files}, {size / _MEGABYTE:.1f} MB together), because"
            f" {reason}"
        ),
    )
