"""Merges whose clauses are given as a list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import mdt

Clause = tuple[str, str | None, Any]
"""A clause: its kind, its condition, and the assignments. None deletes."""
NEW_ALL: Clause = ("not_matched", None, "*")
STAR: list[Clause] = [("matched", None, "*"), NEW_ALL]
"""Whole rows: an upsert that ignores ordering values."""


def with_clauses(merge: Any, clauses: Iterable[Clause]) -> Any:
    """Return ``merge`` with further clauses."""
    for kind, condition, assignments in clauses:
        when = getattr(merge, f"when_{kind}")(condition)
        if kind == "not_matched":
            merge = when.insert(assignments)
        elif assignments is None:
            merge = when.delete()
        else:
            merge = when.update(assignments)
    return merge


def merged(
    table: mdt.Table, source: Any, *clauses: Clause, on: Any = None, **more: Any
) -> mdt.MergeResult:
    """Merge ``source`` by ``clauses``, by default by :data:`STAR`."""
    result: mdt.MergeResult = with_clauses(
        table.merge(source, on, **more), clauses or STAR
    ).execute()
    return result
