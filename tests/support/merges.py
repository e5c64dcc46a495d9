"""Merges whose clauses are given as a list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import mdt

Said = tuple[str, str | None, Any]
"""A clause: kind, condition, and what it sets; None deletes."""
NEW_ALL: Said = ("not_matched", None, "*")
STAR: list[Said] = [("matched", None, "*"), NEW_ALL]
"""Whole rows: an upsert that does not look at ordering values."""


def said(merge: Any, clauses: Iterable[Said]) -> Any:
    """Return ``merge`` with further clauses."""
    for kind, condition, given in clauses:
        when = getattr(merge, f"when_{kind}")(condition)
        if kind == "not_matched":
            merge = when.insert(given)
        elif given is None:
            merge = when.delete()
        else:
            merge = when.update(given)
    return merge


def merged(
    table: mdt.Table, source: Any, *clauses: Said, on: Any = None, **more: Any
) -> mdt.MergeResult:
    """Merge ``source`` by ``clauses``, by default by :data:`STAR`."""
    result: mdt.MergeResult = said(table.merge(source, on, **more), clauses or STAR).execute()
    return result
