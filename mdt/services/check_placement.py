"""Check what another Hudi writer relies on: no record key stands in two file groups of a partition,
dead rows included.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.services.problem import Problem


def misplaced_keys(metadata: Metadata, snapshot: Snapshot) -> Iterator[Problem]:
    """Yield a warning for each partition in which keys stand in two file groups.  O(keys log keys).

    Nothing is wrong for any reader: one of the rows is dead.  Versions before 0.1 placed keys so
    that had been deleted.
    """
    live, groups = snapshot.live_numbers, snapshot.file_groups
    files = zip(live.tolist(), snapshot.files.segments(live), strict=True)
    maps = [(number, segment.key_map) for number, segment in files if segment.key_map is not None]
    if not maps:
        return
    hashes = [metadata.objects.key_map(stored).whole().hashes for _, stored in maps]
    group = np.repeat(
        groups.of_files(np.array([number for number, _ in maps])), [len(h) for h in hashes]
    )
    names, of_group = np.unique(groups.partitions(np.arange(groups.count)), return_inverse=True)
    partition = of_group[group]
    hi, lo = (np.concatenate(words) for words in ([h.hi for h in hashes], [h.lo for h in hashes]))
    order = np.lexsort((group, partition, lo, hi))
    of_key = (~_changes(hi[order])) & (~_changes(lo[order])) & (~_changes(partition[order]))
    twice = partition[order][1:][of_key & _changes(group[order])]
    for code, count in zip(*np.unique(twice, return_counts=True), strict=True):
        yield Problem(
            str(names[code]) or metadata.storage.url,
            -1,
            f"{count} deleted keys have come back in another file group: a Hudi writer would find"
            " the dead row; compact() mends it",
        )


def _changes(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return where a value differs from the one before -> bool[n - 1]."""
    return np.asarray(values[1:] != values[:-1], np.bool_)
