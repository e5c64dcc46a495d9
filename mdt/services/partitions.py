"""The partitions of a table that a service looks after: their file groups, and which ones a user means."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import numpy as np

from indexes.base import Int64Array
from mdt.arguments import texts
from mdt.errors import Invalid
from mdt.metadata.snapshot import Snapshot


def partitioned(
    snapshot: Snapshot, partitions: Sequence[str] | None = None
) -> tuple[Int64Array, dict[str, Int64Array]]:
    """Return the live file groups of some partitions, rising, and partition path -> the places of its groups among them.  O(files)."""
    groups = np.unique(snapshot.file_groups.of_files(snapshot.live_numbers))
    paths = snapshot.file_groups.partitions(groups).astype(str)
    if partitions is not None:
        wanted = np.isin(paths, list(partitions))
        groups, paths = groups[wanted], paths[wanted]
    if not len(groups):
        return groups, {}
    names, code = np.unique(paths, return_inverse=True)
    order = np.argsort(code, kind="stable")
    places = np.split(order, np.flatnonzero(np.diff(code[order])) + 1)
    return groups, dict(zip(names.tolist(), places, strict=True))


def matching(snapshot: Snapshot, partitions: str | Sequence[str] | None) -> list[str] | None:
    """Return the paths of the partitions that are meant, None for all; ``*`` stands for anything.

    Raises Invalid if a text names none.
    """
    if partitions is None:
        return None
    paths = list(partitioned(snapshot)[1])
    found: dict[str, None] = {}
    for text in texts("partitions", partitions, "['city=Oslo'], or 'city=*'"):
        mine = [path for path in paths if path == text or fnmatchcase(path, text)]
        if not mine:
            raise Invalid(f"there is no partition {text!r}", hint=f"there are {', '.join(paths[:3]) or 'none'} …")
        found |= dict.fromkeys(mine)
    return list(found)
