"""Parsed Parquet footers are cached in the process. Later reads of a file make fewer requests and
still detect damage.
"""

import numpy as np
import pyarrow as pa
import pytest
from obstore.store import MemoryStore
from texts import columns
from trees import create

import mdt
from mdt.errors import Corrupt
from mdt.parquet import segment_rows
from mdt.parquet.segment_rows import read_columns
from mdt.scan import warm
from mdt.session import Recent
from mdt.stores.object_store import ObjectStorage

SCHEMA = columns("id int64, part string, n int64")
FILES, ROWS = 3, 3_000


class CountingStorage(ObjectStorage):
    """An object store that counts the reads of data files."""

    reads = 0

    def read(self, path, *part):
        self.reads += path.endswith(".parquet")
        return super().read(path, *part)

    def read_whole(self, path, bytes_max):
        self.reads += path.endswith(".parquet")
        return super().read_whole(path, bytes_max)


IDS = np.arange(FILES * ROWS)
DATA = pa.table([IDS, [f"p{i % FILES}" for i in IDS], IDS * 7], schema=SCHEMA)


@pytest.fixture
def table():
    store = MemoryStore()
    storage = ObjectStorage("memory:///t", store)
    mdt.create(storage, SCHEMA, ["id"], partition_by=["part"]).bulk_insert(DATA)
    return mdt.open(CountingStorage("memory:///t", store))


def reads_of_a_scan(table):
    before = table.storage.reads
    assert sorted(table.scan(columns=["n"]).to_arrow()["n"].to_pylist()) == DATA["n"].to_pylist()
    return table.storage.reads - before


def test_a_small_remote_file_is_read_in_one_request_with_and_without_warming(table):
    assert (reads_of_a_scan(table), reads_of_a_scan(table)) == (FILES, FILES)
    table.warm(["n"])
    assert reads_of_a_scan(table) == FILES


def test_look_ups_by_pages_read_no_footer(table):
    assert table.scan("id = 5").to_arrow()["n"].to_pylist() == [35]
    assert "footers" not in table.scan("id = 5").explain().caches


@pytest.mark.parametrize("is_warm", [False, True], ids=["cold", "warm"])
def test_only_the_first_scan_of_large_remote_files_reads_footers(table, is_warm, monkeypatch):
    monkeypatch.setattr(segment_rows, "FAR_OBJECT_WHOLE_BYTES_MAX", 0)
    if is_warm:
        table.warm(["n"])
    first, second = reads_of_a_scan(table), reads_of_a_scan(table)
    assert second == FILES, "one request for the column of each file"
    assert first == second if is_warm else first >= second + FILES
    assert table.scan("n >= 0").explain().caches["footers"][1] == FILES


def test_warming_stops_when_the_cache_is_full_and_ignores_damaged_files(table, monkeypatch):
    monkeypatch.setattr(warm, "_AT_A_TIME", 1)
    table.metadata.objects.footers = Recent(1)
    table.warm()
    assert table.metadata.objects.footers.misses == 2, "the second footer evicted the first"
    table.storage.replace(_data_files(table)[0], b"not Parquet")
    reopened = mdt.open(table.storage)
    reopened.warm()
    with pytest.raises(Corrupt, match="wrong size"):
        reopened.scan().to_arrow()


def _data_files(table):
    return [f"{file['partition']}/{file['name']}" for file in table.files().to_pylist()]


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (lambda data: data[: len(data) // 2], "wrong size"),
        (lambda data: bytes(len(data)), "not as it was written"),
        (lambda data: data[:-8] + bytes(4) + data[-4:], "not as it was written"),
        (lambda data: None, ""),
    ],
    ids=["cut", "emptied", "another footer", "gone"],
)
def test_a_damaged_file_is_detected_although_its_footer_is_cached(tmp_path, damaged, why, request):
    table = create(tmp_path, SCHEMA)
    table.bulk_insert(DATA)
    table.scan().to_arrow()
    file = tmp_path / _data_files(table)[0].removeprefix("/")
    data = damaged(file.read_bytes())
    file.unlink() if data is None else file.write_bytes(data)
    assert not table.check().ok
    with pytest.raises(Corrupt) as error:
        read_columns(table.storage, table.definition, table.snapshot().segment(0), SCHEMA)
    assert why in str(error.value)
    if "another footer" not in request.node.name:
        with pytest.raises(Corrupt) as error:
            table.scan().to_arrow()
        assert why in str(error.value)
