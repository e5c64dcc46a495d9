"""Data files on object stores: what is read of them for scans and for the files that take their
place, in few requests and side by side.
"""

from __future__ import annotations

import time
from threading import Lock

import numpy as np
import pyarrow as pa
import pytest
from texts import columns
from worlds import COW, MOR

import mdt
from mdt.errors import Corrupt
from mdt.limits import FAR_FILES_READ_AT_ONCE, FAR_OBJECT_WHOLE_BYTES_MAX
from mdt.stores.storage import MemoryStorage
from mdt.testing.slow import FarStorage

ROWS = 40_000
SCHEMA = pa.schema([("id", pa.int64()), *((f"v{n}", pa.float64()) for n in range(6))])


class Watched(FarStorage):
    """``sizes``: bytes of each request for a data file; ``most``: how many of them at the same
    time, where each takes ``seconds``.
    """

    def __init__(self, inner, seconds=0.0):
        super().__init__(inner)
        self.sizes: list[int] = []
        self.seconds, self.now, self.most, self.lock = seconds, 0, 0, Lock()

    def _look(self, name, path, act):
        found = super()._look(name, path, act)
        if path.startswith(".hoodie") or not name.startswith("read"):
            return found
        with self.lock:
            self.sizes.append(memoryview(found).nbytes)  # type: ignore[arg-type]
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(self.seconds)
        with self.lock:
            self.now -= 1
        return found


@pytest.fixture(scope="module")
def large():
    """Return a table of one file above a megabyte, of several row groups."""
    storage = MemoryStorage()
    table = mdt.create(
        storage, SCHEMA, key=["id"], table_type=COW, options={"mdt.row.group.rows": 5000}
    )
    random = np.random.default_rng(0)
    table.bulk_insert(
        pa.table([np.arange(ROWS), *(random.random(ROWS) for _ in range(6))], schema=SCHEMA)
    )
    (size,) = table.files()["size"].to_pylist()
    assert size > FAR_OBJECT_WHOLE_BYTES_MAX
    return storage


def test_a_scan_asks_for_the_columns_of_a_large_file_in_few_ranges(large):
    storage = Watched(large.copy())
    found = mdt.open(storage).scan().to_arrow()
    assert found.sort_by("id").equals(mdt.open(large).scan().to_arrow().sort_by("id"))
    (name,) = mdt.open(large).files()["name"].to_pylist()
    stored = large.size(name)
    assert len(storage.sizes) <= 8 + 1, (
        "one for each row group, which Hudi's columns end, and the footer"
    )
    assert sum(storage.sizes) < stored


def test_no_other_columns_are_asked_for(large):
    storage = Watched(large.copy())
    table = mdt.open(storage)
    whole = sum(table.files()["size"].to_pylist())
    assert table.scan(columns=["v2"]).to_arrow()["v2"].null_count == 0
    assert sum(storage.sizes) < whole / 4


def test_a_flipped_byte_in_what_was_asked_for_together_is_told(large):
    damaged = large.copy()
    (name,) = mdt.open(large).files()["name"].to_pylist()
    data = bytearray(damaged.read(name))
    data[len(data) // 2] ^= 1
    damaged.replace(name, bytes(data))
    with pytest.raises(Corrupt, match="not as it was written"):
        mdt.open(Watched(damaged)).scan().to_arrow()


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_many_small_files_that_are_written_anew_are_read_side_by_side(table_type):
    inner, partitions = MemoryStorage(), 12
    schema = columns("id int64, city string, v int64")

    def rows(v):
        ids = list(range(partitions * 10))
        return pa.table([ids, [f"c{i % partitions}" for i in ids], [v] * len(ids)], schema=schema)

    table = mdt.create(
        inner,
        schema,
        key=["id"],
        partition_by=["city"],
        table_type=table_type,
        options={"mdt.services.auto": False},
    )
    table.upsert(rows(1))
    if table_type == MOR:
        table.upsert(rows(2))
    storage = Watched(inner, seconds=0.05)
    far = mdt.open(storage)
    if table_type == MOR:
        far.compact()
    else:
        far.upsert(rows(2))
    assert min(FAR_FILES_READ_AT_ONCE, partitions) // 2 < storage.most <= FAR_FILES_READ_AT_ONCE
    assert far.scan("v = 2").count() == partitions * 10
