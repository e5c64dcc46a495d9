"""A scan is an Arrow stream: whoever speaks the protocol reads it, in pieces, as often as he
likes.
"""

import gc
import threading
from itertools import product

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from reader import bag
from texts import columns
from watched import Watched, files_by_time

import mdt
from mdt import Corrupt, Expired, Invalid
from mdt.stores.storage import MemoryStorage

EVERY_TYPE = pa.schema(
    {
        "id": "string",
        "flag": "bool",
        "small": "int32",
        "x": "float32",
        "day": "date32",
        "at": pa.timestamp("us", "UTC"),
        "price": pa.decimal128(10, 2),
        "raw": "binary",
        "tags": pa.list_(pa.string()),
        "where": pa.struct({"lat": "float64"}),
    }
)


@pytest.fixture(scope="module")
def table():
    return files_by_time(MemoryStorage(), files=5, rows=200)


def duckdb_rows(scan, clauses=""):
    """Return what duckdb makes of ``scan``, which it finds among the local variables."""
    return duckdb.sql(f"from scan {clauses}").fetchall()


def test_arrow_duckdb_and_polars_read_a_scan_as_it_is(table):
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


def test_an_order_and_a_limit_reach_the_reader(table):
    scan = table.scan(order_by="ts desc", limit=3, columns=["ts"])
    for found in (pl.DataFrame(scan)["ts"], duckdb.sql("from scan").fetchnumpy()["ts"]):
        assert list(found) == [999, 998, 997]


def test_every_type_passes_through_the_stream_with_its_schema():
    table = mdt.create(MemoryStorage(), EVERY_TYPE, ["id"])
    empty = table.scan()
    assert pa.schema(empty) == table.schema and pa.table(empty).equals(table.schema.empty_table())
    rows = [{"id": "a", "tags": ["x", None], "where": {"lat": 1.5}}, {"id": "b", "flag": True}]
    table.upsert(pa.Table.from_pylist(rows, EVERY_TYPE))
    scan = table.scan()
    assert pa.table(scan).schema == pa.schema(scan) == scan.schema
    assert pa.table(scan).to_pylist() == scan.to_arrow().to_pylist()
    names = ["_hoodie_record_key", "id"]
    assert pa.table(table.scan(columns=names)).column_names == names


def test_a_schema_may_be_asked_for_that_the_rows_can_be_cast_to(table):
    scan = table.scan(columns=["ts"], limit=2)
    wider = columns("ts float64")
    assert pa.table(scan, schema=wider).schema == wider
    with pytest.raises(Invalid, match="requested schema"):
        pa.table(scan, schema=columns("another int64, ts int64"))


def test_the_stream_reads_as_it_is_read_and_ends_its_threads_when_it_is_closed():
    storage = Watched()
    files_by_time(storage, files=60, rows=3000)
    table = mdt.open(storage, {"mdt.reader.threads": 2})
    storage.seen.clear()
    before = set(threading.enumerate())

    def started():
        """Return the threads that run besides: those of other tests' storages may end meanwhile."""
        gc.collect()
        return set(threading.enumerate()) - before

    reader = pa.RecordBatchReader.from_stream(table.scan())
    assert reader.read_next_batch().num_rows and started()
    assert len(storage.seen) < 20, "the whole table was read for the first batch"
    reader.close()
    del reader
    assert not started()
    batches = iter(table.scan())
    next(batches)
    batches.close()
    assert not started()
    storage.seen.clear()
    assert len(duckdb_rows(table.scan(), "limit 3")) == 3
    assert not [thread for thread in started() if thread.name.startswith("ThreadPool")]
    assert len(storage.seen) < 30


def test_an_error_while_rows_are_read_is_ours_in_python_and_told_by_others(tmp_path):
    table = mdt.create(tmp_path / "t", columns("id int64, x int64"), ["id"])
    table.bulk_insert(pa.table({"id": range(100_000), "x": range(100_000)}))
    [file] = (tmp_path / "t").glob("*.parquet")
    file.write_bytes(b"PAR1" + bytes(file.stat().st_size - 4))
    scan = mdt.open(tmp_path / "t").scan()
    for read in (
        lambda scan: scan.to_reader().read_all(),
        list,
        mdt.query.Scan.to_arrow,
        pa.table,
        pa.RecordBatchReader.from_stream,
        pl.DataFrame,
    ):
        with pytest.raises(Corrupt, match=file.name):
            read(scan)
    with pytest.raises((Corrupt, duckdb.Error), match=f"data file.*{file.name}"):
        duckdb_rows(scan)


def test_an_error_after_the_first_rows_is_told_by_others(table):
    class Breaks(mdt.query.Scan):
        def to_batches(self):
            yield from super().to_batches()
            raise Corrupt("broken off")

    scan = Breaks(table.metadata, table.snapshot(), None, None, table.options)
    for read, kind in ((pa.table, pa.ArrowException), (pl.DataFrame, pl.exceptions.ComputeError)):
        with pytest.raises(kind, match="broken off"):
            read(scan)


def test_a_state_that_was_cleaned_is_expired_through_an_arrow_stream(tmp_path):
    table = mdt.create(tmp_path / "t", columns("id int64"), ["id"])
    for _ in range(4):
        table.insert_overwrite_table(pa.table({"id": range(10)}))
    streams = mdt.open(tmp_path / "t", as_of=1).scan(), mdt.open(tmp_path / "t").changes(1)
    table.clean(retain_commits=1)
    for stream, read in product(streams, (pa.table, pl.DataFrame)):
        with pytest.raises(Expired):
            read(stream)


def test_a_scan_has_no_length_because_counting_is_reading(table):
    scan = table.scan("ts < 5")
    with pytest.raises(TypeError):
        len(scan)
    assert scan.count() == sum(batch.num_rows for batch in scan) == 5
    assert bool(table.scan("ts < 0"))
