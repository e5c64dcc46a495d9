"""Check summaries of shards: they answer about the rows of each of their segments as a summary of
these alone does.

While all of its segments are live, a summary is made again.  Once some are gone its bytes cannot be
made any more, so it is asked about values of those that are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes.base import SkippingIndex, Summary, whole
from indexes.predicate import Leaf, matches
from mdt.metadata.files.file_group import SummaryRef
from mdt.metadata.files.segment_columns import read_columns
from mdt.metadata.metadata import Metadata
from mdt.metadata.skipping_indexes import Parts, index_of, top_levels, values_of
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.metadata.statistics.index_summaries import Parsed
from mdt.parquet.segment import Segment
from mdt.plan.shard_rows import cut
from mdt.write.summarize import summaries_of_shard, summarize_indexes

VALUES_ASKED = 30
"""Values of a segment, spread over its distinct ones, about which the summary of a shard is asked:
some 50 µs each.
"""
_EXACT = ("bitmap/", "text/")
"""Indexes whose answers depend on nothing but the rows that they are about."""
_COLUMN = "values"


def remade(metadata: Metadata, snapshot: Snapshot, threads: Executor) -> frozenset[tuple[str, int]]:
    """Return the summaries, by index and shard, that the rows of the shard's live segments give
    again, byte for byte.
    """
    found = [
        (spec, shard) for spec in snapshot.definition.indexes for shard in _several(snapshot, spec)
    ]
    same = threads.map(lambda one: _is_remade(metadata, snapshot, *one), found)
    return frozenset(one for one, equal in zip(found, same, strict=True) if equal)


def _several(snapshot: Snapshot, spec: str) -> list[int]:
    """Return the shards of several live files that an index covers."""
    shards, count = np.unique(snapshot.shards.of_file[snapshot.covered(spec)], return_counts=True)
    several: list[int] = shards[count > 1].tolist()
    return several


def _is_remade(metadata: Metadata, snapshot: Snapshot, spec: str, shard: int) -> bool:
    if isinstance(index_of(spec)[1], str):
        return False
    top = top_levels(snapshot.definition.schema, [spec])
    members = snapshot.shards.members(shard)
    mine = members[snapshot.live[members]]
    (summary,) = snapshot.index_summaries(spec, np.array([shard]))
    assert summary is not None, "it is covered"
    with suppress(Exception):
        # a file, the summary or the index may be broken: then each segment is looked at
        files = []
        for segment in snapshot.files.segments(mine):
            table = read_columns(
                metadata.storage, snapshot.definition, segment, top, use_threads=False
            )
            files.append((segment.first_row, summarize_indexes([spec], table, segment.row_groups)))
        fresh = summaries_of_shard([spec], files)[spec]
        return fresh == stored_bytes(metadata, summary)
    return False


def stored_bytes(metadata: Metadata, summary: SummaryRef) -> bytes:
    """Return the bytes of a summary.  Raises Corrupt if they are damaged."""
    return (
        summary
        if isinstance(summary, bytes)
        else metadata.objects.read(summary, verify=True).to_pybytes()
    )


def is_right(
    metadata: Metadata, spec: str, summary: SummaryRef, segment: Segment, table: pa.Table
) -> bool:
    """Return whether the summary of a shard says of one of its segments, whose rows are ``table``,
    what is so.

    An index that may have failed proves nothing then, and is right.
    """
    parsed, index = index_of(spec)
    found = summarize_indexes([spec], table, segment.row_groups)
    if not isinstance(index, SkippingIndex) or spec not in {*found.columns, *found.parts}:
        return True
    if stored_bytes(metadata, summary) == summaries_of_shard(
        [spec], [(segment.first_row, found)]
    ).get(spec):
        return True
    try:
        if index.finds_rows:
            joint = metadata.summaries.open(index, summary)
            alone = Parsed(index.summarize(found.columns[spec]))
            return agrees(
                index, joint, segment.first_row, alone, values_of(table, parsed.columns, index)
            )
        fresh = [part for _, part in found.parts[spec]]
        parts = Parts(metadata.summaries.open(index, summary))
        stored = parts.within(segment.first_row, segment.first_row + segment.rows, len(fresh))
        return [bytes(whole(part)) for part in stored] == fresh
    except ValueError:
        return False


def agrees(
    index: SkippingIndex, joint: Summary, first: int, alone: Summary, values: pa.ChunkedArray
) -> bool:
    """Return whether ``joint`` finds the same of a segment's rows, from its position ``first`` on,
    as ``alone`` does.

    ``values``: the segment's column.  An index of another package may find more, but all that
    match.
    """
    for leaf in _leaves(index, values):
        try:
            (found,), (expected,) = (index.rows([one], leaf, values.type) for one in (joint, alone))
        except ValueError:
            return False
        if found is None:
            continue
        mine = next(cut(found, np.array([first]), np.array([len(values)]))) if found else found
        if expected is None or not index.name.startswith(_EXACT):
            here = matches(leaf, pa.table({_COLUMN: values})).to_numpy()
            if BitMap(np.flatnonzero(here).astype(np.uint32)) - mine:
                return False
        elif mine != expected:
            return False
    return True


def _leaves(index: SkippingIndex, values: pa.ChunkedArray) -> Iterator[Leaf]:
    """Yield tests that ``index`` knows: is a value null, has it the words of this one, or is it
    this one.
    """
    distinct = pc.unique(values).drop_null()
    step = max(1, -(-len(distinct) // VALUES_ASKED))
    some = distinct.take(pa.array(np.arange(0, len(distinct), step))).to_pylist()
    words = [Leaf(_COLUMN, "match", value) for value in some if isinstance(value, str)]
    asked = [leaf for leaf in words if index.can_test(leaf, values.type)] or [
        Leaf(_COLUMN, "=", value) for value in some
    ]
    for leaf in (Leaf(_COLUMN, "is null", None), *asked):
        if index.can_test(leaf, values.type):
            yield leaf
