"""Parallel work: results with and without threads are the same, and errors are raised in the
caller.
"""

import threading
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from indexes import arrays, key_hash
from indexes.arrays import map_parallel, spans
from indexes.keys.record import RecordKeyIndex

MANY = arrays.MANY_ROWS


@pytest.mark.parametrize(
    ("threads", "rows", "expected"), [(2, MANY, True), (1, MANY, False), (2, MANY - 1, False)]
)
def test_many_rows_are_processed_by_several_threads(monkeypatch, threads, rows, expected):
    monkeypatch.setattr(pa, "cpu_count", lambda: threads)
    results = map_parallel(lambda piece: (piece, threading.current_thread()), range(50), rows)
    pieces, runners = zip(*results, strict=True)
    assert pieces == tuple(range(50))
    assert (threading.current_thread() not in runners) == expected
    with pytest.raises(ZeroDivisionError):
        map_parallel(lambda piece: 1 // piece, [1, 0, 2], rows)


@pytest.mark.parametrize(("rows", "size"), [(0, 3), (1, 3), (3, 3), (10, 3)])
def test_spans_cover_all_rows_in_order(rows, size):
    assert [n for span in spans(rows, size) for n in range(rows)[span]] == list(range(rows))


def test_hashes_and_key_parts_are_the_same_for_any_number_of_threads(monkeypatch):
    keys = pa.array([f"k{n}" * (1 + n % 3) for n in range(MANY + 5)])
    cuts = [0, 100_000, 100_000, 200_000, len(keys)]
    groups = [keys.slice(first, last - first) for first, last in pairwise(cuts)]
    results = []
    for count in (1, 3):
        monkeypatch.setattr(pa, "cpu_count", lambda count=count: count)
        hashes = [key_hash.hash_keys(group, 9) for group in groups]
        whole = key_hash.hash_keys(keys, 9)
        assert np.array_equal(
            np.concatenate([group_hashes.hi for group_hashes in hashes]), whole.hi
        )
        results.append(
            (
                whole.hi.tobytes(),
                whole.lo.tobytes(),
                RecordKeyIndex().build_of_groups(groups, hashes),
            )
        )
    assert results[0] == results[1]
