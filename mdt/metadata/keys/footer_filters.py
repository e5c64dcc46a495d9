"""Which file groups may hold keys, by the ranges and Bloom filters in the footers of base files.

What Hudi's Bloom index does where it may not ask the metadata table: a footer is read for every
file group that is in question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexes import hudi_bloom
from indexes.arrays import distinct_texts
from indexes.base import Candidates, Int64Array
from indexes.interval_tree import IntervalList, IntervalTree
from mdt.config import Options
from mdt.errors import Corrupt
from mdt.hudi.base_file import FILTER, FILTER_TYPE, MAX_KEY, MIN_KEY
from mdt.limits import THREADS_MAX
from mdt.metadata.files.file_group import BASE
from mdt.metadata.metadata import Metadata
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.parquet.segment_rows import open_segment

_NONE: Int64Array = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class _Footer:
    """What the footer of a file group's base file says of its keys; None: nothing."""

    group: int
    low: str | None = None
    high: str | None = None
    filter: bytes | None = None
    kind: str = ""


def proposed(
    metadata: Metadata,
    snapshot: Snapshot,
    options: Options,
    texts: pa.Array,
    partition: npt.NDArray[np.object_] | None,
) -> Candidates:
    """Return a superset of where n record keys live, by numbers of file groups; ``whole`` rises.

    ``texts``: string[n].  ``partition``: path of each key, if only rows there matter.  A file group
    without a base file, or whose footer has no filter or cannot be read, may hold every key.
    O(file groups in question), a footer each.
    """
    groups = np.unique(snapshot.file_groups.of_files(snapshot.live_numbers))
    paths, key_place = distinct_texts(
        np.full(len(texts), "", object) if partition is None else partition
    )
    place = (
        np.zeros(len(groups), np.int64)
        if partition is None
        else snapshot.file_groups.places(groups, paths)
    )
    groups, place = groups[place >= 0], place[place >= 0]
    place_of = dict(zip(groups.tolist(), place.tolist(), strict=True))
    with ThreadPoolExecutor(
        min(THREADS_MAX, options.bloom_parallelism or options.threads("writer"))
    ) as pool:
        footers = list(pool.map(lambda group: _read(metadata, snapshot, group), groups.tolist()))
    whole = [one.group for one in footers if one.filter is None]
    keys, found = [_NONE], [_NONE]
    for one, in_range in _in_range(
        options, [one for one in footers if one.filter is not None], texts
    ):
        mine = in_range[key_place[in_range] == place_of[one.group]]
        try:
            maybe = mine[
                hudi_bloom.may_contain(one.filter or b"", one.kind, texts.take(pa.array(mine)))
            ]
        except ValueError:  # no filter of a kind that is known
            whole.append(one.group)
            continue
        keys.append(maybe)
        found.append(np.full(len(maybe), one.group))
    return Candidates(
        np.concatenate(keys), np.concatenate(found), np.array(sorted(whole), np.int64)
    )


def _read(metadata: Metadata, snapshot: Snapshot, group: int) -> _Footer:
    """Return what the base file of a group, the oldest of its files, says of its keys."""
    first = int(snapshot.file_groups.members(group)[0])
    if snapshot.kind[first] != BASE:
        return _Footer(group)
    try:
        opened = open_segment(
            metadata.storage, snapshot.segment(first), footers=metadata.objects.footers
        )
        said = {name.decode(): text for name, text in (opened.metadata.metadata or {}).items()}
        low, high = (said[name].decode() if name in said else None for name in (MIN_KEY, MAX_KEY))
        return _Footer(group, low, high, said.get(FILTER), said.get(FILTER_TYPE, b"").decode())
    except (Corrupt, UnicodeDecodeError):
        return _Footer(group)


def _in_range(
    options: Options, footers: Sequence[_Footer], texts: pa.Array
) -> Iterator[tuple[_Footer, Int64Array]]:
    """Yield footers with the keys in their range, or with all; of several footers no more pairs at
    a time than ``options.bloom_pairs``.
    """
    if not footers:
        return
    if not options.bloom_ranges:
        every = np.arange(len(texts))
        yield from ((one, every) for one in footers)
        return
    bounds = (
        pa.array([getattr(one, name) for one in footers], pa.string()) for name in ("low", "high")
    )
    ranges = (IntervalTree if options.bloom_tree else IntervalList)(*bounds)
    if len(footers) > 1 and int(ranges.counts(texts).sum()) > options.bloom_pairs:
        middle = len(footers) // 2
        yield from _in_range(options, footers[:middle], texts)
        yield from _in_range(options, footers[middle:], texts)
        return
    pairs = ranges.stab(texts)
    order = np.argsort(pairs.group, kind="stable")
    ends = np.cumsum(np.bincount(pairs.group, minlength=len(footers)))
    for one, in_range in zip(footers, np.split(pairs.key[order], ends[:-1]), strict=True):
        if len(in_range):
            yield one, in_range
