"""The files of a table as they are published to other formats."""

from __future__ import annotations

import random

import numpy as np
from worlds import MOR, make, rows

from mdt.formats import keeping
from mdt.formats.data_files import files_of
from mdt.formats.delta.log import DeltaLog
from mdt.stores.storage import MemoryStorage

DELTA = DeltaLog()
ON = {"mdt.formats": "hudi,delta", "mdt.services.auto": "false"}


def test_changes_of_all_commits_add_up_to_the_files_of_the_newest_snapshot():
    table = make(MemoryStorage(), MOR, "record", **ON)
    random_source, files = random.Random(3), {}
    for ts in range(1, 25):
        table.upsert(rows(random_source.sample(range(40), 6), ts, 1.0))
        if ts % 7 == 0:
            table.compact()
        if ts % 5 == 0:
            table.metadata.compact()
    metadata, newest = table.metadata, table.snapshot()
    for record in metadata.records(1, newest.seq):
        [derivation] = keeping.derive(metadata, [DELTA], record, newest)
        change = derivation.change
        for file in change.removed:
            removed = files.pop(file.path)
            assert (removed.dead, removed.rows, removed.size) == (file.dead, file.rows, file.size)
        files |= {file.path: file for file in change.added}
    assert [files[path] for path in sorted(files)] == files_of(newest, keeping.twins_of(metadata))
    assert any(file.stats for file in files.values())


def test_statistics_of_selected_files_equal_those_taken_from_all_files():
    table = make(MemoryStorage(), MOR, "record", **ON)
    for ts in range(1, 40):
        table.upsert(rows(range(ts % 5, 20, 3), ts, ts / 2))
        if ts == 20:
            table.metadata.compact()
    snapshot, names = table.snapshot(), ["fare", "ts", "no such column"]
    random_source = np.random.default_rng(2)
    for count in (0, 1, 5, snapshot.numbered):
        numbers = np.sort(random_source.choice(snapshot.numbered, count, replace=False))
        tables = snapshot.column_stats_of(names, numbers)
        for name, stats in zip(names[:2], tables, strict=False):
            expected = snapshot.column_stats(name).take(numbers)
            assert stats.to_pylist() == expected.to_pylist()
        assert tables[2]["values"].null_count == count
