"""Helpers for the tasks of any write: split work, merge results, delete the files of lost
attempts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from mdt.commit.operation import Changes, Claim
from mdt.engines.engine import Engine
from mdt.metadata.files import paths
from mdt.metadata.log.commit_log import NO_TOMBSTONES
from mdt.metadata.log.trusted_names import is_written_by
from mdt.metadata.snapshot.tombstones import from_table, new_tombstones
from mdt.stores.storage import Storage

W = TypeVar("W")

TASKS_PER_PROCESSOR = 3


def shares(engine: Engine[Any], items: Sequence[W]) -> list[Sequence[W]]:
    """Split ``items`` into non-empty shares for tasks, a few per processor."""
    count = min(len(items), TASKS_PER_PROCESSOR * engine.processors)
    ends = np.linspace(0, len(items), count + 1).astype(int).tolist()
    return [items[start:end] for start, end in pairwise(ends) if end > start]


def merge_changes(results: Sequence[Changes]) -> Changes:
    """Merge the changes of several tasks into one. Lists in ``extra`` are concatenated."""
    extra: dict[str, list[Any]] = {}
    buried = from_table(
        pa.concat_tables([NO_TOMBSTONES, *(changes.tombstones for changes in results)]), 0
    )
    counts: Counter[str] = Counter()
    for changes in results:
        counts.update(changes.counts)
        for name, values in changes.extra.items():
            extra.setdefault(name, []).extend(values)
    return Changes(
        files=[file for changes in results for file in changes.files],
        removed=[segment for changes in results for segment in changes.removed],
        vectors={
            segment: vector for changes in results for segment, vector in changes.vectors.items()
        },
        key_parts=[part for changes in results for part in changes.key_parts],
        extra=extra,
        tombstones=new_tombstones(buried.marks, buried.ordering),
        counts=counts,
    )


def drop_lost_attempts(
    storage: Storage, claim: Claim, partitions: Sequence[str], changes: Changes
) -> None:
    """Delete the data files and summaries of task attempts whose results were not used."""
    used = {paths.partition_file(f.partition, f.name) for f in changes.files}
    used |= {f.key_map.path for f in changes.files if f.key_map is not None}
    used |= {u.stored.path for u in changes.key_parts if u.stored is not None}
    listed = [info.path for partition in partitions for info in storage.list_dir(partition)]
    listed += [info.path for info in storage.list(paths.attachments_of(claim.instant))]
    own_paths = [path for path in listed if is_written_by(path, claim.instant, claim.token)]
    storage.delete_many([path for path in own_paths if path not in used])
