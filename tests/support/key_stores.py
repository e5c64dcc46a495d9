"""A check shared by the tests of key indexes outside the table: whether a store agrees with the
table.
"""

from __future__ import annotations

import numpy as np

import mdt
from mdt.metadata.keys import key_runs

Pairs = set[tuple[int, str]]


def assert_knows_the_table(table: mdt.Table) -> int:
    """Assert that the store has every key of the table's files with its file group. Return the
    number of these pairs.
    """
    metadata, snapshot = table.metadata, table.snapshot()
    assert table.check().ok
    index = metadata.key_index(snapshot)
    store = key_runs.store_of(metadata, snapshot, index)
    files = snapshot.live_numbers[snapshot.has_key_map[snapshot.live_numbers]]
    names = snapshot.files.column("file_id")
    expected: Pairs = set()
    for number, segment in zip(files.tolist(), snapshot.files.segments(files), strict=True):
        assert segment.key_map is not None
        hashes = metadata.objects.key_map(segment.key_map).verify_all().hashes.hi.tolist()
        expected |= {(key, names[number].as_py()) for key in hashes}
    stored: Pairs = set()
    scopes = (
        [""]
        if snapshot.definition.is_global
        else set(snapshot.files.column("partition").to_pylist())
    )
    hashes = np.array(sorted({key for key, _ in expected}), np.uint64)
    for scope in scopes:
        with store.begin(write=False) as view:
            items = view.items(key_runs.prefix(snapshot.definition.table_id, scope))
            runs = [key_runs.decode(bytes(data)) for _, data in items]
        for run in runs:
            pairs = index.locate(
                run.data, np.empty(len(hashes)), key_runs.KeyHashes(hashes, hashes)
            )
            stored |= {
                (int(hashes[key]), run.groups[group])
                for key, group in zip(pairs.key, pairs.group, strict=True)
            }
    live = {name for _, name in expected}
    assert {pair for pair in stored if pair[1] in live} >= expected
    return len(expected)
