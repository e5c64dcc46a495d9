"""The difference between two snapshots by file and position, without the records between them."""

from __future__ import annotations

import numpy as np
from pyroaring import BitMap

from indexes.base import Int64Array
from mdt.metadata.snapshot.snapshot import Snapshot


def rows_only_in(state: Snapshot, baseline: Snapshot | None) -> tuple[Int64Array, Int64Array]:
    """Return the live rows of ``state`` that are not live at the same place in ``baseline``.

    The result is (file number, position), int64[n] each. If ``baseline`` is None, all live rows are
    returned. A segment never changes except for its deleted rows, and its id is never reused.
    Therefore a file in both snapshots with equal numbers of deleted rows is skipped.
    """
    numbers = state.live_numbers
    numbers_in_baseline, dead = np.full((2, len(numbers)), -1, np.int64)
    if baseline is not None:
        numbers_in_baseline = _numbers_in(baseline, state.segment_ids[numbers])
        dead[numbers_in_baseline >= 0] = baseline.dead_rows[
            numbers_in_baseline[numbers_in_baseline >= 0]
        ]
    differs = np.flatnonzero(dead != state.dead_rows[numbers])
    parts = [np.empty(0, np.int64)]
    for number, number_in_baseline in zip(
        numbers[differs].tolist(), numbers_in_baseline[differs].tolist(), strict=True
    ):
        rows = BitMap(range(int(state.rows[number]))) - (state.vector(number) or BitMap())
        if baseline is not None and number_in_baseline >= 0:
            rows &= baseline.vector(number_in_baseline) or BitMap()
        parts.append(np.asarray(rows.to_array()).astype(np.int64) | number << 32)
    places = np.concatenate(parts)
    return places >> 32, places & 0xFFFFFFFF


def _numbers_in(state: Snapshot, segments: Int64Array) -> Int64Array:
    """Return the number of the live file of each segment, int64[n], or -1."""
    if not len(state):
        return np.full(len(segments), -1, np.int64)
    ids = state.segment_ids[state.live_numbers]
    at = np.minimum(np.searchsorted(ids, segments), len(ids) - 1)
    return np.where(ids[at] == segments, state.live_numbers[at], -1)
