"""Usage statistics of a query: the selectivity of its tests, the bytes that it reads, and the bytes
that it would read with an exact index on each column.

Selectivity is estimated from a sample: blocks of adjacent rows, evenly spread over the table. An
exact index is assumed to read the blocks that contain a match, but not more than without it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from indexes.base import BoolArray, Int64Array
from indexes.predicate import Call, Predicate, bind, leaves
from mdt.errors import MdtError
from mdt.metadata.metadata import Metadata
from mdt.metadata.skipping_indexes import index_of
from mdt.metadata.snapshot.snapshot import Snapshot
from mdt.metadata.statistics.usage import ColumnUse, Counts, IndexUse, Sample, TestUse
from mdt.parquet.segment_rows import live_mask
from mdt.plan.planner import ScanPlan, explain
from mdt.plan.position_search import conjuncts_of
from mdt.scan.reader import read_places

BLOCK_ROWS = 1_024
"""Rows of a block, about as many as in a page of a narrow column."""
BLOCKS = 64
_EQUALITY = frozenset(("=", "<=>", "in", "is null"))
_TEXT = frozenset(("like", "starts with", "match"))
_NOT_NULL = frozenset(("is not null",))


def counts_of(metadata: Metadata, plan: ScanPlan) -> Counts:
    """Return the usage counts of a query. Samples each tested column once per checkpoint."""
    snapshot, now_us = plan.snapshot, metadata.storage.now_us()
    explanation, skipped = explain(plan), _bytes_not_in_blocks(plan)
    mean = explanation.bytes_total // max(1, explanation.files_total)
    counts = Counts(
        queries=1, indexes={spec: IndexUse(queries=1) for spec in snapshot.definition.indexes}
    )
    now_read = without = explanation.bytes_read - skipped
    for spec, count in plan.used_indexes().items():
        index = index_of(spec)[1]
        by_rows = not isinstance(index, str) and index.finds_rows
        saved = count * mean + skipped * by_rows
        counts.indexes[spec].add(IndexUse(0, 1, count, now_us, saved))
        without = max(without, now_read + saved)
    for column, kind, use in _uses(
        metadata, snapshot, list(_tests(plan.predicate)), now_read, without, explanation.bytes_total
    ):
        getattr(counts.columns.setdefault(column, ColumnUse()), kind).add(use)
    return counts


def bytes_read(plan: ScanPlan) -> int:
    """Return approximately how many bytes of data files a plan reads."""
    return explain(plan).bytes_read - _bytes_not_in_blocks(plan)


def _bytes_not_in_blocks(plan: ScanPlan) -> int:
    """Return approximately how many bytes of the row groups are skipped by position.

    A block is skipped if none of its rows may match. O(files that are read).
    """
    length, with_positions = (
        plan.snapshot.files.numpy("block_length"),
        [s for s in plan.segments if s.positions is not None],
    )
    files = np.array([scan.file for scan in with_positions], np.int64)
    saved = 0
    for scan, row_counts in zip(
        with_positions, plan.snapshot.files.values("row_group_rows", files), strict=True
    ):
        assert scan.positions is not None
        positions = np.asarray(scan.positions.to_array())
        rows_read = (
            sum(row_counts)
            if scan.row_groups is None
            else sum(row_counts[row_group] for row_group in scan.row_groups)
        )
        rows_skipped = rows_read - BLOCK_ROWS * len(np.unique(positions // BLOCK_ROWS))
        saved += int(length[scan.file]) * max(0, rows_skipped) // max(1, sum(row_counts))
    return saved


def _tests(predicate: Predicate | None) -> Iterator[tuple[str, str, Predicate]]:
    """Yield (column, kind of test, condition) for each conjunct on a single column.

    Spark adds "is not null" for each compared column. It does not count as a test of its own.
    """
    tests_by_column = []
    for condition in () if predicate is None else conjuncts_of(predicate):
        tests = list(leaves(condition))
        columns = {test.column for test in tests if not isinstance(test, Call)}
        if len(columns) == 1 and not any(isinstance(test, Call) for test in tests):
            tests_by_column.append((columns.pop(), frozenset(test.op for test in tests), condition))
    compared = {column for column, operators, _ in tests_by_column if operators != _NOT_NULL}
    for column, operators, condition in tests_by_column:
        if operators == _NOT_NULL and column in compared:
            continue
        kind = "range"
        if operators <= _EQUALITY:
            kind = "equality"
        elif operators <= _TEXT:
            kind = "text"
        yield column, kind, condition


def _uses(
    metadata: Metadata,
    snapshot: Snapshot,
    tests: Sequence[tuple[str, str, Predicate]],
    now_read: int,
    without: int,
    total: int,
) -> Iterator[tuple[str, str, TestUse]]:
    """Yield the use of each test.

    Indexes on all tested columns would save a certain number of bytes together, which is divided
    among the tests by their selectivity.

    Args:
        now_read: Bytes that the query reads.
        without: Bytes without any index.
        total: Bytes of the table.
    """
    hits = {}
    for test in tests:
        hit = _hit(metadata, snapshot, test[0], test[2])
        if hit is not None and len(hit):
            hits[test] = hit
    if not hits:
        return
    blocks = _sampled(metadata, snapshot).places // BLOCK_ROWS
    joint = len(np.unique(blocks[np.logical_and.reduce(list(hits.values()))])) / len(
        np.unique(blocks)
    )
    exact = min(now_read, round(total * joint))
    weight = {test: -math.log(max(float(hit.mean()), 0.5 / len(hit))) for test, hit in hits.items()}
    rows = int(snapshot.live_rows.sum())
    for test, hit in hits.items():
        share = weight[test] / (sum(weight.values()) or 1.0)
        saved = min(now_read - exact, round((without - exact) * share))
        yield (
            test[0],
            test[1],
            TestUse(1, round(rows * float(hit.mean())), without, without - saved),
        )


def _hit(metadata: Metadata, snapshot: Snapshot, column: str, test: Predicate) -> BoolArray | None:
    """Return a mask of the sampled rows that pass a test, bool[n], or None if it cannot be
    evaluated.
    """
    try:
        values = sample(metadata, snapshot, column)
        table = pa.table({column: values})
        return np.asarray(bind(test, table.schema)(table).to_numpy(zero_copy_only=False)).astype(
            bool
        )
    except (MdtError, pa.ArrowException, KeyError):
        return None


def sample(metadata: Metadata, snapshot: Snapshot, column: str) -> pa.Array:
    """Return values of ``column`` in sampled blocks of live rows.

    All columns use the same rows until the next checkpoint.
    """
    rows = _sampled(metadata, snapshot)
    cached = rows.values.get(column)
    if cached is not None:
        return cached
    table = read_places(metadata, snapshot, rows.places, (column,), threads=1)
    return rows.values.put(column, table.column(0).combine_chunks())


def _sampled(metadata: Metadata, snapshot: Snapshot) -> Sample:
    """Return the sampled rows of ``snapshot``, or of an earlier one on the same checkpoint."""
    samples, checkpoint = metadata.usage.samples, snapshot.checkpoint.seq
    cached = samples.get(checkpoint)
    if cached is not None and snapshot.continues(cached.snapshot):
        return cached
    samples.drop(checkpoint)
    return samples.put(checkpoint, Sample(snapshot, _places(snapshot)))


def _places(snapshot: Snapshot) -> Int64Array:
    """Return the places of the rows to sample: file number << 32 | position, ascending int64[n]."""
    files = snapshot.live_numbers[snapshot.has_rows[snapshot.live_numbers]]
    ends = np.cumsum(snapshot.rows[files])
    at = (
        np.linspace(0, max(0, int(ends[-1]) - 1), BLOCKS).astype(np.int64)
        if len(files)
        else np.empty(0, np.int64)
    )
    file_index = np.searchsorted(ends, at, side="right")
    first = (at - ends[file_index] + snapshot.rows[files[file_index]]) // BLOCK_ROWS * BLOCK_ROWS
    places = [np.empty(0, np.int64)]
    for file in np.unique(file_index).tolist():
        number = int(files[file])
        positions = (np.unique(first[file_index == file])[:, None] + np.arange(BLOCK_ROWS)).ravel()
        live = live_mask(int(snapshot.rows[number]), snapshot.vector(number), 0)
        positions = positions[positions < int(snapshot.rows[number])]
        places.append((number << 32) | (positions if live is None else positions[live[positions]]))
    return np.sort(np.concatenate(places))
