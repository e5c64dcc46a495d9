"""Parsed Parquet footers stay in the process: later reads of a file ask storage for less, and find
damage as before.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from obstore.store import MemoryStore

import mdt
from mdt.errors import Corrupt
from mdt.parquet import segment_rows
from mdt.parquet.segment_rows import read_rows
from mdt.scan import warm
from mdt.session import Recent
from mdt.stores.object_store import ObjectStorage

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.int64())])
FILES, ROWS = 3, 3_000


class CountingStorage(ObjectStorage):
    """An object store that knows how often data files were read."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__("memory:///t", store)
        self.reads = 0

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        self.reads += path.endswith(".parquet")
        return super().read(path, offset, length)

    def read_whole(self, path: str, bytes_max: int) -> bytes:
        self.reads += path.endswith(".parquet")
        return super().read_whole(path, bytes_max)


def rows(first: int = 0) -> pa.Table:
    ids = np.arange(first, first + FILES * ROWS)
    return pa.table([ids, [f"p{i % FILES}" for i in ids], ids * 7], schema=SCHEMA)


def filled(store: MemoryStore) -> MemoryStore:
    table = mdt.create(ObjectStorage("memory:///t", store), SCHEMA, ["id"], partition_by=["part"])
    table.bulk_insert(rows())
    return store


def reads_of_a_scan(table: mdt.Table) -> int:
    storage = table.storage
    assert isinstance(storage, CountingStorage)
    before = storage.reads
    assert sorted(table.scan(columns=["n"]).to_arrow()["n"].to_pylist()) == rows()["n"].to_pylist()
    return storage.reads - before


def test_a_small_remote_file_is_read_in_one_request() -> None:
    table = mdt.open(CountingStorage(filled(MemoryStore())))
    assert (reads_of_a_scan(table), reads_of_a_scan(table)) == (FILES, FILES)


def test_a_second_scan_of_remote_files_reads_no_footers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_rows, "FAR_OBJECT_WHOLE_BYTES_MAX", 0)
    table = mdt.open(CountingStorage(filled(MemoryStore())))
    first, second = reads_of_a_scan(table), reads_of_a_scan(table)
    assert second == FILES, "one request for the column of each file"
    assert first >= second + FILES
    assert table.scan("n >= 0").explain().caches["footers"] == (FILES, FILES)


def test_warming_reads_the_footers_before_the_first_scan() -> None:
    table = mdt.open(CountingStorage(filled(MemoryStore())))
    table.warm(["n"])
    assert reads_of_a_scan(table) == FILES


def test_warming_stops_when_the_cache_is_full_and_leaves_damaged_files_to_their_readers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = filled(MemoryStore())
    table = mdt.open(CountingStorage(store))
    monkeypatch.setattr(warm, "_AT_A_TIME", 1)
    table.metadata.objects.footers = Recent(1)
    table.warm()
    assert table.metadata.objects.footers.misses == 2, "the second made the first go"
    table.storage.replace(_data_files(table)[0], b"not Parquet")
    again = mdt.open(CountingStorage(store))
    again.warm()
    with pytest.raises(Corrupt, match="another size"):
        again.scan().to_arrow()


def _data_files(table: mdt.Table) -> list[str]:
    return [f"{file['partition']}/{file['name']}" for file in table.files().to_pylist()]


def test_a_file_that_was_cut_or_emptied_is_found_although_its_footer_is_known(
    tmp_path: Path,
) -> None:
    table = mdt.create(
        tmp_path / "t", SCHEMA, ["id"], partition_by=["part"], options={"mdt.durable": False}
    )
    table.bulk_insert(rows())
    table.scan().to_arrow()
    first, second, third = (tmp_path / "t" / path for path in _data_files(table))
    data = first.read_bytes()
    first.write_bytes(data[: len(data) // 2])
    with pytest.raises(Corrupt, match="another size"):
        table.scan().to_arrow()
    first.write_bytes(data)
    data = second.read_bytes()
    second.write_bytes(bytes(len(data)))
    with pytest.raises(Corrupt, match="not as it was written"):
        table.scan().to_arrow()
    second.write_bytes(data)
    third.unlink()
    with pytest.raises(Corrupt):
        table.scan().to_arrow()


def test_what_has_no_cache_reads_the_footer_that_is_there(tmp_path: Path) -> None:
    table = mdt.create(tmp_path / "t", SCHEMA, ["id"], options={"mdt.durable": False})
    table.bulk_insert(rows())
    table.scan().to_arrow()
    file = tmp_path / "t" / _data_files(table)[0].removeprefix("/")
    data = file.read_bytes()
    file.write_bytes(data[:-8] + bytes(4) + data[-4:])
    assert not table.check().ok
    with pytest.raises(Corrupt, match="not as it was written"):
        read_rows(table.storage, table.snapshot().segment(0), SCHEMA)


def test_look_ups_by_pages_need_no_footer() -> None:
    table = mdt.open(CountingStorage(filled(MemoryStore())))
    assert table.scan("id = 5").to_arrow()["n"].to_pylist() == [35]
    assert "footers" not in table.scan("id = 5").explain().caches
