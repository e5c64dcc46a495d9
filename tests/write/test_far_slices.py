"""Data files on object stores: scans and rewrites read them in few requests, in parallel."""

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
    """Records requests for data files, each of which takes ``seconds``.

    sizes: Bytes returned by each request.
    most: Largest number of requests at the same time.
    """

    def __init__(self, inner, seconds=0.0):
        super().__init__(inner)
        self.sizes: list[int] = []
        self.seconds, self.now, self.most, self.lock = seconds, 0, 0, Lock()

    def _look(self, name, path, act):
        content = super()._look(name, path, act)
        if path.startswith(".hoodie") or not name.startswith("read"):
            return content
        with self.lock:
            self.sizes.append(memoryview(content).nbytes)  # type: ignore[arg-type]
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(self.seconds)
        with self.lock:
            self.now -= 1
        return content


@pytest.fixture(scope="module")
def large():
    """Return a table of one file larger than a megabyte with several row groups."""
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


def test_a_scan_reads_a_large_file_in_few_ranges(large):
    storage = Watched(large.copy())
    rows = mdt.open(storage).scan().to_arrow()
    assert rows.sort_by("id").equals(mdt.open(large).scan().to_arrow().sort_by("id"))
    (name,) = mdt.open(large).files()["name"].to_pylist()
    stored = large.size(name)
    assert len(storage.sizes) <= 8 + 1, (
        "one for each row group, because Hudi's columns end it, and the footer"
    )
    assert sum(storage.sizes) < stored


def test_a_scan_of_one_column_reads_only_its_bytes(large):
    storage = Watched(large.copy())
    table = mdt.open(storage)
    file_bytes = sum(table.files()["size"].to_pylist())
    assert table.scan(columns=["v2"]).to_arrow()["v2"].null_count == 0
    assert sum(storage.sizes) < file_bytes / 4


def test_a_flipped_byte_in_a_combined_read_is_detected(large):
    damaged = large.copy()
    (name,) = mdt.open(large).files()["name"].to_pylist()
    data = bytearray(damaged.read(name))
    data[len(data) // 2] ^= 1
    damaged.replace(name, bytes(data))
    with pytest.raises(Corrupt, match="not as it was written"):
        mdt.open(Watched(damaged)).scan().to_arrow()


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_small_files_that_are_rewritten_are_read_in_parallel(table_type):
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
