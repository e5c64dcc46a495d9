"""Which file groups may hold keys, by the ranges and Bloom filters in the footers of base files.

What Hudi's Bloom index does where it may not ask the metadata table: a footer is read for every file group that is in question.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes import hudi_bloom
from indexes.base import Candidates, Int64Array
from indexes.interval_tree import IntervalList, IntervalTree
from mdt.config import Options
from mdt.errors import Corrupt
from mdt.hudi.base_file import FILTER, FILTER_TYPE, MAX_KEY, MIN_KEY
from mdt.limits import THREADS_MAX
from mdt.metadata.file_group import BASE
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot import Snapshot
from mdt.parquet.segment_rows import open_segment

_NONE: Int64Array = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class _Footer:
    """What the footer of a file group's base file says of its keys; None: nothing."""

    group: int
    low: str | None
    high: str | None
    filter: bytes | None
    kind: str


def proposed(
    metadata: Metadata, snapshot: Snapshot, options: Options, texts: pa.Array, partition: npt.NDArray[np.object_] | None
) -> Candidates:
    """Return a superset of where n record keys live, by numbers of file groups; ``whole`` rises.

    ``texts``: string[n].  ``partition``: path of each key, if only rows there matter.  A file group without a base file, or whose footer
    has no filter or cannot be read, may hold every key.  O(file groups in question), a footer each.
    """
    groups = np.unique(snapshot.file_groups.of_files(snapshot.live_numbers))
    paths = snapshot.file_groups.partitions(groups)
    if partition is not None:
        kept = np.isin(paths.astype(str), np.unique(partition.astype(str)))
        groups, paths = groups[kept], paths[kept]
    with ThreadPoolExecutor(min(THREADS_MAX, options.bloom_parallelism or options.threads("writer"))) as pool:
        footers = list(pool.map(lambda group: _read(metadata, snapshot, group), groups.tolist()))
    whole = groups[[one.filter is None for one in footers]]
    known = [one for one in footers if one.filter is not None]
    key, entry = _in_range(options, known, texts)
    if partition is not None:
        of_entry = snapshot.file_groups.partitions(np.array([one.group for one in known], np.int64))
        same = np.asarray(partition[key] == of_entry[entry], np.bool_)
        key, entry = key[same], entry[same]
    return _filtered(known, texts, key, entry, whole)


def _read(metadata: Metadata, snapshot: Snapshot, group: int) -> _Footer:
    """Return what the base file of a group, the oldest of its files, says of its keys."""
    first = int(snapshot.file_groups.members(group)[0])
    if snapshot.kind[first] != BASE:
        return _Footer(group, None, None, None, "")
    try:
        opened = open_segment(metadata.storage, snapshot.segment(first), footers=metadata.objects.footers)
    except Corrupt:
        return _Footer(group, None, None, None, "")
    said = opened.metadata.metadata or {}
    low, high = (None if (text := said.get(name.encode())) is None else text.decode() for name in (MIN_KEY, MAX_KEY))
    return _Footer(group, low, high, said.get(FILTER.encode()), said.get(FILTER_TYPE.encode(), b"").decode())


def _in_range(options: Options, footers: Sequence[_Footer], texts: pa.Array) -> tuple[Int64Array, Int64Array]:
    """Return the pairs (key, footer) in whose range the key is, or all."""
    if not options.bloom_ranges:
        count = len(footers)
        return np.repeat(np.arange(len(texts)), count), np.tile(np.arange(count), len(texts))
    kind = IntervalTree if options.bloom_tree else IntervalList
    bounds = (pa.array([getattr(one, name) for one in footers], pa.string()) for name in ("low", "high"))
    pairs = kind(*bounds).stab(texts)
    return pairs.key, pairs.group


def _filtered(
    footers: Sequence[_Footer], texts: pa.Array, key: Int64Array, entry: Int64Array, whole: Int64Array
) -> Candidates:
    """Return the pairs (key, footer) that the filters leave, as candidates."""
    order = np.argsort(entry, kind="stable")
    key, entry = key[order], entry[order]
    keys, groups, everywhere = [_NONE], [_NONE], [whole]
    for at in np.split(np.arange(len(entry)), np.flatnonzero(np.diff(entry)) + 1):
        if not len(at):
            continue
        one, mine = footers[int(entry[at[0]])], key[at]
        assert one.filter is not None, "footers without a filter are among the whole ones"
        try:
            found = mine[hudi_bloom.may_contain(one.filter, one.kind, texts.take(pa.array(mine)))]
        except ValueError:  # no filter of a kind that is known
            everywhere.append(np.array([one.group]))
            continue
        keys.append(found)
        groups.append(np.full(len(found), one.group))
    return Candidates(np.concatenate(keys), np.concatenate(groups), np.unique(np.concatenate(everywhere)))
