"""What a few row groups say of a whole table: about how many distinct values a column has, and which share of the rows a condition leaves.

For an optimizer that asks for numbers that no index knows.  The row groups are the first ones of a few files that lie far apart; their rows are
neighbours, so both numbers are guesses, and the guess at distinct values is meant to be too small rather than too large.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexes.predicate import And, Leaf, Predicate, Unknown, evaluate, leaves
from mdt.metadata.metadata import Metadata
from mdt.metadata.recent import Recent
from mdt.metadata.snapshot import Snapshot
from mdt.plan.planner import ScanPlan, SegmentScan
from mdt.plan.position_search import conjuncts_of
from mdt.scan.reader import read

FILES = 3
SHARE_MIN = 0.01
"""No condition is said to leave fewer rows: it may hold for rows that stand elsewhere."""
_KEPT = 512


class Samples:
    """Samples of the states of one table, by the files that they are of; safe for many threads."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._distinct: Recent[tuple[tuple[int, ...], str], tuple[int, int, int]] = Recent(_KEPT)
        self._shares: Recent[tuple[tuple[int, ...], Predicate], float] = Recent(_KEPT)

    def distinct(self, snapshot: Snapshot, column: str) -> int:
        """Return about how many values ``column`` has, null aside; O(rows of the sample), which it reads at the first time.

        Values that occur once in the sample of n rows stand for sqrt(N / n) values of the N rows, others for themselves: the estimator GEE of
        Charikar, Chaudhuri, Motwani and Narasayya, "Towards estimation error guarantees for distinct values", PODS 2000.
        """
        scans = _scans(snapshot)
        key = _ids(snapshot, scans), column
        known = self._distinct.get(key)
        if known is None:
            values = self._rows(snapshot, scans, column, None).column(column).drop_null()
            counts = pc.value_counts(values).field("counts").to_numpy()
            known = self._distinct.put(key, (int(counts.sum()), len(counts), int((counts == 1).sum())))
        sampled, values_in, once = known
        rows = int((snapshot.rows - snapshot.dead_rows).sum())
        return min(rows, round(once * math.sqrt(max(1.0, rows / max(1, sampled)))) + values_in - once)

    def share(self, snapshot: Snapshot, predicate: Predicate) -> float:
        """Return about which share of the rows ``predicate`` leaves, SHARE_MIN at least; O(rows of the sample), which it reads at the first time."""
        scans = _scans(snapshot)
        key = _ids(snapshot, scans), predicate
        known = self._shares.get(key)
        if known is None:
            column = next(leaves(predicate)).column
            every = len(self._rows(snapshot, scans, column, None))
            left = len(self._rows(snapshot, scans, column, predicate))
            known = self._shares.put(key, max(SHARE_MIN, left / every) if every else 1.0)
        return known

    def _rows(
        self, snapshot: Snapshot, scans: tuple[SegmentScan, ...], column: str, predicate: Predicate | None
    ) -> pa.Table:
        found = list(read(self._metadata, ScanPlan(snapshot, predicate, scans, ()), (column,), threads=1))
        return pa.concat_tables(found) if found else pa.table({column: pa.array([], pa.null())})


def unknown_to_statistics(predicate: Predicate) -> Predicate | None:
    """Return the conditions, all of which must hold, that bounds and numbers of values say nothing of: those on parts of texts. None without."""
    found = tuple(filter(_is_of_parts, conjuncts_of(predicate)))
    return And(found) if found else None


def _is_of_parts(condition: Predicate) -> bool:
    """Return whether a condition tests parts of texts, and nothing else: what is not understood cannot be tested on a sample."""
    return next(leaves(condition), None) is not None and evaluate(condition, _tests_parts, all, all)


def _tests_parts(leaf: Leaf | Unknown) -> bool:
    return isinstance(leaf, Leaf) and leaf.op in ("starts with", "like", "not like", "match", "not match")


def _scans(snapshot: Snapshot) -> tuple[SegmentScan, ...]:
    """Return the first row groups of some files with rows, spread evenly."""
    live = np.flatnonzero(snapshot.has_rows)
    at = np.unique(np.linspace(0, max(0, len(live) - 1), FILES).round().astype(int))
    return tuple(SegmentScan(number, (0,)) for number in live[at].tolist()) if len(live) else ()


def _ids(snapshot: Snapshot, scans: tuple[SegmentScan, ...]) -> tuple[int, ...]:
    return tuple(snapshot.segment(scan.file).id for scan in scans)
