"""A scan is an Arrow stream: whoever speaks the protocol reads it, in pieces, as often as he
likes.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from reader import bag
from watched import Watched, files_by_time

import mdt
from mdt import Corrupt, Expired, Invalid
from mdt.stores.storage import MemoryStorage

EVERY_TYPE = pa.schema(
    [
        ("id", pa.string()),
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("x", pa.float32()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("where", pa.struct([("lat", pa.float64())])),
    ]
)


@pytest.fixture(scope="module")
def table() -> mdt.Table:
    return files_by_time(MemoryStorage(), files=5, rows=200)


def duckdb_rows(scan: Any, clauses: str = "") -> list[Any]:
    """Return what duckdb makes of ``scan``, which it finds among the local variables."""
    assert isinstance(scan, mdt.query.Scan)
    return duckdb.sql(f"from scan {clauses}").fetchall()


def test_arrow_duckdb_and_polars_read_a_scan_as_it_is(table: mdt.Table) -> None:
    scan = table.scan("ts >= 300 and ts < 320")
    rows = scan.to_arrow()
    assert rows.num_rows == 20
    readers = {
        "pa.table": pa.table(scan),
        "pyarrow reader": pa.RecordBatchReader.from_stream(scan).read_all(),
        "own reader": scan.to_reader().read_all(),
        "duckdb": pa.table(duckdb.sql("from scan").to_arrow_table()),
        "polars frame": pl.DataFrame(scan).to_arrow().cast(rows.schema),
        "polars lazily": pl.scan_arrow_c_stream(scan).collect().to_arrow().cast(rows.schema),
        "polars from_arrow of the reader": (
            pl.from_arrow(scan.to_reader()).to_arrow().cast(rows.schema)
        ),
        "batches": pa.Table.from_batches(scan),
    }
    for name, found in readers.items():
        assert bag(found) == bag(rows), name
    assert len(pl.from_arrow(scan)) == 20
    assert duckdb.sql("select sum(ts) from scan where ts < 302").fetchall() == [(601,)]


def test_an_order_and_a_limit_reach_the_reader(table: mdt.Table) -> None:
    scan = table.scan(order_by="ts desc", limit=3, columns=["ts"])
    assert (
        pl.DataFrame(scan)["ts"].to_list()
        == duckdb.sql("from scan").fetchnumpy()["ts"].tolist()
        == [999, 998, 997]
    )


def test_every_type_passes_through_the_stream_with_its_schema() -> None:
    table = mdt.create(MemoryStorage(), EVERY_TYPE, ["id"])
    empty = table.scan()
    assert (
        pa.table(empty).schema == pa.schema(empty) == table.schema and pa.table(empty).num_rows == 0
    )
    table.upsert(
        pa.Table.from_pylist(
            [{"id": "a", "tags": ["x", None], "where": {"lat": 1.5}}, {"id": "b", "flag": True}],
            EVERY_TYPE,
        )
    )
    scan = table.scan()
    assert pa.table(scan).schema == pa.schema(scan) == scan.schema
    assert pa.table(scan).to_pylist() == scan.to_arrow().to_pylist()
    assert pa.table(table.scan(columns=["_hoodie_record_key", "id"])).column_names == [
        "_hoodie_record_key",
        "id",
    ]


def test_a_schema_may_be_asked_for_that_the_rows_can_be_cast_to(table: mdt.Table) -> None:
    scan = table.scan(columns=["ts"], limit=2)
    assert (
        pa.table(scan, schema=pa.schema([("ts", pa.float64())])).schema.field("ts").type
        == pa.float64()
    )
    with pytest.raises(Invalid, match="schema that is asked for"):
        pa.table(scan, schema=pa.schema([("another", pa.int64()), ("ts", pa.int64())]))


def test_the_stream_reads_as_it_is_read_and_ends_its_threads_when_it_is_closed() -> None:
    storage = Watched()
    files_by_time(storage, files=60, rows=3000)
    table = mdt.open(storage, {"mdt.reader.threads": 2})
    storage.seen.clear()
    before = set(threading.enumerate())
    reader = pa.RecordBatchReader.from_stream(table.scan())
    assert reader.read_next_batch().num_rows
    assert len(storage.seen) < 20, "the whole table was read for the first batch"
    assert set(threading.enumerate()) - before
    reader.close()
    del reader
    gc.collect()
    assert set(threading.enumerate()) <= before, "those of other tests' storages may end meanwhile"
    batches = iter(table.scan())
    next(batches)
    batches.close()
    assert set(threading.enumerate()) <= before, "those of other tests' storages may end meanwhile"
    storage.seen.clear()
    assert len(duckdb_rows(table.scan(), "limit 3")) == 3
    gc.collect()
    assert not [
        thread
        for thread in set(threading.enumerate()) - before
        if thread.name.startswith("ThreadPool")
    ]
    assert len(storage.seen) < 30


def test_an_error_while_rows_are_read_is_ours_in_python_and_told_by_others(tmp_path: Path) -> None:
    table = mdt.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("x", pa.int64())]), ["id"])
    table.bulk_insert(pa.table({"id": range(100_000), "x": np.arange(100_000)}))
    [file] = (tmp_path / "t").glob("*.parquet")
    file.write_bytes(b"PAR1" + bytes(file.stat().st_size - 4))
    scan = mdt.open(tmp_path / "t").scan()
    for read in (lambda: scan.to_reader().read_all(), lambda: list(scan), scan.to_arrow):
        with pytest.raises(Corrupt, match=file.name):
            read()
    for read_by_another in (
        lambda: pa.table(scan),
        lambda: pa.RecordBatchReader.from_stream(scan),
        lambda: pl.DataFrame(scan),
    ):
        with pytest.raises(Corrupt, match=file.name):
            read_by_another()
    with pytest.raises((Corrupt, duckdb.Error), match=f"data file.*{file.name}"):
        duckdb_rows(scan)


def test_an_error_after_the_first_rows_is_told_by_others(tmp_path: Path) -> None:
    class Breaks(mdt.query.Scan):
        def to_batches(self) -> Iterator[pa.RecordBatch]:
            yield from super().to_batches()
            raise Corrupt("broken off")

    table = mdt.create(tmp_path / "t", pa.schema([("id", pa.int64())]), ["id"])
    table.bulk_insert(pa.table({"id": range(10)}))
    scan = Breaks(table.metadata, table.snapshot(), None, None, table.options)
    with pytest.raises(pa.ArrowException, match="broken off"):
        pa.table(scan)
    with pytest.raises(pl.exceptions.ComputeError, match="broken off"):
        pl.DataFrame(scan)


def test_a_state_that_was_cleaned_is_expired_through_an_arrow_stream(tmp_path: Path) -> None:
    table = mdt.create(tmp_path / "t", pa.schema([("id", pa.int64())]), ["id"])
    for _ in range(4):
        table.insert_overwrite_table(pa.table({"id": range(10)}))
    scan, changes = mdt.open(tmp_path / "t", as_of=1).scan(), mdt.open(tmp_path / "t").changes(1)
    table.clean(retain_commits=1)
    for stream in (scan, changes):
        for read in (pa.table, pl.DataFrame):
            with pytest.raises(Expired):
                read(stream)


def test_a_scan_has_no_length_because_counting_is_reading(table: mdt.Table) -> None:
    scan: Any = table.scan("ts < 5")
    with pytest.raises(TypeError):
        len(scan)
    assert scan.count() == sum(batch.num_rows for batch in scan) == 5
    assert bool(table.scan("ts < 0"))
