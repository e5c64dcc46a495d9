"""Files and bytes of a write, counted from its record or estimated from its plan, and warnings for
rewritten base files.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mdt.display import size_text
from mdt.hudi.commit_metadata import NO_PREVIOUS
from mdt.limits import REWRITTEN_BYTES_MIN
from mdt.metadata.files.file_group import BASE
from mdt.metadata.log.commit_log import CommitRecord
from mdt.metadata.snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from mdt.commit.operation import WritePlan
    from mdt.write.assign import Assignment

_MAP_BYTES = 12
"""Approximate bytes of a row in key maps and page maps."""
_DELETE_BYTES = 64
"""Approximate bytes of a key in a delete block."""
_FILE_BYTES = 4_000
"""Approximate bytes of a data file without its rows: footer, Hudi schema and Bloom filter."""
_RETURNING = (
    "deleted keys were inserted again, and Hudi readers would compare rows of a log file with the"
    " deleted rows"
)


@dataclass(frozen=True, slots=True)
class Written:
    """Amount of written data.

    Attributes:
        files: Number of data files.
        rewritten: Number of base files that replace a file group.
        bytes: Size of data files, key maps, page maps, key parts and summaries.
    """

    files: int = 0
    rewritten: int = 0
    bytes: int = 0


def count_written(record: CommitRecord) -> Written:
    """Return the amount of data written by a commit."""
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


def estimate(snapshot: Snapshot, plan: WritePlan) -> Written:
    """Return the estimated amount of data for a plan: rewritten file groups and changed rows."""
    assignments, moved = (
        [_assignment(assignment) for assignment in getattr(plan, "work", ())],
        plan.moved(),
    )
    rewritten = [
        assignment.group
        for assignment in assignments
        if assignment.group >= 0 and not assignment.is_log
    ]
    size, rows = snapshot.file_groups.weight(None)
    row_bytes = getattr(plan, "row_bytes", 0.0)
    if rows:
        row_bytes = size / rows
    new = plan.counts.get("inserted", 0) + plan.counts.get("updated", 0)
    groups = snapshot.file_groups
    old = sum(int(snapshot.rows[groups.members(group)].sum()) for group in (*rewritten, *moved))
    # Replaced file groups need no delete blocks.
    deleted = 0 if plan.footprint.overwrites else plan.counts.get("deleted", 0)
    files = len(assignments) + len(moved)
    guess = (
        new * row_bytes
        + (new + old + plan.mapped()) * _MAP_BYTES
        + deleted * _DELETE_BYTES
        + files * _FILE_BYTES
    )
    size = int(guess) + _bytes_of(snapshot, rewritten) + _live_bytes_of(snapshot, moved)
    return Written(files, len(rewritten) + len(moved), size)


def _assignment(part: Any) -> Assignment:
    assignment: Assignment = getattr(part, "assignment", part)
    return assignment


def _bytes_of(snapshot: Snapshot, groups: Collection[int]) -> int:
    return sum(snapshot.file_groups.group(group).bytes for group in groups)


def _live_bytes_of(snapshot: Snapshot, groups: Collection[int]) -> int:
    """Return the approximate bytes of live rows in file groups."""
    size = 0.0
    for group in groups:
        members = snapshot.file_groups.members(group)
        rows, dead = int(snapshot.rows[members].sum()), int(snapshot.dead_rows[members].sum())
        size += snapshot.file_groups.group(group).bytes * (rows - dead) / max(rows, 1)
    return int(size)


def rewriting_warnings(
    snapshot: Snapshot,
    assignments: Sequence[Assignment],
    *,
    falls: Collection[int] = (),
    returns: Collection[int] = (),
) -> tuple[str, ...]:
    """Return warnings for merge-on-read file groups that are rewritten although few of their rows
    change.

    Args:
        falls: Numbers of groups with rows whose ordering value decreases.
        returns: Numbers of groups that get re-inserted keys.
    """
    ordering = snapshot.definition.ordering
    if not ordering or not snapshot.definition.is_mor:
        return ()
    warnings: list[str] = []
    rewritten = {assignment.group for assignment in assignments if not assignment.is_log}
    returning = rewritten.intersection(returns).difference(falls)
    for groups, reason in (
        (rewritten.intersection(falls), decrease_reason(ordering)),
        (returning, _RETURNING),
    ):
        warnings += rewriting_warning(len(groups), _bytes_of(snapshot, groups), reason)
    return tuple(warnings)


def decrease_reason(ordering: Sequence[str]) -> str:
    """Return the reason to rewrite file groups if an ordering value decreases."""
    names = ", ".join(ordering)
    return (
        f"the ordering field {names!r} of existing rows decreased, and Hudi readers would prefer"
        " the older rows to those of a log file"
    )


def rewriting_warning(files: int, size: int, reason: str) -> tuple[str, ...]:
    """Return the warning for rewritten base files. Empty if they have few bytes.

    Args:
        size: Total bytes of the files.
    """
    if not files or size < REWRITTEN_BYTES_MIN:
        return ()
    return (f"base files were rewritten ({files}, {size_text(size)} in total), because {reason}",)
