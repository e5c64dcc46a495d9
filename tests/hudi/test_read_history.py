"""Completion times in the history of archived instants of versions 8 and 9, and damaged files."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mdt.errors import Corrupt, Missing
from mdt.hudi.read import history
from mdt.hudi.read.history import completion_times
from mdt.stores.storage import MemoryStorage

FOLDER = ".hoodie/timeline/history"


def time(number: int) -> str:
    return f"20240101{number:09}"


def history_file(times: Mapping[str, str], **changes: Any) -> bytes:
    """Return a history file.

    Args:
        times: Instant -> completion time.
        changes: Columns that replace others.
    """
    columns = {
        "instantTime": list(times),
        "completionTime": list(times.values()),
        "action": ["commit"] * len(times),
        "metadata": [b"\x00" * 100] * len(times),
        "plan": [None] * len(times),
        "version": [1] * len(times),
        **changes,
    }
    out = io.BytesIO()
    pq.write_table(pa.table({name: pa.array(column) for name, column in columns.items()}), out)
    return out.getvalue()


def history_storage(files: Mapping[str, bytes], version: str = "1", **more: bytes) -> MemoryStorage:
    """Return a storage with a history of ``files`` and one manifest."""
    storage = MemoryStorage()
    listed = [{"fileName": name, "fileLen": len(data)} for name, data in files.items()]
    objects = {"_version_": version.encode(), f"manifest_{version}": manifest(listed)}
    for name, data in {**objects, **files, **more}.items():
        storage.create(f"{FOLDER}/{name}", data)
    return storage


def manifest(files: object) -> bytes:
    return json.dumps({"files": files}).encode()


def name(first: int, last: int, layer: int = 0) -> str:
    return f"{time(first)}_{time(last)}_{layer}.parquet"


FILE = {name(1, 3): history_file({time(1): time(2), time(3): time(9)})}


def test_completion_times_of_the_requested_instants_are_read():
    storage = history_storage(
        {**FILE, name(4, 6): history_file({time(4): time(5), time(6): time(7)})}
    )
    instants = [time(3), time(4), time(5), time(99)]
    assert completion_times(storage, FOLDER, instants) == {time(3): time(9), time(4): time(5)}


def test_a_table_without_history_has_no_completion_times():
    assert completion_times(MemoryStorage(), FOLDER, [time(1)]) == {}


def test_nothing_is_read_if_no_instants_are_requested():
    assert completion_times(history_storage({name(1, 3): b"damaged"}), FOLDER, []) == {}


def test_files_of_other_times_are_not_opened():
    storage = history_storage({**FILE, name(4, 6, 2): b"damaged"})
    assert completion_times(storage, FOLDER, [time(1), time(7)]) == {time(1): time(2)}


def test_only_the_columns_of_instant_and_completion_times_are_read():
    damaged = bytearray(FILE[name(1, 3)])
    column = pq.ParquetFile(io.BytesIO(damaged)).metadata.row_group(0).column(3)
    start = column.dictionary_page_offset
    damaged[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    assert completion_times(history_storage({name(1, 3): bytes(damaged)}), FOLDER, [time(1)])


def test_the_manifest_named_by_the_version_file_is_used():
    newer = {f"manifest_{number}": manifest([]) for number in (3, 12)}
    assert completion_times(history_storage(FILE, "2", **newer), FOLDER, [time(1)]) == {
        time(1): time(2)
    }


@pytest.mark.parametrize("version", [b"", b"x", b"7", b"\xff", b"9" * 1000, b"1.0"])
def test_the_newest_manifest_is_used_if_there_is_no_valid_version_file(version):
    storage = history_storage(FILE, "10", manifest_9=manifest([]), **{"manifest_11.tmp": b""})
    storage.replace(f"{FOLDER}/_version_", version)
    assert completion_times(storage, FOLDER, [time(1)]) == {time(1): time(2)}
    storage.delete(f"{FOLDER}/_version_")
    assert completion_times(storage, FOLDER, [time(1)]) == {time(1): time(2)}


def test_a_large_version_file_is_corrupt():
    with pytest.raises(Corrupt, match="too large"):
        completion_times(history_storage(FILE, _version_=b"1" * 2000), FOLDER, [time(1)])


def test_a_missing_history_file_raises_missing():
    storage = history_storage(FILE)
    storage.delete(f"{FOLDER}/{name(1, 3)}")
    with pytest.raises(Missing):
        completion_times(storage, FOLDER, [time(1)])


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b'{"files": 3}',
        b'{"files": [3]}',
        b'{"files": [{"fileName": 3}]}',
        b'{"files": [{}]}',
        b'{"files": [{"fileName": "../1_2_0.parquet"}]}',
        b'{"files": [{"fileName": "1_2_0.orc"}]}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_manifest_is_corrupt(data):
    storage = history_storage(FILE)
    storage.replace(f"{FOLDER}/manifest_1", data)
    with pytest.raises(Corrupt) as caught:
        completion_times(storage, FOLDER, [time(1)])
    assert caught.value.path == f"{FOLDER}/manifest_1"


GOOD = FILE[name(1, 3)]
TIMES = {time(1): time(2)}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PAR1PAR1",
        GOOD[:-10],
        GOOD[:4] + bytes(60) + GOOD[64:],
        history_file(TIMES, completionTime=["yesterday"]),
        history_file(TIMES, completionTime=pa.array([None], pa.string())),
        history_file(TIMES, completionTime=[5]),
        history_file(TIMES, completionTime=[b"\xff" * 17]),
        history_file(TIMES, completionTime=["2" * 21]),
        history_file(TIMES, completionTime=[[time(2)]]),
        history_file(TIMES, instantTime=[[time(1)]]),
    ],
    ids=range(11),
)
def test_a_damaged_history_file_is_corrupt_and_the_error_names_it(data):
    with pytest.raises(Corrupt) as caught:
        completion_times(history_storage({name(1, 3): data}), FOLDER, [time(1)])
    assert caught.value.path == f"{FOLDER}/{name(1, 3)}"


def test_a_history_file_without_completion_times_is_corrupt():
    out = io.BytesIO()
    pq.write_table(pa.table({"instantTime": [time(1)]}), out)
    with pytest.raises(Corrupt):
        completion_times(history_storage({name(1, 3): out.getvalue()}), FOLDER, [time(1)])


def test_a_history_file_with_too_many_rows_or_bytes_is_refused_before_it_is_decoded(monkeypatch):
    for limit in ("HISTORY_ROWS_MAX", "HISTORY_COLUMN_BYTES_MAX"):
        with monkeypatch.context() as patch:
            patch.setattr(history, limit, 1)
            with pytest.raises(Corrupt, match="too large"):
                completion_times(history_storage(FILE), FOLDER, [time(1)])


def test_a_long_text_that_a_dictionary_repeats_is_refused_before_it_is_expanded():
    # the expanded column would have 100 GB
    rows = 100_000
    text = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["x" * 1_000_000])
    table = pa.table({"instantTime": pa.array([time(1)] * rows), "completionTime": text})
    out = io.BytesIO()
    pq.write_table(table, out, dictionary_pagesize_limit=1 << 30)
    with pytest.raises(Corrupt, match="overlong"):
        completion_times(history_storage({name(1, 3): out.getvalue()}), FOLDER, [time(1)])
