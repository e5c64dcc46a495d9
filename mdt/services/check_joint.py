"""Check joint summaries: they answer about the rows of each of their segments as a summary of these alone does.

While all of its segments are live, a joint summary is made again.  Once some are gone its bytes cannot be made any more, so
it is asked about values of those that are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from indexes.base import SkippingIndex, Summary
from indexes.predicate import Leaf, matches
from mdt.metadata.file_group import Joint
from mdt.metadata.index_summaries import cut
from mdt.metadata.metadata import Metadata
from mdt.metadata.skipping import index_of, top_levels, values_of
from mdt.metadata.snapshot import Snapshot
from mdt.parquet.segment_rows import read_rows
from mdt.stores.object_range import ObjectRange

VALUES_ASKED = 30
"""Values of a segment, spread over its distinct ones, about which a joint summary is asked: some 50 µs each."""
_EXACT = ("bitmap/", "text/")
"""Indexes whose answers depend on nothing but the rows that they are about."""
_COLUMN = "values"


def remade(metadata: Metadata, snapshot: Snapshot, threads: Executor) -> frozenset[tuple[str, ObjectRange]]:
    """Return the joint summaries, by index, that the rows of their live segments give again, byte for byte."""
    found = [(spec, stored, files) for spec in snapshot.definition.indexes for stored, files in _whole(snapshot, spec)]
    same = threads.map(lambda one: _is_remade(metadata, snapshot, *one), found)
    return frozenset((spec, stored) for (spec, stored, _), equal in zip(found, same, strict=True) if equal)


def _whole(snapshot: Snapshot, spec: str) -> Iterator[tuple[ObjectRange, list[int]]]:
    """Yield the joint summaries of an index whose live segments follow each other from its first row on, and these."""
    members: dict[ObjectRange, list[tuple[int, int]]] = {}
    files = snapshot.live_numbers
    for file, ref in zip(files.tolist(), snapshot.index_summaries(spec, files), strict=True):
        if isinstance(ref, Joint):
            members.setdefault(ref.stored, []).append((ref.first, file))
    for stored, mine in members.items():
        mine.sort()
        ends = accumulate((int(snapshot.rows[file]) for _, file in mine), initial=0)
        if all(first == end for (first, _), end in zip(mine, ends, strict=False)):
            yield stored, [file for _, file in mine]


def _is_remade(metadata: Metadata, snapshot: Snapshot, spec: str, stored: ObjectRange, files: Sequence[int]) -> bool:
    parsed, index = index_of(spec)
    if not isinstance(index, SkippingIndex):
        return False
    top = top_levels(snapshot.definition.schema, [spec])
    with suppress(Exception):  # a file, the summary or the index may be broken: then each segment is looked at
        segments = snapshot.files.segments(np.array(files, np.int64))
        parts = [read_rows(metadata.storage, segment, top, use_threads=False) for segment in segments]
        columns = [values_of(part, parsed.columns, index) for part in parts]
        kept = metadata.objects.read(stored, verify=True).to_pybytes()
        return bool(index.summarize(pa.concat_arrays(columns)) == kept)
    return False


def agrees(index: SkippingIndex, joint: Summary, first: int, alone: Summary, values: pa.ChunkedArray) -> bool:
    """Return whether ``joint`` finds the same of a segment's rows, from its position ``first`` on, as ``alone`` does.

    ``values``: the segment's column.  An index of another package may find more, but all that match.
    """
    for leaf in _leaves(index, values):
        try:
            (found,), (expected,) = (index.rows([one], leaf, values.type) for one in (joint, alone))
        except ValueError:
            return False
        if found is None:
            continue
        mine = next(cut(found, np.array([first]), np.array([len(values)])))
        if expected is None or not index.name.startswith(_EXACT):
            here = matches(leaf, pa.table({_COLUMN: values})).to_numpy()
            if BitMap(np.flatnonzero(here).astype(np.uint32)) - mine:
                return False
        elif mine != expected:
            return False
    return True


def _leaves(index: SkippingIndex, values: pa.ChunkedArray) -> Iterator[Leaf]:
    """Yield tests that ``index`` knows: is a value null, has it the words of this one, or is it this one."""
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
