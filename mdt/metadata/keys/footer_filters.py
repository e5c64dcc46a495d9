"""Finds candidate file groups by the key ranges and Bloom filters in base file footers.

This is Hudi's Bloom index without the metadata table.  It reads a footer per file group in
question.
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
    """The key range and filter in the footer of a file group's base file, None if missing."""

    group: int
    low: str | None = None
    high: str | None = None
    filter: bytes | None = None
    kind: str = ""


def propose(
    metadata: Metadata,
    snapshot: Snapshot,
    options: Options,
    texts: pa.Array,
    partition: npt.NDArray[np.object_] | None,
) -> Candidates:
    """Return a superset of the file groups of n record keys; ``whole`` is ascending.

    ``texts`` is string[n].  ``partition`` has the path of each key, if only rows there matter.
    File groups without a base file, a filter or a readable footer may hold every key.  Reads one
    footer per file group in question.
    """
    groups = snapshot.live_groups
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
    whole_groups = [footer.group for footer in footers if footer.filter is None]
    keys, groups_found = [_NONE], [_NONE]
    for footer, in_range in _in_range(
        options, [footer for footer in footers if footer.filter is not None], texts
    ):
        in_partition = in_range[key_place[in_range] == place_of[footer.group]]
        try:
            maybe = in_partition[
                hudi_bloom.may_contain(
                    footer.filter or b"", footer.kind, texts.take(pa.array(in_partition))
                )
            ]
        except ValueError:  # an unknown kind of filter
            whole_groups.append(footer.group)
            continue
        keys.append(maybe)
        groups_found.append(np.full(len(maybe), footer.group))
    return Candidates(
        np.concatenate(keys), np.concatenate(groups_found), np.array(sorted(whole_groups), np.int64)
    )


def _read(metadata: Metadata, snapshot: Snapshot, group: int) -> _Footer:
    """Return the key range and filter of a group's base file, its oldest file."""
    first = int(snapshot.file_groups.members(group)[0])
    if snapshot.kind[first] != BASE:
        return _Footer(group)
    try:
        segment = open_segment(
            metadata.storage, snapshot.segment(first), footers=metadata.objects.footers
        )
        texts = {name.decode(): text for name, text in (segment.metadata.metadata or {}).items()}
        low, high = (texts[name].decode() if name in texts else None for name in (MIN_KEY, MAX_KEY))
        return _Footer(group, low, high, texts.get(FILTER), texts.get(FILTER_TYPE, b"").decode())
    except (Corrupt, UnicodeDecodeError):
        return _Footer(group)


def _in_range(
    options: Options, footers: Sequence[_Footer], texts: pa.Array
) -> Iterator[tuple[_Footer, Int64Array]]:
    """Yield footers with the keys in their range, or with all keys without
    ``options.bloom_ranges``.

    Batches of footers have at most ``options.bloom_pairs`` pairs.
    """
    if not footers:
        return
    if not options.bloom_ranges:
        every = np.arange(len(texts))
        yield from ((footer, every) for footer in footers)
        return
    bounds = (
        pa.array([getattr(footer, name) for footer in footers], pa.string())
        for name in ("low", "high")
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
    for footer, in_range in zip(footers, np.split(pairs.key[order], ends[:-1]), strict=True):
        if len(in_range):
            yield footer, in_range
